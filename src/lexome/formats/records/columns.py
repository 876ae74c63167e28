"""Documents as Arrow columns and back, both made from the dataclasses' own type hints.

A field that is added to the model is a column at once. A dataclass is a struct, a tuple a list, a
range a struct of start and end; what may be None may be null, and nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import accumulate, pairwise
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from lexome.document import Document, Range
from lexome.errors import BadDocument

# What stands in the columns of a struct that is null, and is never read.
_BLANK: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False}


@dataclass(frozen=True, slots=True)
class Column:
    """One field of a dataclass: its type without None, whether None is allowed, and its default."""

    name: str
    hint: Any
    optional: bool
    default: Any


@cache
def columns_of(cls: type) -> tuple[Column, ...]:
    """The fields of a dataclass as columns."""
    hints = get_type_hints(cls)
    return tuple(_column(field.name, hints[field.name], field.default) for field in fields(cls))


def _column(name: str, hint: Any, default: Any) -> Column:
    if get_origin(hint) not in (Union, UnionType):
        return Column(name, hint, False, default)
    (inner,) = (choice for choice in get_args(hint) if choice is not type(None))
    return Column(name, inner, True, default)


def arrow_fields(cls: type) -> list[Any]:
    """The Arrow fields of a dataclass."""
    import pyarrow as pa

    return [pa.field(column.name, _arrow_type(column.hint), nullable=column.optional) for column in columns_of(cls)]


def _arrow_type(hint: Any) -> Any:
    import pyarrow as pa

    if is_dataclass(hint):
        return pa.struct(arrow_fields(hint))  # type: ignore[arg-type]  # a class, not an instance
    if hint == Range:
        return pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("start", "end")])
    if get_origin(hint) is tuple:
        return pa.list_(pa.field("element", _arrow_type(get_args(hint)[0]), nullable=False))
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[hint]


def to_arrays(cls: type, objects: Sequence[Any]) -> list[Any]:
    """The columns of some objects of a dataclass; None among them leaves its place blank."""
    arrays = []
    for column in columns_of(cls):
        blank = None if column.optional else _BLANK.get(column.hint, ())
        name = column.name
        arrays.append(_array(column.hint, [getattr(item, name) if item is not None else blank for item in objects]))
    return arrays


def _array(hint: Any, values: list[Any]) -> Any:
    import pyarrow as pa

    if is_dataclass(hint):
        mask = pa.array([value is None for value in values], pa.bool_())
        kind = _arrow_type(hint)
        return pa.StructArray.from_arrays(to_arrays(hint, values), fields=list(kind), mask=mask)  # type: ignore[arg-type]
    if hint == Range:
        ends = [pa.array([value[side] for value in values], pa.int64()) for side in (0, 1)]
        return pa.StructArray.from_arrays(ends, fields=list(_arrow_type(hint)))
    if get_origin(hint) is tuple:
        offsets = pa.array(list(accumulate(map(len, values), initial=0)), pa.int32())
        flat = [item for value in values for item in value]
        return pa.ListArray.from_arrays(offsets, _array(get_args(hint)[0], flat), type=_arrow_type(hint))
    return pa.array(values, _arrow_type(hint))


def misfit(cls: type, kind: Any, path: str = "") -> str | None:
    """What is wrong with a schema or struct as the columns of a dataclass, or None.

    Strings and lists may be of Arrow's large kind, and columns with a default may be missing: other
    tools change the former, and a later version of Lexome the latter.
    """
    for column in columns_of(cls):
        name = f"{path}{column.name}"
        if kind.names.count(column.name) > 1:
            return f"there are two columns {name}"
        if column.name in kind.names:
            wrong = _misfit(column.hint, kind.field(column.name).type, name)
            if wrong is not None:
                return wrong
        elif column.default is MISSING:
            return f"there is no column {name}"
    return None


def _misfit(hint: Any, kind: Any, name: str) -> str | None:
    import pyarrow as pa

    of = pa.types
    if of.is_null(kind):
        # What a tool that guesses types makes of a column where nothing was ever set.
        return None
    if is_dataclass(hint):
        return misfit(hint, kind, f"{name}.") if of.is_struct(kind) else f"{name} is {kind}, not a struct"  # type: ignore[arg-type]
    if hint == Range:
        fits = of.is_struct(kind) and kind.names == ["start", "end"] and all(of.is_integer(side.type) for side in kind)
        return None if fits else f"{name} is {kind}, not a struct of start and end"
    if get_origin(hint) is tuple:
        if not (of.is_list(kind) or of.is_large_list(kind)):
            return f"{name} is {kind}, not a list"
        return _misfit(get_args(hint)[0], kind.value_type, f"{name}[]")
    if hint is str:
        fits = of.is_string(kind) or of.is_large_string(kind)
    else:
        check: dict[type, Callable[[Any], bool]] = {int: of.is_integer, float: of.is_floating, bool: of.is_boolean}
        fits = check[hint](kind)
    return None if fits else f"{name} is {kind}, not {_arrow_type(hint)}"


def from_struct(cls: type, array: Any) -> list[Any]:
    """The objects in a struct array whose type has no misfit; null is None.

    A null in a column with a default is the default, whatever wrote it; without one it is a
    BadDocument, as is text that is not Unicode.
    """
    sides = []
    for column in columns_of(cls):
        index = array.type.get_field_index(column.name)
        if index < 0:
            sides.append([column.default] * len(array))
            continue
        values = _values(column.hint, array.field(index))
        if not column.optional and array.field(index).null_count:
            values = _without_null(values, column, array)
        sides.append(values)
    # Documents hold thousands of these, so the objects are built from columns and not through dicts.
    made = zip(*sides, strict=True)
    if array.null_count == 0:
        return [cls(*row) for row in made]
    return [cls(*row) if valid else None for row, valid in zip(made, array.is_valid().to_pylist(), strict=True)]


def _without_null(values: list[Any], column: Column, owner: Any) -> list[Any]:
    here = owner.is_valid().to_pylist()
    if column.default is MISSING and any(value is None and valid for value, valid in zip(values, here, strict=True)):
        raise BadDocument("missing_field", f"{column.name} is null; expected a value in every row")
    return [column.default if value is None else value for value in values]


def _values(hint: Any, array: Any) -> list[Any]:
    if array.null_count == len(array):
        return [None] * len(array)
    if is_dataclass(hint):
        return from_struct(hint, array)  # type: ignore[arg-type]
    if hint == Range:
        starts, ends = array.field("start").to_pylist(), array.field("end").to_pylist()
        if array.null_count or None in starts or None in ends:
            raise BadDocument("missing_field", "a range has no start or end; expected two numbers")
        return list(zip(starts, ends, strict=True))
    if get_origin(hint) is tuple:
        return _tuples(get_args(hint)[0], array)
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError as error:
        raise BadDocument("wrong_encoding", f"{error}; expected text in UTF-8") from None
    return values


def _tuples(hint: Any, array: Any) -> list[Any]:
    """A tuple for each list; None for null."""
    bounds = array.offsets.to_pylist()
    # A slice of a list array still holds the values of the whole.
    flat = _values(hint, array.values.slice(bounds[0], bounds[-1] - bounds[0]))
    if None in flat:
        raise BadDocument("missing_field", "a list holds null; expected values only")
    first = bounds[0]
    found = [tuple(flat[start - first : end - first]) for start, end in pairwise(bounds)]
    if array.null_count == 0:
        return found
    return [value if valid else None for value, valid in zip(found, array.is_valid().to_pylist(), strict=True)]


def documents_of(batch: Any) -> list[Document]:
    """The documents of a record batch in Lexome's own columns."""
    import pyarrow as pa

    return from_struct(Document, pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)))
