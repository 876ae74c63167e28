"""Generates the tables of README and docs from results/*.json and the recipe schemas.

python benchmarks/tables.py            write the tables
python benchmarks/tables.py --check    exit with 1 if a table is out of date
"""

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable

import tables_of
from tables_of.results import ROOT

FAMILIES = [importlib.import_module(f"tables_of.{module.name}") for module in pkgutil.iter_modules(tables_of.__path__)]
TABLES: dict[str, Callable[[], str]] = {
    name: made for family in FAMILIES for name, made in getattr(family, "TABLES", {}).items()
}
PLACE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with regenerated tables."""
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", page)


def main() -> int:
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        page = path.read_text()
        if filled(page) != page:
            stale.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(filled(page))
    for path in stale:
        print(f"{path}: {'out of date; run make tables' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
