"""Where two recipes differ, in words: the first key that one of them says otherwise."""

import json
from collections.abc import Mapping
from typing import Any


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    """The first key that differs, as "there seed is 0, here 1"; None where all are the same.

    `there` and `here` are the keys of recipes, as JSON holds them; a key that is not said has no value.
    """
    old, new = _flat(there), _flat(here)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            return f"there {key} is {_said(old, key)}, here {_said(new, key)}"
    return None


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The keys of a table and the tables in it, as `--set` names them."""
    found: dict[str, Any] = {}
    for key, said in table.items():
        if isinstance(said, list) and said and all(isinstance(item, Mapping) for item in said):
            said = {str(place): item for place, item in enumerate(said)}
        found |= _flat(said, f"{prefix}{key}.") if isinstance(said, Mapping) else {prefix + key: said}
    return found


def _said(table: Mapping[str, Any], key: str) -> str:
    return json.dumps(table[key], ensure_ascii=False) if key in table else "not said"
