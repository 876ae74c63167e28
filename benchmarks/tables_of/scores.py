"""Tables of scores: the default model's, encoders', a paper's experiments again, and how far seeds lie apart."""

import tomllib
from typing import Any

from lexome.reproduce.tables import METRICS, markdown_table, notes, read_result
from tables_of.results import ROOT, measured, rows, stored

SHORT_PEERS = ("BioBERT-v1.1", "Bioformer-8L", "PubMedBERT-abs")


def default_scores() -> str:
    """The default model on the seven entity datasets, next to single-dataset models and the paper's."""
    result, outcome = stored("default_scores"), read_result(ROOT / "results" / "fang2023_quick.json")
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
    head = (
        "test F1",
        "default model",
        "lexome-12x384, one model per dataset",
        *(f"paper: {peer}" for peer in SHORT_PEERS),
    )
    return rows(head, *lines) + measured(result["facts"])


def fang2023_quick() -> str:
    outcome = read_result(ROOT / "results" / "fang2023_quick.json")
    said = "\n".join(f"- {remark}" for remark in notes(outcome))
    return f"{markdown_table(outcome)}\n\n{said}"


def fang2023_short() -> str:
    """One metric per available dataset, and the mean of the entity datasets, next to three of the paper's models."""
    outcome = read_result(ROOT / "results" / "fang2023_quick.json")
    last = {row.task: row for row in outcome.rows if row.ours}
    lines = [
        (
            row.task,
            METRICS[row.metric],
            *(f"{row.ours[model].value:.2f}" for model in outcome.models),
            *(f"{row.paper[model]:.2f}" for model in SHORT_PEERS),
        )
        for row in last.values()
    ]
    mean = next(mean for mean in outcome.averages if mean.name == "NER")
    means = (*(mean.ours[model] for model in outcome.models), *(mean.paper[model] for model in SHORT_PEERS))
    lines.append((f"mean of {len(mean.of)} entity datasets", "F1", *(f"{number:.2f}" for number in means)))
    head = ("dataset", "metric", *outcome.models, *(f"paper: {model}" for model in SHORT_PEERS))
    made = outcome.environment
    return f"{rows(head, *lines)}\n\n{made['date']}, {made['hardware']}, torch {made['torch']}"


def f1_minutes() -> str:
    """Minutes and tokens of pre-training, and F1 after fine-tuning."""
    result = stored("f1_minutes")
    names = {"start": "gte-small, no further training", "shipped": "models/lexome-12x384"}
    loops = {"lexome": "lexome pretrain", "trainer": "Hugging Face Trainer"}
    lines = []
    for name, run in sorted(result["runs"].items(), key=lambda item: (item[1]["minutes"], item[0])):
        tokens = f"{run['tokens'] / 1e6:,.0f} M" if "tokens" in run else ""
        seeds = ", ".join(f"{mean:.2f}" for mean in run["each"])
        said = names.get(name) or loops[name.split("-")[0]]
        lines.append((f"{run['minutes']:g}", said, tokens, f"{run['mean_f1']:.2f}", seeds))
    made = result["facts"]
    versions = ", ".join(f"{name} {made['packages'][name]}" for name in ("torch", "transformers"))
    where = f"{made['date']}, {made['gpu']}, {versions}"
    return f"{rows(('minutes', 'training', 'tokens', 'mean dev F1', 'by seed'), *lines)}\n\n{where}"


def encoders() -> str:
    """Encoders trained in different ways: minutes, tokens, held-out loss, and F1 of each seed."""
    result = stored("encoders")
    lines: list[tuple[str, ...]] = []
    made = [row["facts"] for row in result["encoders"].values() if "facts" in row]
    for row in result["encoders"].values():
        tokens = f"{row['tokens'] / 1e6:,.0f} M" if "tokens" in row else ""
        loss = f"{row['held_out']['loss']:.3f}" if "held_out" in row else ""
        seeds = ", ".join(f"{mean:.2f}" for mean in row["mean_f1"])
        # Results keep the key names of their time.
        changes = [change.replace("budget=", "time_budget=") for change in row.get("changes", ())]
        recipe = " ".join(f"`{part}`" for part in (row["recipe"], *changes)) if "recipe" in row else ""
        minutes = f"{row['minutes']:g}" if row["minutes"] == row["minutes_in_all"] else f"+ {row['minutes']:g}"
        lines.append((row["shape"], row["done"], recipe, minutes, tokens, loss, seeds))
    head = ("shape", "encoder", "recipe", "minutes", "tokens", "held-out loss", "mean dev F1, by seed")
    dates = " and ".join(sorted({facts["date"] for facts in made}))
    where = f"{dates}, {made[0]['gpu']}, torch {made[0]['packages']['torch']}"
    return f"{rows(head, *lines)}\n\n{where}"


def entity_stage() -> str:
    """Entity F1 on dev after a stage on all entity datasets at once, beside encoders without it; mean of two seeds."""
    result, others = stored("sentence_tasks"), stored("encoders")["encoders"]
    found = {row["set"]: row for row in result["rows"] if row["encoder"] == "default-teacher"}
    run = result["pretraining"]["encoder-420"]
    lines = [
        ("one run of `make encoder`", others["encoder-1"]["minutes_in_all"], others["encoder-1"]["f1"]),
        ("`models/lexome-12x384`", others["shipped-1"]["minutes_in_all"], others["shipped-1"]["f1"]),
        (
            "a shorter run, then all entity datasets",
            round(run["seconds"] / 60, 1),
            {name: row["dev_mean"] for name, row in found.items()},
        ),
    ]
    table = [
        (name, f"{minutes:.1f}", *(f"{scores[one]:.1f}" for one in found), f"{sum(scores.values()) / len(scores):.2f}")
        for name, minutes, scores in lines
    ]
    made = next(iter(found.values()))
    where = f"Last row: {made['date']}, {result['hardware']}"
    return f"{rows(('encoder, outputs rescaled to 1', 'minutes of pre-training', *found, 'mean'), *table)}\n\n{where}"


def seed_spread() -> str:
    return _seeds(stored("seed_spread"), mean=True)


def outputs_spread() -> str:
    return _seeds(stored("outputs_spread"), mean=True)


def pairs_spread() -> str:
    return _seeds(stored("pairs_spread"), mean=False)


def two_rates() -> str:
    """HoC with one learning rate and with a separate head learning rate, next to the paper's models."""
    result = stored("two_rates")
    [row] = [row for row in stored("fang2023_quick")["rows"] if row["task"] == "HoC"]
    [(model, found)] = result["models"].items()
    part = found["sets"]["HoC"]
    one = _recipe("studies/fang2023.toml", "grid")
    two = _recipe("benchmarks/two_rates.toml", "texts")
    rates = f"{two['optimizer']['lr']:g}, head {two['optimizer']['head_lr']:g}"
    papers = row["paper"].values()
    lines = [
        (
            f"{one['grid']['lr'][0]:g}",
            one["grid"]["batch"][0],
            f"up to {one['epochs']}",
            f"{row['ours'][model]['value']:.2f}",
            "",
        ),
        (rates, two["batch"]["sequences"], two["epochs"], f"{part['test']['mean']:.2f}", f"{part['dev']['mean']:.2f}"),
        ("the paper's models", "", "", f"{min(papers):.2f} to {max(papers):.2f}", ""),
    ]
    made = result["made"]
    where = f"Second row: {made['date']}, {made['hardware']['cores']} cores, no GPU, torch {made['versions']['torch']}"
    return f"{rows(('HoC, learning rate', 'batch size', 'epochs', 'test F1', 'dev F1'), *lines)}\n\n{where}"


def _recipe(study: str, protocol: str) -> dict[str, Any]:
    """The recipe of a study's protocol."""
    recipe: dict[str, Any] = tomllib.loads((ROOT / study).read_text())["protocols"][protocol]["recipe"]
    return recipe


def _seeds(result: dict[str, Any], *, mean: bool) -> str:
    lines: list[tuple[object, ...]] = []
    for model, found in result["models"].items():
        for name, part in found["sets"].items():
            test, dev = part["test"], part["dev"]
            each = ", ".join(f"{score:.2f}" for score in test["each"])
            ends = f"{test['least']:.2f} to {test['most']:.2f}"
            measure = METRICS[part["measure"]]
            lines.append((model, name, measure, len(part["seeds"]), each, *_spread(test), ends, *_spread(dev)))
        over = found["mean_over_sets"]
        if mean:
            lines.append((model, "mean over datasets", "", "", "", *_spread(over["test"]), "", *_spread(over["dev"])))
    head = ("model", "dataset", "metric", "seeds", "test, by seed", "mean", "SD", "range", "dev mean", "dev SD")
    made = result["made"]
    where = f"{made['date']}, {made['hardware']['gpus'][0]}, torch {made['versions']['torch']}"
    return f"{rows(head, *lines)}\n\n{where}"


def _spread(part: dict[str, Any]) -> tuple[str, str]:
    return f"{part['mean']:.2f}", "" if part["sd"] is None else f"{part['sd']:.2f}"


def sentence_heads() -> str:
    """Heads on sentence-level tasks with the same encoder: test scores, and how many seeds they are the mean of."""
    result = stored("sentence_tasks")
    lines = [
        (result["heads"][head], *(_test_score(result, name, "lexome-12x384", head) for name in result["protocols"]))
        for head in ("transformers", "first-edition", "no-probe", "probe", "probe-layer")
    ]
    return f"{rows(('head', *result['protocols']), *lines)}\n\n{result['date']}, {result['hardware']}"


def sentence_objectives() -> str:
    """Encoders continued with sentence-level objectives: throughput, held-out loss, and scores on tasks."""
    result = stored("sentence_tasks")
    lines = []
    for name in ("control", "contrastive", "distillation", "distillation + contrastive"):
        run = result["pretraining"][name]
        entities = [row["dev_mean"] for row in result["rows"] if row["encoder"] == name and row["head"] == "token"]
        tasks = [_test_score(result, task, name, "probe-layer") for task in result["protocols"]]
        speed, loss = f"{run['tokens_per_s'] / 1e6:.2f} M", f"{run['held_out']['loss']:.3f}"
        lines.append((name, speed, loss, f"{sum(entities) / len(entities):.2f}", *tasks))
    head = ("objective beside masked words", "tokens/s", "held-out loss", "entities, dev F1", *result["protocols"])
    return f"{rows(head, *lines)}\n\n{result['date']}, {result['hardware']}"


def sentence_encoders() -> str:
    """lexome-12x384 beside an encoder with sentence-level objectives from the first step on; the default head."""
    result = stored("sentence_tasks")
    lines = []
    for name, title in (("lexome-12x384", "`models/lexome-12x384`"), ("encoder", "`recipes/pretrain/encoder.toml`")):
        tasks = [_test_score(result, task, name, "probe") for task in result["protocols"]]
        if not tasks[-1]:
            tasks[-1] = _test_score(result, "DDI-2013", name, "probe-layer")
        lines.append((title, *tasks))
    run = result["pretraining"]["encoder"]
    minutes, rate = run["seconds"] / 60, run["tokens_per_s"] / 1e6
    seen = f"{run['tokens'] / 1e6:.0f} M tokens in {minutes:.0f} minutes, {rate:.2f} M tokens/s"
    return (
        f"{rows(('encoder', *result['protocols']), *lines)}\n\nSecond row: {seen}; {run['date']}, {result['hardware']}"
    )


def _test_score(result: dict[str, Any], task: str, encoder: str, head: str) -> str:
    wanted = {"set": task, "encoder": encoder, "head": head}
    found = [row for row in result["rows"] if wanted.items() <= row.items() and "test_mean" in row]
    return f"{found[0]['test_mean']:.2f} ({len(found[0]['seeds'])})" if found else ""


def retrieval() -> str:
    """Recall at 1 and mean reciprocal rank of each encoder, with the better of the two poolings."""
    result = stored("retrieval")
    named = {
        "titles": "title to abstract",
        "bioasq": "BioASQ question to snippet",
        "medquad": "MedQuAD question to answer",
    }
    encoders = dict.fromkeys(row["encoder"] for row in result["rows"])
    lines = []
    for encoder in encoders:
        best = [
            max(
                (row for row in result["rows"] if (row["encoder"], row["set"]) == (encoder, name)),
                key=lambda row: row["recall@1"],
            )
            for name in named
        ]
        lines.append((encoder, *(f"{row['recall@1']:.1f} / {row['mrr']:.1f} ({row['pooling']})" for row in best)))
    sizes = {row["set"]: row["candidates"] for row in result["rows"]}
    head = ("encoder", *(f"{title}, {sizes[name]:,} candidates" for name, title in named.items()))
    return f"{rows(head, *lines)}\n\n{result['date']}, {result['hardware']}"


TABLES = {
    made.__name__: made
    for made in (
        default_scores,
        fang2023_quick,
        fang2023_short,
        f1_minutes,
        encoders,
        entity_stage,
        seed_spread,
        outputs_spread,
        pairs_spread,
        two_rates,
        sentence_heads,
        sentence_objectives,
        sentence_encoders,
        retrieval,
    )
}
