"""Tables of annotating: speed in bulk and as a service, whether windows change mentions, and what is installed."""

from tables_of.results import measured, rows, stored


def annotate_speed() -> str:
    result = stored("annotate_speed")
    lines = []
    for cores, part in result["cores"].items():
        for name, way in part["ways"].items():
            lines.append(
                (
                    cores.replace("1 cores", "1 core"),
                    name,
                    f"{way['tokens_per_second']:,}",
                    f"{way['tokens_per_second_and_core']:,}",
                    f"{way['times_pipeline']:.2f}",
                    f"{way['times_bioformer']:.0f}",
                    f"{way['share_of_matmul_peak']:.0%}",
                    f"{100 * result['f1'][name]:.1f}",
                )
            )
    head = ("", "", "tokens/s", "a core", "times the pipeline", "times Bioformer's", "of the fp32 peak", "F1")
    return rows(head, *lines) + measured(result["facts"])


def serve_load() -> str:
    result = stored("serve_load")
    offline, latency, beside = result["offline_docs_per_s"], result["latency_s"], result["short_beside_books"]
    lines = [
        ("without a service, one process", f"{offline['one process']} abstracts/s"),
        ("without a service, a process a core", f"{offline['a process a core']} abstracts/s"),
        (
            f"the service, {result['clients']} clients for {result['seconds']:.0f} s",
            f"{result['docs_per_s']} abstracts/s",
        ),
        ("part of the faster", f"{result['part_of_offline']:.1%}"),
        ("errors", f"{result['errors']} of {result['requests']:,}"),
        ("latency, median, 95th and 99th percentile", f"{latency['p50']}, {latency['p95']}, {latency['p99']} s"),
        (
            f"a sentence beside {beside['books']} documents of {beside['book_characters']:,} characters",
            f"{beside['median_s']} s, at most {beside['largest_s']} s (alone {beside['alone_s']} s)",
        ),
    ]
    return rows(("the default model on two cores, clients on the same two", ""), *lines) + measured(result["facts"])


def onnx_speed() -> str:
    parts = stored("onnx_speed")
    columns = [(shape, threads) for shape in next(iter(parts.values()))["shapes"] for threads in parts]
    ways = next(iter(next(iter(parts.values()))["shapes"].values()))
    lines = [(way, *(f"{parts[threads]['shapes'][shape][way]:,}" for shape, threads in columns)) for way in ways]
    head = ("tokens/s", *(f"{shape}, {threads}" for shape, threads in columns))
    return rows(head, *lines) + measured(next(iter(parts.values()))["facts"])


def window_independence() -> str:
    result = stored("window_independence")
    lines = [
        (name, f"{part['windows']:,}", f"{part['mentions']:,}", f"{part['different']:,}", f"{part['share']:.2%}")
        for name, part in (("where the text says", result["anchored"]), ("counted from the beginning", result["fixed"]))
    ]
    return rows(("windows fall", "windows", "mentions", "different", "share"), *lines) + measured(result["facts"])


def bulk_memory() -> str:
    """Memory at the start and at the end of a long stream of documents."""
    result = stored("bulk_memory")
    return rows(
        ("documents", "tokens", "median, second tenth", "median, last tenth", "growth in the second half"),
        (
            f"{result['documents']:,}",
            f"{result['tokens']:,}",
            f"{result['median_mb_10_to_20_percent']} MB",
            f"{result['median_mb_last_10_percent']} MB",
            f"{result['growth_mb_in_second_half']} MB",
        ),
    ) + measured(result["facts"])


def install_size() -> str:
    """The model lies in the folder of lexome, and the total is stored without it: here it is a part of neither."""
    result = stored("install_size")
    model = result["model_megabytes"]
    without = result["largest"] | {"lexome": result["largest"]["lexome"] - model}
    largest = ", ".join(f"{name} {without[name]:.1f}" for name in sorted(without, key=lambda name: -without[name])[:3])
    return rows(
        ("light package with all it needs, without its model", "of which", "its model", "`lexome --help`"),
        (f"{result['megabytes']} MB", f"{largest} MB", f"{model} MB", f"{result['help_s']} s"),
    ) + measured(result["facts"])


TABLES = {
    made.__name__: made
    for made in (annotate_speed, serve_load, onnx_speed, window_independence, bulk_memory, install_size)
}
