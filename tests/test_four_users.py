"""The four users of four_users.py get what they came for."""

from pathlib import Path

import four_users
import pytest


@pytest.mark.parametrize("user", four_users.PARTS)
def test_a_new_user_gets_to_the_end(user: str, tmp_path: Path, one_thread: None) -> None:
    got = four_users.PARTS[user](tmp_path)
    assert all(got)
    print(*got, sep="\n")
