"""Tables about the corpus: contents, and the cost of building, sharding, masking and deduplication."""

from typing import Any

from tables_of.results import measured, rows, stored

# Lewis et al. 2020 count 22 million abstracts in 27 GB; the rest of the 37 million citations is assumed to be as long.
PUBMED_CITATIONS = 37_000_000
PUBMED_BYTES_A_CITATION = 27e9 / 22e6


def corpus_build() -> str:
    result = stored("corpus_build")
    build, citations = result["build"], result["citations"]
    total = sum(source["bytes"] for source in result["corpus"]["sources"])
    lines = [
        (
            "`lexome build`, JSON lines",
            f"{total / 1e6:,.0f} MB of text",
            *_cost(build, f"{total / 1e6 / build['seconds']:.1f} MB/s"),
        ),
        (
            "`lexome build`, PubMed XML",
            f"{citations['citations']:,} citations",
            *_cost(citations, f"{citations['citations_per_s']:,} citations/s"),
        ),
    ]
    for name, part in result["learn_vocab"].items():
        lines.append((f"`lexome learn-vocab`, {name}", "its training sample", *_cost(part, "")))
    for name, part in result["shard"].items():
        rate = f"{part['tokens_per_s'] / 1e6:.2f} M tokens/s, {part['bytes_per_token']} bytes per token"
        lines.append((f"`lexome shard`, {name}", f"{part['tokens'] / 1e6:,.0f} M tokens", *_cost(part, rate)))
    head = ("command", "input", "seconds", "throughput", "peak memory per process")
    return rows(head, *lines) + measured(result["facts"])


def _cost(part: dict[str, Any], rate: str) -> tuple[str, str, str]:
    return f"{part['seconds']:,}", rate, f"{part['peak_megabytes']:,} MB"


def corpus_table() -> str:
    result = stored("corpus_build")
    lines = [
        (
            source["name"],
            f"{source['read']:,}",
            f"{source['documents']:,}",
            f"{source['words']:,}",
            f"{source['bytes']:,}",
            ", ".join(f"{count:,} {reason}" for reason, count in source["drops"].items()),
        )
        for source in result["corpus"]["sources"]
    ]
    return rows(("source", "read", "kept", "words", "bytes", "dropped"), *lines) + measured(result["facts"])


def corpus_extrapolated() -> str:
    """Core hours and disk space for all of PubMed, from the throughput on the small corpus."""
    result = stored("corpus_build")
    cores = result["facts"]["cores"]
    citations = result["citations"]
    read_hours = PUBMED_CITATIONS / citations["citations_per_s"] * cores / 3600
    built = sum(source["bytes"] for source in result["corpus"]["sources"])
    text = PUBMED_CITATIONS * PUBMED_BYTES_A_CITATION
    pmc_hours = text / built * result["build"]["seconds"] * cores / 3600
    wordpiece = result["shard"]["wordpiece-cased-32k"]
    tokens = 2 * text * wordpiece["tokens"] / built
    shard_hours = tokens / wordpiece["tokens_per_s"] * cores / 3600
    lines = [
        ("build: PubMed", f"{read_hours:,.0f}", f"{text * result['records_bytes'] / built / 1e9:,.0f} GB of records"),
        (
            "build: PMC, the same amount of text",
            f"{pmc_hours:,.0f}",
            f"{text * result['records_bytes'] / built / 1e9:,.0f} GB of records",
        ),
        (
            "shard: both",
            f"{shard_hours:,.0f}",
            f"{tokens * wordpiece['bytes_per_token'] / 1e9:,.0f} GB for {tokens / 1e9:,.1f} B tokens",
        ),
    ]
    return rows(("step", "core hours, extrapolated", "disk, extrapolated"), *lines)


def corpus_speed() -> str:
    result = stored("corpus_speed")
    lines = [
        (
            f"sharding, {name.replace('_', ' ')}",
            f"{part['lexome_tokens_per_s'] / 1e6:.2f} M tokens/s",
            f"encode_batch alone: {part['encode_batch_tokens_per_s'] / 1e6:.2f} M",
            f"{part['ratio']}×",
        )
        for name, part in result["sharding"].items()
    ]
    for unit, rate in result["masking"]["tokens_per_s"].items():
        lines.append((f"{unit} masking", f"{rate / 1e6:.1f} M tokens/s", "", ""))
    return rows(("step, on one core", "Lexome", "peer", "ratio"), *lines) + measured(result["facts"])


def near_duplicates() -> str:
    lines = [
        (f"{part['documents']:,}", f"{part['words']:,}", f"{part['removed']:,}", part["seconds"], part["us_per_word"])
        for part in stored("corpus_speed")["near_duplicates"]
    ]
    return rows(("documents", "words", "near duplicates", "seconds", "microseconds per word"), *lines)


TABLES = {
    made.__name__: made for made in (corpus_build, corpus_table, corpus_extrapolated, corpus_speed, near_duplicates)
}
