"""Copies numbers from results/*.json into the tables of README and docs, between their marks; recipes' keys too.

python benchmarks/tables.py            write the tables
python benchmarks/tables.py --check    exit with 1 if one is out of date
"""

import ast
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lexome.recipe.stages import STAGES
from lexome.train.study.files import read_outcome
from lexome.train.study.table import MEASURES, grid, remarks
from recipe_tables import recipe_table

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rows(*lines: tuple[object, ...]) -> str:
    """A Markdown table whose first line is its head."""
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *body])


def measured(facts: dict[str, Any]) -> str:
    """Where and when, for the line below a table."""
    packages = "".join(f", {name} {version}" for name, version in facts["packages"].items())
    return f"\n\n{facts['date']}, {facts['cpu']}, {facts['cores']} cores, Python {facts['python']}{packages}"


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


def install_size() -> str:
    result = stored("install_size")
    largest = ", ".join(f"{name} {size}" for name, size in list(result["largest"].items())[:3])
    return rows(
        ("light package with all it needs", "of which", "its model", "`lexome --help`"),
        (f"{result['megabytes']} MB", f"{largest} MB", f"{result['model_megabytes']} MB", f"{result['help_s']} s"),
    ) + measured(result["facts"])


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
        lines.append((f"`lexome learn-vocab`, {name}", "its sample", *_cost(part, "")))
    for name, part in result["shard"].items():
        rate = f"{part['tokens_per_s'] / 1e6:.2f} M tokens/s, {part['bytes_per_token']} bytes a token"
        lines.append((f"`lexome shard`, {name}", f"{part['tokens'] / 1e6:,.0f} M tokens", *_cost(part, rate)))
    head = ("verb", "what", "seconds", "rate", "largest process")
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
    """Core hours and disk for all of PubMed, from the rates of the small corpus."""
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
            "build: as much text of PMC",
            f"{pmc_hours:,.0f}",
            f"{text * result['records_bytes'] / built / 1e9:,.0f} GB of records",
        ),
        (
            "shard: both",
            f"{shard_hours:,.0f}",
            f"{tokens * wordpiece['bytes_per_token'] / 1e9:,.0f} GB for {tokens / 1e9:,.1f} B tokens",
        ),
    ]
    return rows(("work", "core hours, extrapolated", "disk, extrapolated"), *lines)


# Lewis et al. 2020 count 22 million abstracts in 27 GB; the rest of the 37 million citations are taken to be as long.
PUBMED_CITATIONS = 37_000_000
PUBMED_BYTES_A_CITATION = 27e9 / 22e6


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
        lines.append((f"masking, {unit}s", f"{rate / 1e6:.1f} M tokens/s", "", ""))
    return rows(("work on one core", "Lexome", "peer", "ratio"), *lines) + measured(result["facts"])


def near_duplicates() -> str:
    lines = [
        (f"{part['documents']:,}", f"{part['words']:,}", f"{part['removed']:,}", part["seconds"], part["us_per_word"])
        for part in stored("corpus_speed")["near_duplicates"]
    ]
    return rows(("documents", "words", "near duplicates", "seconds", "microseconds a word"), *lines)


def vocab_report() -> str:
    result = stored("vocab_report")
    lines = [
        (
            row["name"],
            f"{row['pieces']:,}",
            f"{row['text']['pieces_per_word']:.3f}",
            *(f"{row['entities'][name]['pieces_per_word']:.3f}" for name in result["paper"]),
            row["symbols_whole"],
            row["symbols_spelt"],
            len(row["symbols_unknown"]),
        )
        for row in result["vocabularies"]
    ]
    head = ("vocabulary", "pieces", "text", "BC5-chem", "BC5-disease", "symbols whole", "in bytes", "unknown")
    return rows(head, *lines) + measured(result["facts"])


def break_up_definitions() -> str:
    result = stored("vocab_report")
    paper = ("the paper's BERT cased", *result["paper"].values())
    lines = [(way, *(f"{found[name]:.3f}" for name in result["paper"])) for way, found in result["definitions"].items()]
    return rows(("counted as", "BC5-chem", "BC5-disease"), paper, *lines)


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
    head = ("recipe", "pieces", "processor time", "peak memory", "BC5-chem", "BC5-disease")
    return rows(head, *lines) + measured(result["facts"])


def model_speed() -> str:
    parts = stored("model_speed")
    columns = [(what, library) for what, part in parts.items() for library in part["libraries"]]
    shapes = next(iter(next(iter(parts.values()))["libraries"].values()))
    lines = [
        (
            shape,
            *(f"{parts[what]['libraries'][library][shape]['times_bert_base']}×" for what, library in columns),
            *(f"{part['paper'][shape]}×" if shape in part["paper"] else "" for part in parts.values()),
        )
        for shape in shapes
    ]
    head = ("shape", *(f"{what}, {library}" for what, library in columns), *(f"{what}, the paper" for what in parts))
    where = "".join(f"{measured(part['facts'])} ({what}, {part['device']})" for what, part in parts.items())
    return rows(head, *lines) + where


def onnx_speed() -> str:
    parts = stored("onnx_speed")
    columns = [(shape, threads) for shape in next(iter(parts.values()))["shapes"] for threads in parts]
    ways = next(iter(next(iter(parts.values()))["shapes"].values()))
    lines = [(way, *(f"{parts[threads]['shapes'][shape][way]:,}" for shape, threads in columns)) for way in ways]
    head = ("tokens/s", *(f"{shape}, {threads}" for shape, threads in columns))
    return rows(head, *lines) + measured(next(iter(parts.values()))["facts"])


def training_runs() -> str:
    runs = stored("training_runs")
    lines = [
        (
            name,
            part["shape"],
            Path(part["start"]).parent.name if part["stage"] == "distill" else Path(part["start"] or "random").name,
            "yes" if part["teacher"] else "no",
            f"{part['seconds'] / 60:.1f} min",
            f"{part['tokens'] / 1e6:,.0f} M",
            f"{part['held_out']['loss']:.3f}",
            f"{part['held_out']['accuracy']:.1%}",
        )
        for name, part in runs.items()
    ]
    head = ("run", "shape", "begun from", "teacher", "time", "tokens", "held-out loss", "right at masks")
    first = next(iter(runs.values()))
    where = f"{first['date']}, {first['hardware']['gpus'][0]}, torch {first['versions']['torch']}"
    return f"{rows(head, *lines)}\n\n{where}. On the GPU beside each: {first['shared']}"


def finetune_speed() -> str:
    result = stored("finetune_speed")
    lines = [
        (
            {"lexome": "`lexome finetune`", "trainer": "Hugging Face Trainer"}[name],
            f"{row['tokens_per_s']:,}",
            f"{row['times trainer']}×",
            f"{row['whole_s']} s",
            ", ".join(f"{100 * found:.1f}" for found in row["dev_f1"]),
            f"{row['memory_gb']} GB",
        )
        for name, row in result["rows"].items()
    ]
    said = f"{result['model']} on {result['set']}, {result['settings']['epochs']:.0f} epochs, {result['gpu']}"
    head = (said, "tokens/s", "ratio", "whole run", "dev F1 of each seed", "memory")
    return rows(head, *lines) + measured(result["facts"])


def pretrain_speed() -> str:
    result = stored("pretrain_speed")
    lines = [
        (
            shape,
            PRETRAIN_WAYS[name],
            f"{row['tokens_per_s'] / 1e6:.2f} M",
            f"{row['share_of_peak']:.0%}",
            *_times(row, found, "hf compiled, padded", "hf compiled, filled, no dropout"),
            f"{row['memory_gb']:.0f} GB",
        )
        for shape, found in result["shapes"].items()
        for name, row in found.items()
    ]
    head = ("shape", f"pre-training, {result['gpu']}", "tokens/s", "of the matrix product's rate")
    peers = ("beside Hugging Face compiled", "beside it on filled rows, no dropout", "memory")
    return rows((*head, *peers), *lines) + measured(result["facts"])


PRETRAIN_WAYS = {
    "hf eager, padded": "Hugging Face",
    "hf compiled, padded": "Hugging Face, compiled",
    "hf compiled, padded, no dropout": "Hugging Face, compiled, no dropout",
    "hf compiled, filled, no dropout": "Hugging Face, compiled, filled rows, no dropout",
    "lexome autocast": "`lexome pretrain`, autocast",
    "lexome bf16": "`lexome pretrain`, bf16",
}


def _times(row: dict[str, Any], found: dict[str, Any], *peers: str) -> tuple[str, ...]:
    """How many times as fast as each peer a row is; nothing where the peer was not measured."""
    rates = (found[peer]["tokens_per_s"] if peer in found else None for peer in peers)
    return tuple("" if rate is None else f"{row['tokens_per_s'] / rate:.2f}×" for rate in rates)


def attention_speed() -> str:
    result = stored("attention_speed")
    ways = ("lexome forward ms", "torch forward ms", "lexome both ms", "torch both ms")
    lines = [
        (row["shape"], row["text"], *(f"{row[way]:.2f} ms" for way in ways), f"{row['ratio']:.2f}×", row["difference"])
        for row in result["rows"]
    ]
    head = ("heads of", "rows", "forward, Lexome", "forward, torch", "with backward, Lexome", "with backward, torch")
    where = f"{measured(result['facts'])}, {result['gpu']}"
    return rows((*head, "ratio", "gradients differ by"), *lines) + where


def training_memory() -> str:
    result = stored("training_memory")
    lines = [
        (
            step["preset"],
            f"{step['tokens']:,}",
            "yes" if step["checkpointing"] else "no",
            f"{step['measured_gb']} GB",
            f"{step['formula_gb']} GB",
            step["ratio"],
        )
        for step in result["steps"]
    ]
    head = ("preset", "tokens", "checkpointing", f"measured, {result['gpu']}", "formula", "ratio")
    return rows(head, *lines) + measured(result["facts"])


def fang2023_quick() -> str:
    outcome = read_outcome(ROOT / "results" / "fang2023_quick.json")
    said = "\n".join(f"- {remark}" for remark in remarks(outcome))
    return f"{grid(outcome)}\n\n{said}"


def fang2023_short() -> str:
    """One measure of each set that is there, and the mean of the entity sets, beside three of the paper's models."""
    outcome = read_outcome(ROOT / "results" / "fang2023_quick.json")
    last = {row.task: row for row in outcome.rows if row.ours}
    lines = [
        (
            row.task,
            MEASURES[row.measure],
            *(f"{row.ours[model].value:.2f}" for model in outcome.models),
            *(f"{row.paper[model]:.2f}" for model in SHORT_PEERS),
        )
        for row in last.values()
    ]
    mean = next(mean for mean in outcome.means if mean.name == "NER")
    means = (*(mean.ours[model] for model in outcome.models), *(mean.paper[model] for model in SHORT_PEERS))
    lines.append((f"mean of {len(mean.of)} entity sets", "F1", *(f"{number:.2f}" for number in means)))
    head = ("set", "measure", *outcome.models, *(f"paper: {model}" for model in SHORT_PEERS))
    return f"{rows(head, *lines)}\n\n{outcome.made['date']}, {outcome.made['hardware']}, torch {outcome.made['torch']}"


SHORT_PEERS = ("BioBERT-v1.1", "Bioformer-8L", "PubMedBERT-abs")


def seed_spread() -> str:
    return _seeds(stored("seed_spread"), mean=True)


def outputs_spread() -> str:
    return _seeds(stored("outputs_spread"), mean=True)


def pairs_spread() -> str:
    return _seeds(stored("pairs_spread"), mean=False)


def _seeds(result: dict[str, Any], *, mean: bool) -> str:
    lines: list[tuple[object, ...]] = []
    for model, found in result["models"].items():
        for name, part in found["sets"].items():
            test, dev = part["test"], part["dev"]
            each = ", ".join(f"{score:.2f}" for score in test["each"])
            ends = f"{test['least']:.2f} to {test['most']:.2f}"
            measure = MEASURES[part["measure"]]
            lines.append((model, name, measure, len(part["seeds"]), each, *_spread(test), ends, *_spread(dev)))
        over = found["mean_over_sets"]
        if mean:
            lines.append((model, "mean over sets", "", "", "", *_spread(over["test"]), "", *_spread(over["dev"])))
    head = ("model", "set", "measure", "seeds", "test, each", "mean", "sd", "least to most", "dev, mean", "sd")
    made = result["made"]
    where = f"{made['date']}, {made['hardware']['gpus'][0]}, torch {made['versions']['torch']}"
    return f"{rows(head, *lines)}\n\n{where}"


def _spread(part: dict[str, Any]) -> tuple[str, str]:
    return f"{part['mean']:.2f}", "" if part["sd"] is None else f"{part['sd']:.2f}"


def f1_minutes() -> str:
    """Minutes of pre-training, what they read, and what fine-tuning then comes to."""
    result = stored("f1_minutes")
    names = {"start": "gte-small as it is", "shipped": "models/lexome-12x384"}
    loops = {"lexome": "lexome pretrain", "trainer": "Hugging Face's Trainer"}
    lines = []
    for name, run in sorted(result["runs"].items(), key=lambda item: (item[1]["minutes"], item[0])):
        tokens = f"{run['tokens'] / 1e6:,.0f} M" if "tokens" in run else ""
        seeds = ", ".join(f"{mean:.2f}" for mean in run["each"])
        said = names.get(name) or loops[name.split("-")[0]]
        lines.append((f"{run['minutes']:g}", said, tokens, f"{run['mean_f1']:.2f}", seeds))
    made = result["facts"]
    versions = ", ".join(f"{name} {made['packages'][name]}" for name in ("torch", "transformers"))
    where = f"{made['date']}, {made['gpu']}, {versions}"
    return f"{rows(('minutes', 'by', 'tokens', 'mean F1 on dev', 'each seed'), *lines)}\n\n{where}"


def encoders() -> str:
    """Encoders made in different ways: minutes, tokens, held-out loss, and F1 for each seed."""
    result = stored("encoders")
    lines: list[tuple[str, ...]] = []
    made = [row["facts"] for row in result["encoders"].values() if "facts" in row]
    for row in result["encoders"].values():
        tokens = f"{row['tokens'] / 1e6:,.0f} M" if "tokens" in row else ""
        loss = f"{row['held_out']['loss']:.3f}" if "held_out" in row else ""
        seeds = ", ".join(f"{mean:.2f}" for mean in row["mean_f1"])
        recipe = " ".join(f"`{said}`" for said in (row["recipe"], *row["changes"])) if "recipe" in row else ""
        minutes = f"{row['minutes']:g}" if row["minutes"] == row["minutes_in_all"] else f"+ {row['minutes']:g}"
        lines.append((row["shape"], row["done"], recipe, minutes, tokens, loss, seeds))
    head = ("shape", "encoder", "recipe", "minutes", "tokens", "held-out loss", "mean F1 on dev, each seed")
    dates = " and ".join(sorted({facts["date"] for facts in made}))
    where = f"{dates}, {made[0]['gpu']}, torch {made[0]['packages']['torch']}"
    return f"{rows(head, *lines)}\n\n{where}"


def window_independence() -> str:
    result = stored("window_independence")
    lines = [
        (name, f"{part['windows']:,}", f"{part['mentions']:,}", f"{part['different']:,}", f"{part['share']:.2%}")
        for name, part in (("where the text says", result["anchored"]), ("counted from the beginning", result["fixed"]))
    ]
    return rows(("windows fall", "windows", "mentions", "different", "share"), *lines) + measured(result["facts"])


def default_scores() -> str:
    """The default model on the seven entity sets, beside models of one set each and the paper's."""
    result, outcome = stored("default_scores"), read_outcome(ROOT / "results" / "fang2023_quick.json")
    (single,) = stored("seed_spread")["models"].values()
    paper = {row.task: row.paper for row in outcome.rows}
    lines: list[tuple[str, ...]] = []
    columns: list[list[float]] = []
    for name, part in result["seven"].items():
        columns.append(
            [part["own"], single["sets"][name]["test"]["mean"], *(paper[name][peer] for peer in SHORT_PEERS)]
        )
        lines.append((name, *(f"{held:.1f}" for held in columns[-1])))
    means = [sum(column) / len(column) for column in zip(*columns, strict=True)]
    lines.append(("mean", *(f"{held:.2f}" for held in means)))
    head = ("test F1", "in one pass", "lexome-12x384, one set each", *(f"paper: {peer}" for peer in SHORT_PEERS))
    return rows(head, *lines) + measured(result["facts"])


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


def source_map() -> str:
    """Every module with the first line of its docstring, which is its duty."""
    package = ROOT / "src" / "lexome"
    lines = ["```", "src/lexome/"]
    for path in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        depth = len(path.relative_to(package).parts)
        name = f"{path.parent.name}/" if path.name == "__init__.py" and depth > 1 else path.name
        indent = "  " * (depth - 1 if name.endswith("/") else depth)
        lines.append(f"{indent + name:<26} {duty(path)}")
    return "\n".join([*lines, "```"])


def duty(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.split("\n")[0].rstrip(".")


def recipe_keys(stage: str) -> str:
    """Every key of a stage's recipes."""
    return rows(*recipe_table(stage))


TABLES: dict[str, Callable[[], str]] = {
    "annotate_speed": annotate_speed,
    "attention_speed": attention_speed,
    "break_up_definitions": break_up_definitions,
    "vocab_learning": vocab_learning,
    "vocab_report": vocab_report,
    "corpus_build": corpus_build,
    "corpus_extrapolated": corpus_extrapolated,
    "corpus_speed": corpus_speed,
    "corpus_table": corpus_table,
    "near_duplicates": near_duplicates,
    "default_scores": default_scores,
    "f1_minutes": f1_minutes,
    "encoders": encoders,
    "fang2023_quick": fang2023_quick,
    "fang2023_short": fang2023_short,
    "finetune_speed": finetune_speed,
    "install_size": install_size,
    "jats_recall": jats_recall,
    "map": source_map,
    "memory": memory,
    "model_speed": model_speed,
    "onnx_speed": onnx_speed,
    "pretrain_speed": pretrain_speed,
    "outputs_spread": outputs_spread,
    "pairs_spread": pairs_spread,
    "read_speed": read_speed,
    "seed_spread": seed_spread,
    "sentences": sentences,
    "serve_load": serve_load,
    "training_memory": training_memory,
    "training_runs": training_runs,
    "window_independence": window_independence,
    **{f"recipe_{stage.replace('-', '_')}": partial(recipe_keys, stage) for stage in STAGES},
}


def stored(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def filled(page: str) -> str:
    """The page with each table made anew."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", page)


def main() -> int:
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        page = path.read_text()
        if filled(page) != page:
            stale.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(filled(page))
    for path in stale:
        print(f"{path}: {'out of date; run make tables' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
