"""The LevelDB table and its parts, compared with other implementations."""

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from errors import raises
from foreign_writers import slow_crc32c, table
from hypothesis import given
from hypothesis import strategies as st

from lexome.errors import CheckpointError
from lexome.models.foreign.tensorflow import crc32c, decompress_snappy, read_table


def test_the_checksum_has_its_published_values() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("size", [1, 3, 4, 7, 32, 33, 1000, 4 << 14, (4 << 14) + 4, (12 << 14) + 5])
def test_the_checksum_of_an_array_equals_the_definition(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert crc32c(content) == slow_crc32c(content.tobytes())


@given(st.lists(st.sampled_from([b"bert/", b"encoder/", b"a", b"\0" * 70]), max_size=60).map(b"".join))
def test_snappy_round_trip(content: bytes) -> None:
    assert decompress_snappy(pa.compress(content, codec="snappy", asbytes=True)) == content


@given(st.binary(max_size=40))
def test_invalid_snappy_raises_and_stays_small(packed: bytes) -> None:
    with suppress(ValueError, IndexError):
        assert len(decompress_snappy(packed)) <= 64 * len(packed)


@given(st.dictionaries(st.binary(max_size=9), st.binary(max_size=9), max_size=40), st.booleans())
def test_table_round_trip(entries: dict[bytes, bytes], packed: bool) -> None:
    assert list(read_table(table(entries, packed=packed), where="x")) == sorted(entries.items())


@given(st.binary(max_size=200))
def test_an_invalid_table_is_refused(content: bytes) -> None:
    footer = (1 << 62).to_bytes(9, "little") * 4
    for tail in (b"", footer[:40] + (0xDB4775248B80FB57).to_bytes(8, "little")):
        with raises(CheckpointError, code="damaged-file", value="x"):
            list(read_table(content + tail, where="x"))
