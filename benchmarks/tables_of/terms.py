"""Tables about the index of names: its speed, and what of the gold ids the default index knows."""

from tables_of.results import measured, rows, stored


def terms_speed() -> str:
    result = stored("terms")
    index, million = result["default"], result["million_names"]
    lines = [
        ("the default index", f"{index['concepts']:,} concepts, {index['names']:,} names, {index['megabytes']} MB"),
        ("time to open it, checksum included", f"{index['open_ms']} ms"),
        ("lookup of distinct names", f"{index['finds_per_second']:,} names/s"),
        ("search for the 20 most similar names, distinct queries", f"{index['similar_ms']} ms per query"),
        (f"building an index of {million['names']:,} names", f"{million['build_s']} s, {million['build_mb']} MB"),
        (
            "the same with search for similar names",
            f"{million['build_with_similar_s']} s, {million['build_with_similar_mb']} MB",
        ),
        ("peak memory while building", f"{million['peak_mb']:,} MB"),
    ]
    return rows(("one core", ""), *lines) + measured(result["facts"])


def terms_coverage() -> str:
    head = ("dataset", "type", "mentions", "id in the index", "exact", "folded", "loose", "accuracy@1", "similar@20")
    keys = ("id", "exact", "folded", "loose", "first", "near")
    lines = [
        (name, type, f"{part['mentions']:,}", *(part[key] for key in keys))
        for name, types in stored("terms")["coverage"].items()
        for type, part in types.items()
    ]
    return rows(head, *lines)


TABLES = {"terms_speed": terms_speed, "terms_coverage": terms_coverage}
