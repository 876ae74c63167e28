"""Tables about reliability: what came of attacks."""

from tables_of.results import measured, rows, stored


def reliability_readers() -> str:
    result = stored("reliability")["readers"]
    lines = [
        (group, f"{sum(outcomes.values()):,}", *(f"{outcomes.get(name, 0):,}" for name in OUTCOMES))
        for group, outcomes in result["outcomes"].items()
    ]
    return rows(("attacked", "attacks", *OUTCOMES), *lines) + measured(result["facts"])


def real_documents() -> str:
    result = stored("real_documents")
    lines = [
        (
            one["file"],
            one["package"],
            f"{one['passages']:,}",
            f"{one['headings']:,}",
            f"{one['characters']:,}",
            one["note"],
        )
        for one in result["documents"]
    ]
    return rows(("file", "package", "passages", "headings", "characters", "note"), *lines) + measured(result["facts"])


OUTCOMES = ("read", "refused", "lost", "fault")
TABLES = {"reliability_readers": reliability_readers, "real_documents": real_documents}
