"""Tables about reading: throughput, memory, recall of JATS text, and sentence splitting."""

from tables_of.results import measured, rows, stored


def read_speed() -> str:
    result = stored("read_speed")
    lines = [
        (name, f"{part['lexome_mb_per_s']} MB/s", f"{part['pubmed_parser_mb_per_s']} MB/s", f"{part['ratio']}×")
        for name, part in (
            ("PubMed XML, repeated records", result["pubmed"]),
            ("PubMed XML, each record once, cold caches", result["pubmed_cold"]),
            ("PMC JATS; pubmed_parser: article and paragraphs", result["jats"]),
            ("PMC JATS; pubmed_parser: also captions and tables", result["jats_all"]),
        )
    ]
    return rows(("input", "Lexome", "pubmed_parser", "ratio"), *lines) + measured(result["facts"])


def memory() -> str:
    part = stored("read_speed")["memory"]
    size, documents, peak = part["file_megabytes"], part["documents"], part["peak_megabytes"]
    return rows(("PubMed XML file", "documents", "peak memory"), (f"{size:,} MB", f"{documents:,}", f"{peak} MB"))


def jats_recall() -> str:
    result = stored("jats_recall")
    files = {**result["files"], "all files": result["total"]}
    lines = [
        (name, *(part[key] for key in ("paragraphs", "pubmed_parser", "pubmed_parser_all", "lexome")))
        for name, part in files.items()
    ]
    head = (
        "file",
        "paragraphs",
        "pubmed_parser: article, paragraphs",
        "pubmed_parser: also captions, tables",
        "Lexome",
    )
    return rows(head, *lines) + measured(result["facts"])


def sentences() -> str:
    result = stored("sentences")
    sets = {"genia": "GENIA", "ddi": "DDI", "hoc": "HoC", "hoc_as_published": "HoC, as published"}
    lines = [
        (name, *(f"{part[key]['f1']:.2f}" for key in sets), f"{part['mb_per_s']} MB/s")
        for name, part in sorted(result["splitters"].items(), key=lambda item: -item[1]["genia"]["f1"])
    ]
    counts = tuple(f"{result['text'][key]['boundaries']:,}" for key in ("genia", "ddi", "hoc", "hoc"))
    head = ("splitter, boundary F1", *sets.values(), "throughput")
    return rows(head, ("number of boundaries", *counts, ""), *lines) + measured(result["facts"])


TABLES = {made.__name__: made for made in (read_speed, memory, jats_recall, sentences)}
