"""Tables about reliability: what came of attacks."""

from tables_of.results import measured, rows, stored


def reliability_readers() -> str:
    result = stored("reliability")["readers"]
    lines = [
        (GROUPS.get(group, group), f"{sum(outcomes.values()):,}", *(f"{outcomes.get(name, 0):,}" for name in OUTCOMES))
        for group, outcomes in result["outcomes"].items()
    ]
    return rows(("input", "attacks", *OUTCOMES), *lines) + measured(result["facts"])


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


# How the table calls a group of attacks, where not by its name in the result.
GROUPS = {"small files that ask for much": "decompression bombs and the like"}
OUTCOMES = ("read", "refused", "lost", "fault")
TABLES = {"reliability_readers": reliability_readers, "real_documents": real_documents}
