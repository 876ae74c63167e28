"""Damaged input: bytes cut, flipped, doubled or put in, and JSON with values of other types."""

import json
from typing import Any

from hypothesis import strategies as st

_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("\ud800"))
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@st.composite
def damaged(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes with up to four places damaged."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(raw)))
        end = draw(st.integers(at, min(len(raw), at + 20)))
        way = draw(st.sampled_from(["cut", "drop", "flip", "double", "put in"]))
        put = draw(st.one_of(st.binary(max_size=6), st.sampled_from([b'"', b"\t", b"\n", b"\r", b"{", b"[[", b"\x00"])))
        pieces = {
            "cut": (raw[:at],),
            "drop": (raw[:at], raw[end:]),
            "flip": (raw[:at], put, raw[at + len(put) :]),
            "double": (raw[:end], raw[at:]),
            "put in": (raw[:at], put, raw[at:]),
        }
        raw = b"".join(pieces[way])
    return raw


@st.composite
def mistyped(draw: st.DrawFn, value: Any) -> bytes:
    """The value as JSON, with something in it replaced by a value of any type, or gone."""
    return json.dumps(draw(_replaced(value))).encode()


@st.composite
def _replaced(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict) and value and draw(st.integers(0, 5)):
        key = draw(st.sampled_from(sorted(value)))
        if not draw(st.integers(0, 9)):
            return {name: inner for name, inner in value.items() if name != key}
        return {**value, key: draw(_replaced(value[key]))}
    if isinstance(value, list) and value and draw(st.integers(0, 5)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], draw(_replaced(value[at])), *value[at + 1 :]]
    return draw(_VALUES)
