"""Tables about vocabularies: tokens per word, and the cost of learning one."""

from tables_of.results import measured, rows, stored


def vocab_report() -> str:
    result = stored("vocab_report")
    lines = [
        (
            row["name"],
            f"{row['pieces']:,}",
            f"{row['text']['pieces_per_word']:.3f}",
            *(f"{row['entities'][name]['pieces_per_word']:.3f}" for name in result["paper"]),
            row["symbols_whole"],
            row["symbols_spelled"],
            len(row["symbols_unknown"]),
        )
        for row in result["vocabularies"]
    ]
    head = ("vocabulary", "size", "text", "BC5-chem", "BC5-disease", "symbols as one token", "as bytes", "unknown")
    return rows(head, *lines) + measured(result["facts"])


def break_up_definitions() -> str:
    result = stored("vocab_report")
    paper = ("BERT cased in the paper", *result["paper"].values())
    lines = [(way, *(f"{found[name]:.3f}" for name in result["paper"])) for way, found in result["definitions"].items()]
    return rows(("definition", "BC5-chem", "BC5-disease"), paper, *lines)


def vocab_learning() -> str:
    result = stored("vocab_learning")
    lines = [
        (
            name,
            f"{part['pieces']:,}",
            f"{part['processor_seconds']} s",
            f"{part['peak_megabytes']} MB",
            *part["break_up"].values(),
        )
        for name, part in result["kinds"].items()
    ]
    head = ("recipe", "size", "CPU time", "peak memory", "BC5-chem", "BC5-disease")
    return rows(head, *lines) + measured(result["facts"])


TABLES = {made.__name__: made for made in (vocab_report, break_up_definitions, vocab_learning)}
