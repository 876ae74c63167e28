"""Tables about annotation: throughput, service load, window independence and install size."""

from tables_of.results import measured, rows, stored

# Smaller differences in F1 are not shown.
SMALLEST_DIFFERENCE = 0.05


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
                    f"{way['times_pipeline']:.2f}×",
                    f"{way['times_bioformer']:.0f}×",
                    f"{way['share_of_matmul_peak']:.0%}",
                    f"{100 * result['f1'][name]:.1f}",
                )
            )
    head = ("cores", "system", "tokens/s", "tokens/s per core", "vs. pipeline", "vs. Bioformer", "of fp32 peak", "F1")
    return rows(head, *lines) + measured(result["facts"])


def annotate_default() -> str:
    """CPU time of the default model on one core, all types."""
    result = stored("annotate_speed")["default"]
    lines = [
        (
            name.replace("pipeline", "transformers pipeline"),
            f"{way['tokens_per_second']:,}",
            f"{way['times_pipeline']:.2f}×",
        )
        for name, way in result["ways"].items()
    ]
    return rows(("system", "tokens/s of CPU time", "vs. pipeline"), *lines) + measured(result["facts"])


def bulk_stages() -> str:
    """CPU time of each stage of bulk annotation on one core, without the model."""
    result = stored("bulk_stages")
    part = result["stages"]
    lines = [(name, f"{taken:.2f}", f"{1 / taken:.2f} M") for name, taken in part["microseconds_per_token"].items()]
    totals = [
        (f"**to {name.replace(' linked', ', with linking')}**", f"{1e6 / rate:.2f}", f"{rate / 1e6:.2f} M")
        for name, rate in part["tokens_per_second"].items()
    ]
    return rows(("stage", "µs per token", "tokens/s"), *lines, *totals) + measured(result["facts"])


def gpu_annotate() -> str:
    """Bulk annotation on a GPU, from PubMed XML to BioC files, beside transformers' pipeline."""
    result = stored("gpu_annotate")
    pipeline = result["pipeline"]["tokens_per_second"]
    lines = [("transformers pipeline, texts alone", "", f"{pipeline:,}", "1.0×", "", "")]
    # The first run is as short as the one with linking: in both, the start of the workers takes much of the time.
    for name, said in (
        ("probe", "`lexome annotate`"),
        ("bioc-xml", "`lexome annotate`"),
        ("bioc-xml linked", "`lexome annotate`, with linking"),
    ):
        part = result[name]
        rate = part["tokens_per_second"]
        hours = f"{part['hours_for_40_million']:.1f} h"
        lines.append(
            (
                said,
                f"{part['megabytes']:.0f} MB",
                f"{rate:,}",
                f"{rate / pipeline:.1f}×",
                f"{part['device_busy']:.0%}",
                hours,
            )
        )
    head = (f"system, {result['device']}", "PubMed XML", "tokens/s", "vs. pipeline", "GPU busy", "40 million abstracts")
    return rows(head, *lines) + measured(result["facts"])


def annotator_rules() -> str:
    """F1 of the default model without and with its rules, on development and test splits."""
    result = stored("annotator_rules")
    development, test = result["development"], result["test"]
    lines = []
    for dataset, types in development["none"].items():
        for type_, before in types.items():
            scores = [before, development["all"][dataset][type_]]
            if dataset in test["none"]:
                scores += [test[name][dataset][type_] for name in ("none", "all")]
            cells = [f"{score:.1f}" for score in scores]
            lines.append((dataset, type_, *cells, *["–"] * (4 - len(cells))))
    head = ("dataset", "type", "dev, model alone", "dev, as returned", "test, model alone", "test, as returned")
    return rows(head, *lines) + measured(result["facts"])


def annotator_rules_each() -> str:
    """What each rule contributes: F1 with all rules minus F1 without it, where it is not zero."""
    result = stored("annotator_rules")
    development = result["development"]
    lines = []
    for name, scores in development.items():
        if name.startswith("without "):
            differences = [
                f"{dataset} {type_} {development['all'][dataset][type_] - score:+.1f}"
                for dataset, types in scores.items()
                for type_, score in types.items()
                if abs(development["all"][dataset][type_] - score) >= SMALLEST_DIFFERENCE
            ]
            rule = name.removeprefix("without ")
            counts = result["added"].get(rule, {}).values()
            added, correct = (sum(count[key] for count in counts) for key in ("added", "correct"))
            made = f"{added}, {correct} correct" if added else "–"
            lines.append((f"`{rule}`", ", ".join(differences) or "none", made))
    head = ("rule", "F1 on development sets, with minus without", "mentions added there")
    return rows(head, *lines)


def annotator_calibration() -> str:
    """Calibration error of what the default model returns, cross-fitted on development sets."""
    result = stored("annotator_rules")
    floors = result["min_scores"]
    lines = [
        (type_, f"{part['mentions']:,}", f"{part['ece_cross_fitted']:.3f}", f"{floors[type_]:g}")
        for type_, part in result["calibration"].items()
    ]
    return rows(("type", "mentions", "expected calibration error", "minimum score"), *lines)


def annotator_hard_sentences() -> str:
    """Precision and recall of the default model on hard sentences, alone and with rules."""
    result = stored("annotator_rules")["hard_sentences"]
    lines = []
    for type_, alone in result["none"].items():
        returned = result["all"][type_]
        cells = [f"{part[key]:.1f}" for part in (alone, returned) for key in ("precision", "recall", "f1")]
        lines.append((type_, f"{alone['mentions']:,}", *cells))
    head = (
        "type",
        "mentions",
        *(f"{key}, {kind}" for kind in ("alone", "with rules") for key in ("precision", "recall", "F1")),
    )
    return rows(head, *lines)


def serve_load() -> str:
    result = stored("serve_load")
    offline, latency, beside = result["offline_docs_per_s"], result["latency_s"], result["short_beside_books"]
    lines = [
        ("without HTTP, one process", f"{offline['one process']} abstracts/s"),
        ("without HTTP, one process per core", f"{offline['a process a core']} abstracts/s"),
        (
            f"service, {result['clients']} clients for {result['seconds']:.0f} s",
            f"{result['docs_per_s']} abstracts/s",
        ),
        ("service relative to the faster of the two", f"{result['part_of_offline']:.1%}"),
        ("errors", f"{result['errors']} of {result['requests']:,}"),
        ("latency: median, 95th and 99th percentile", f"{latency['p50']}, {latency['p95']}, {latency['p99']} s"),
        (
            f"latency of a sentence during {beside['books']} requests of {beside['book_characters']:,} characters",
            f"{beside['median_s']} s, maximum {beside['largest_s']} s (idle server: {beside['alone_s']} s)",
        ),
    ]
    return rows(("default model without linking, on two cores shared with the clients", ""), *lines) + measured(
        result["facts"]
    )


def onnx_speed() -> str:
    parts = stored("onnx_speed")
    columns = [(shape, threads) for shape in next(iter(parts.values()))["shapes"] for threads in parts]
    ways = next(iter(next(iter(parts.values()))["shapes"].values()))
    lines = [(way, *(f"{parts[threads]['shapes'][shape][way]:,}" for shape, threads in columns)) for way in ways]
    head = ("tokens/s", *(f"{shape}, {threads.replace('1 threads', '1 thread')}" for shape, threads in columns))
    return rows(head, *lines) + measured(next(iter(parts.values()))["facts"])


def window_independence() -> str:
    result = stored("window_independence")
    lines = [
        (name, f"{part['windows']:,}", f"{part['mentions']:,}", f"{part['different']:,}", f"{part['share']:.2%}")
        for name, part in (("content-defined", result["anchored"]), ("counted from the beginning", result["fixed"]))
    ]
    return rows(("window boundaries", "windows", "mentions", "changed", "fraction changed"), *lines) + measured(
        result["facts"]
    )


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


def relation_speed() -> str:
    """Pairs of concepts per second, all pairs in one pass beside one pass for each pair."""
    result = stored("relation_speed")
    names = {"one pass": "`document-relation`: one pass", "one pass a pair": "`relation`: one pass per pair"}
    lines = [
        (
            name,
            f"{result['tokens'][key]:,}",
            f"{result['pairs_per_second'][key]:,}",
            result["documents_per_second"][key],
        )
        for key, name in names.items()
    ]
    head = (
        f"{result['documents']} abstracts, {result['pairs']:,} pairs, one core",
        "tokens run",
        "pairs/s",
        "abstracts/s",
    )
    return rows(head, *lines) + measured(result["facts"])


def install_size() -> str:
    """The model is inside the lexome folder but not in the stored total; it is shown separately."""
    result = stored("install_size")
    model = result["model_megabytes"]
    terms = result.get("terms_megabytes", 0.0)  # measured since there is an index
    without = result["largest"] | {"lexome": result["largest"]["lexome"] - model - terms}
    largest = ", ".join(f"{name} {without[name]:.1f}" for name in sorted(without, key=lambda name: -without[name])[:3])
    return rows(
        ("light package with dependencies, without model", "largest parts", "model and names", "`lexome --help`"),
        (f"{result['megabytes']} MB", f"{largest} MB", f"{model + terms} MB", f"{result['help_s']} s"),
    ) + measured(result["facts"])


def extras_size() -> str:
    """What each extra downloads beside the light package, with and without the packages that only GPUs need."""
    result = stored("extras_size")
    lines = []
    for extra, part in result["extras"].items():
        largest = ", ".join(f"{name} {size:,.0f}" for name, size in part["largest"].items())
        gpu = f"{part['gpu_megabytes']:,}" if part["gpu_megabytes"] else "0"
        lines.append((f"`{extra}`", f"{part['megabytes']:,}", gpu, largest))
    head = ("extra", "MB", "of these, for NVIDIA GPUs only", "largest")
    light = ("(light package)", f"{result['light_megabytes']:,}", "0", "")
    return rows(head, light, *lines) + measured(result["facts"])


TABLES = {
    made.__name__: made
    for made in (
        extras_size,
        annotate_speed,
        annotate_default,
        bulk_stages,
        gpu_annotate,
        annotator_rules,
        annotator_rules_each,
        annotator_calibration,
        annotator_hard_sentences,
        serve_load,
        onnx_speed,
        window_independence,
        bulk_memory,
        relation_speed,
        install_size,
    )
}
