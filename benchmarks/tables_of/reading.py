"""Tables of reading: how fast, how much of an article, in how much memory, and into which sentences."""

from tables_of.results import measured, rows, stored


def read_speed() -> str:
    result = stored("read_speed")
    lines = [
        (name, f"{part['lexome_mb_per_s']} MB/s", f"{part['pubmed_parser_mb_per_s']} MB/s", f"{part['ratio']}×")
        for name, part in (
            ("PubMed XML, records repeated", result["pubmed"]),
            ("PubMed XML, each record once, caches empty", result["pubmed_cold"]),
            ("PMC JATS; peer: article and paragraphs", result["jats"]),
            ("PMC JATS; peer: captions and tables too", result["jats_all"]),
        )
    ]
    return rows(("reading", "Lexome", "pubmed_parser", "ratio"), *lines) + measured(result["facts"])


def memory() -> str:
    part = stored("read_speed")["memory"]
    size, documents, peak = part["file_megabytes"], part["documents"], part["peak_megabytes"]
    return rows(
        ("PubMed XML file", "documents", "peak memory of the process"), (f"{size:,} MB", f"{documents:,}", f"{peak} MB")
    )


def jats_recall() -> str:
    result = stored("jats_recall")
    files = {**result["files"], "all files": result["total"]}
    lines = [
        (name, *(part[key] for key in ("paragraphs", "pubmed_parser", "pubmed_parser_all", "lexome")))
        for name, part in files.items()
    ]
    head = ("file", "paragraphs", "pubmed_parser: article, paragraphs", "and its captions, tables", "Lexome")
    return rows(head, *lines) + measured(result["facts"])


def sentences() -> str:
    result = stored("sentences")
    sets = {"genia": "GENIA", "ddi": "DDI", "hoc": "HoC", "hoc_as_published": "HoC, as published"}
    lines = [
        (name, *(f"{part[key]['f1']:.2f}" for key in sets), f"{part['mb_per_s']} MB/s")
        for name, part in sorted(result["splitters"].items(), key=lambda item: -item[1]["genia"]["f1"])
    ]
    counts = tuple(f"{result['text'][key]['boundaries']:,}" for key in ("genia", "ddi", "hoc", "hoc"))
    head = ("splitter, F1 of boundaries", *sets.values(), "speed")
    return rows(head, ("boundaries", *counts, ""), *lines) + measured(result["facts"])


TABLES = {made.__name__: made for made in (read_speed, memory, jats_recall, sentences)}
