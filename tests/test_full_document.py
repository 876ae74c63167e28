"""The full document really is full."""

from dataclasses import MISSING, fields, is_dataclass

from full_document import full_document, full_documents


def test_no_field_is_empty_or_at_its_default() -> None:
    assert list(unfilled(full_document(), "document")) == []


def test_the_sparse_documents_are_all_different() -> None:
    docs = full_documents()
    assert len({doc.id for doc in docs}) == len(docs)


def unfilled(value, path):
    if isinstance(value, tuple):
        for item in value:
            yield from unfilled(item, path)
    elif is_dataclass(value):
        for field in fields(value):
            inner = getattr(value, field.name)
            # The two sides of an argument exclude each other.
            if inner in ((), "", None) and field.name not in ("target", "concept"):
                yield f"{path}.{field.name} is empty"
            if (
                field.default is not MISSING
                and inner == field.default
                and field.name not in ("target", "concept", "novel", "kind")
            ):
                yield f"{path}.{field.name} is at its default"
            yield from unfilled(inner, f"{path}.{field.name}")
