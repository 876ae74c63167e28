"""The walks of users end to end, printed with `pytest -s`."""

import pytest
from user_walks import WALKS, walk


@pytest.mark.parametrize("user", WALKS)
def test_a_user_gets_what_the_walk_says(user: str, one_thread: None) -> None:
    lines = []
    for line in walk(user):
        print(f"{user}: {line}")
        lines.append(line)
    assert len(lines) >= 6
