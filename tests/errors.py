"""Assertions on Lexome's errors by class, code and offending value, never by wording."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from lexome.errors import LexomeError
from lexome.recipe import problem_key

ANY = object()


@contextmanager
def raises(
    kind: type[LexomeError], *, code: str, value: Any = ANY, mentions: str | None = None
) -> Iterator[pytest.ExceptionInfo[LexomeError]]:
    """Expect an error of this class and code, with this offending value.

    `mentions` is a value, never a sentence, that the message must name beside it: a path, a key, a number.
    """
    with pytest.raises(kind) as caught:
        yield caught
    assert caught.value.code == code, f"{caught.value.code!r}: {caught.value}"
    if value is not ANY:
        assert caught.value.value == value, caught.value
    if mentions is not None:
        assert mentions in str(caught.value)


@contextmanager
def rejects(key: str) -> Iterator[None]:
    """Expect a recipe's schema to reject this key, named as `--set` does."""
    with pytest.raises(ValidationError) as caught:
        yield
    assert key in [problem_key(problem) for problem in caught.value.errors()], caught.value
