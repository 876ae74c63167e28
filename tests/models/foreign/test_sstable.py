"""The sorted table and its parts against other programs' answers."""

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from foreign_writers import slow_crc32c, table
from hypothesis import given
from hypothesis import strategies as st

from lexome.errors import CheckpointError
from lexome.models.foreign.tensorflow import crc32c, read_table, snappy


def test_the_checksum_has_its_published_values() -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("size", [1, 3, 4, 7, 32, 33, 1000, 4 << 14, (4 << 14) + 4, (12 << 14) + 5])
def test_the_checksum_of_many_bytes_is_that_of_the_definition(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert crc32c(content) == slow_crc32c(content.tobytes())


@given(st.lists(st.sampled_from([b"bert/", b"encoder/", b"a", b"\0" * 70]), max_size=60).map(b"".join))
def test_snappy_is_unpacked_as_it_was_packed(content: bytes) -> None:
    assert snappy(pa.compress(content, codec="snappy", asbytes=True)) == content


@given(st.binary(max_size=40))
def test_no_bytes_break_the_unpacking_of_snappy(packed: bytes) -> None:
    with suppress(ValueError, IndexError):
        assert len(snappy(packed)) <= 64 * len(packed)


@given(st.dictionaries(st.binary(max_size=9), st.binary(max_size=9), max_size=40), st.booleans())
def test_a_table_is_read_as_it_was_written(entries: dict[bytes, bytes], packed: bool) -> None:
    assert list(read_table(table(entries, packed=packed), where="x")) == sorted(entries.items())


@given(st.binary(max_size=200))
def test_no_bytes_break_a_table(content: bytes) -> None:
    footer = (1 << 62).to_bytes(9, "little") * 4
    for tail in (b"", footer[:40] + (0xDB4775248B80FB57).to_bytes(8, "little")):
        with pytest.raises(CheckpointError, match="damaged index"):
            list(read_table(content + tail, where="x"))
