"""Tables about the index of names: its speed, and what of the gold ids the default index knows."""

from tables_of.results import measured, rows, stored


def terms_speed() -> str:
    result = stored("terms")
    index, million = result["default"], result["million_names"]
    lines = [
        ("the default index", f"{index['concepts']:,} concepts, {index['names']:,} names, {index['megabytes']} MB"),
        ("opened, checksum included", f"{index['open_ms']} ms"),
        ("names looked up, none twice", f"{index['finds_per_second']:,} a second"),
        ("search for 20 similar names, none twice", f"{index['similar_ms']} ms"),
        (f"index of {million['names']:,} names built", f"{million['build_s']} s, {million['build_mb']} MB"),
        ("the same with similar names", f"{million['build_with_similar_s']} s, {million['build_with_similar_mb']} MB"),
        ("peak memory of building", f"{million['peak_mb']:,} MB"),
    ]
    return rows(("one core", ""), *lines) + measured(result["facts"])


def terms_coverage() -> str:
    head = ("dataset", "type", "mentions", "id in the index", "equal name", "folded", "loose", "first found", "similar")
    keys = ("id", "exact", "folded", "loose", "first", "near")
    lines = [
        (name, type, f"{part['mentions']:,}", *(part[key] for key in keys))
        for name, types in stored("terms")["coverage"].items()
        for type, part in types.items()
    ]
    return rows(head, *lines)


TABLES = {"terms_speed": terms_speed, "terms_coverage": terms_coverage}
