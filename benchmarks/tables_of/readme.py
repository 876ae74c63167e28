"""The two tables of README: scores of the default model, and throughput beside peers; at most eight rows each."""

from typing import Any

from tables_of.results import rows, stored

PUBLISHED = ("BioBERT-v1.1", "Bioformer-8L", "PubMedBERT-abs")


def readme_quality() -> str:
    """The default model on seven datasets, beside fine-tuned encoders: ours, and those that Fang et al. 2023 print."""
    default = stored("default_scores")["seven"]
    (encoder,) = stored("seed_spread")["models"].values()
    published = {row["task"]: row["paper"] for row in stored("fang2023_quick")["rows"]}
    scores = {
        name: [
            part["own"],
            encoder["sets"][name]["test"]["mean"],
            *(published[name][model] for model in PUBLISHED),
        ]
        for name, part in default.items()
    }
    means = [sum(column) / len(column) for column in zip(*scores.values(), strict=True)]
    lines = [(name, *(f"{score:.1f}" for score in each)) for name, each in (*scores.items(), ("**mean**", means))]
    head = ("entity F1, test", "default model", "lexome-12x384, fine-tuned", *(f"{name} ¹" for name in PUBLISHED))
    return rows(head, *lines)


def readme_speed() -> str:
    """Throughput of each stage beside a peer that was measured in the same run on the same machine."""
    annotating = stored("annotate_speed")
    pretraining, finetuning, reading = stored("pretrain_speed"), stored("finetune_speed"), stored("read_speed")
    lines = [
        _annotating("annotate, default model, all types, no linking", "lexome", annotating["default"]["ways"]),
        _annotating("the same, with linking", "lexome, with linking", annotating["default"]["ways"]),
        _annotating_on_gpu(stored("gpu_annotate")),
        _pretraining(pretraining["again"][-1], "8x512", "hf compiled, padded", "transformers, compiled"),
        _pretraining(pretraining, "8x512", "hf compiled, filled, no dropout", "the same, full sequences, no dropout"),
        _pretraining(pretraining, "12x768", "hf compiled, padded", "transformers, compiled"),
        _finetuning(finetuning),
        (
            "read PubMed XML",
            "1 core",
            f"{reading['pubmed_cold']['lexome_mb_per_s']:.0f} MB/s",
            f"pubmed_parser: {reading['pubmed_cold']['pubmed_parser_mb_per_s']:.0f} MB/s",
            f"{reading['pubmed_cold']['ratio']:.1f}×",
        ),
    ]
    return rows(("stage", "hardware", "Lexome", "peer, same run", "ratio"), *lines)


def _annotating(stage: str, way: str, ways: dict[str, Any]) -> tuple[str, ...]:
    lexome, pipeline = (ways[name]["tokens_per_second"] for name in (way, "pipeline"))
    peer = f"transformers pipeline: {pipeline:,} tokens/s"
    return (stage, "1 core", f"{lexome:,} tokens/s", peer, f"{lexome / pipeline:.1f}×")


def _annotating_on_gpu(result: dict[str, Any]) -> tuple[str, ...]:
    lexome, pipeline = (result[name]["tokens_per_second"] for name in ("bioc-xml", "pipeline"))
    return (
        "annotate PubMed XML, files to files",
        f"{result['device'].removeprefix('NVIDIA ')}, {result['facts']['cores']} cores",
        f"{lexome:,} tokens/s",
        f"transformers pipeline, texts alone: {pipeline:,} tokens/s",
        f"{lexome / pipeline:.0f}×",
    )


def _pretraining(result: dict[str, Any], shape: str, peer: str, name: str) -> tuple[str, ...]:
    lexome, other = (result["shapes"][shape][way]["tokens_per_s"] for way in ("lexome bf16", peer))
    layers, width = shape.split("x")
    return (
        f"pre-train {layers} layers × {width}",
        result["gpu"].removeprefix("NVIDIA "),
        f"{lexome / 1e6:.2f} M tokens/s",
        f"{name}: {other / 1e6:.2f} M tokens/s",
        f"{lexome / other:.1f}×",
    )


def _finetuning(result: dict[str, Any]) -> tuple[str, ...]:
    """The run with the median speedup: the Trainer's throughput varies from run to run."""
    by_ratio = sorted((result, *result["again"]), key=lambda run: run["rows"]["lexome"]["times trainer"])
    run = by_ratio[len(by_ratio) // 2]
    lexome, trainer = (run["rows"][name]["tokens_per_s"] for name in ("lexome", "trainer"))
    return (
        f"fine-tune on {run['set']}, median of {len(by_ratio)} runs",
        run["gpu"].removeprefix("NVIDIA "),
        f"{lexome:,} tokens/s",
        f"transformers Trainer: {trainer:,} tokens/s",
        f"{lexome / trainer:.1f}×",
    )


TABLES = {table.__name__: table for table in (readme_quality, readme_speed)}
