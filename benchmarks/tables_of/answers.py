"""Tables of relations, search and questions: scores, latency, recall, and what readers do not know."""

from typing import Any

from tables_of.results import measured, rows, stored

# Of each dataset, the schema that it annotates.
RELATION_SETS = {"DrugProt": "DrugProt", "BC5CDR-CID": "CID", "BioRED-RE": "BioRED"}
SETS = {"titles": "title to abstract", "bioasq": "BioASQ question to document"}
RANKINGS = {"bm25": "words (BM25)", "vectors": "vectors", "both": "both"}
FUSIONS = {"engine": "reciprocal ranks, as the engine", "ranks": "reciprocal ranks", "scores": "scores from 0 to 1"}
TEXTS = {
    "alone": "abstracts of BioBERT's files, one by one",
    "together": "the same together",
    "snippets": "experts' snippets, together",
    "retrieved": "retrieved passages",
}
# By form, the metrics of BioASQ.
METRICS = {
    "factoid": ("strict", "lenient", "mrr"),
    "list": ("precision", "recall", "f1"),
    "yesno": ("macro_f1", "accuracy", "majority"),
}
# How the tables call them, where not by their key.
METRIC_NAMES = {
    "strict": "strict accuracy",
    "lenient": "lenient accuracy",
    "mrr": "MRR",
    "f1": "F1",
    "macro_f1": "macro F1",
}


def search_speed() -> str:
    """Latency of a search, by kind of query."""
    result = stored("search")
    speed = result["speed"]
    names = {"titles": "titles of abstracts", "questions": "BioASQ's questions", "words": "frequent words and names"}
    lines = [(name, f"{speed[f'{key}_median_ms']} ms", f"{speed[f'{key}_p95_ms']} ms") for key, name in names.items()]
    counts = f"{speed['documents']:,} abstracts, {speed['abstracts_per_second']:,} of them indexed per second"
    memory = f"{speed['index_peak_mb']} MB of memory to index, {speed['search_peak_mb']} to search"
    table = rows(("queries", "median", "95th percentile"), *lines)
    return f"{table}\n\n{counts}; {speed['index_mb']} MB on disk; {memory}{measured(result)}"


def search_recall() -> str:
    """Recall of ten documents by words, by vectors, and by both."""
    result = stored("search")
    lines = [
        (
            SETS[row["set"]],
            f"{row['candidates']:,}",
            RANKINGS[row["ranking"]],
            row["encoder"] or "",
            row["first"],
            row["recall@10"],
        )
        for name in SETS
        for row in result["recall"]
        if row["set"] == name
    ]
    return rows(("set", "documents", "ranking", "encoder", "precision@1", "recall@10"), *lines) + _recall_measured(
        result
    )


def _recall_measured(result: dict[str, Any]) -> str:
    return f"{measured(result['recall_measured'])}, {result['recall_measured']['device']}"


def search_fusion() -> str:
    """Fusions of both rankings, their settings chosen on every second query."""
    result = stored("search")
    lines = [
        (
            SETS[row["set"]],
            row["encoder"],
            FUSIONS[row["ranking"]],
            row["constant"] or "",
            row["weight_of_words"],
            row["dev"]["recall@10"],
            f"{row['test']['first']} / {row['test']['recall@10']}",
        )
        for name in SETS
        for row in result.get("fusion", ())
        if row["set"] == name
    ]
    head = (
        "set",
        "encoder",
        "fusion",
        "constant",
        "weight of words",
        "dev: recall@10",
        "test: precision@1 / recall@10",
    )
    return rows(head, *lines) + _recall_measured(result)


def readers() -> str:
    """Scores of readers on BioASQ 7b."""
    result = stored("reader")
    lines: list[tuple[object, ...]] = [
        (row["form"], TEXTS[row["texts"]], *(_named(row["scores"], name) for name in METRICS[row["form"]]))
        for row in result["rows"]
    ]
    published = result["published"]
    scores = [_named(published, name) for name in METRICS["factoid"]]
    lines.insert(1, ("factoid", f"the same, {published['model']} in its paper", *scores))
    return rows(("questions", "texts", "scores", "", ""), *lines) + _measured(result)


def _named(scores: dict[str, float], name: str) -> str:
    return f"{METRIC_NAMES.get(name, name)} {scores[name]:.2f}" if name in scores else ""


def do_not_know() -> str:
    """How often a reader does not know, and how often it is right not to."""
    result = stored("reader")
    lines = []
    for row in result["rows"]:
        if (own := row.get("do_not_know")) is not None:
            kinds = [f"{own[kind]['unknown']}% of {own[kind]['questions']}" for kind in ("answerable", "unanswerable")]
            parts = (own["precision"], own["or_wrong"], own["ece"])
            lines.append((row["form"], TEXTS[row["texts"]], f"{own['threshold']:.2f}", *kinds, *map(_or_none, parts)))
    head = (
        "questions",
        "texts",
        "threshold",
        "withheld, answerable",
        "withheld, unanswerable",
        "precision",
        "precision, counting wrong answers",
        "ECE",
    )
    return rows(head, *lines) + _measured(result)


def _or_none(value: Any) -> Any:
    return "" if value is None else value


def _measured(result: dict[str, Any]) -> str:
    names = ", ".join(f"{one['name']} ({one['precision']})" for one in result["readers"])
    return f"{measured(result)}, {result['device']}; {names}"


def relations() -> str:
    """Scores of the relation model, with gold mentions and from raw text."""
    result = stored("relations")
    lines = []
    for key, gold in result["gold"].items():
        name, split = key.rsplit(" ", 1)
        schema = RELATION_SETS[name]
        raw = result["raw_text"].get(key, {})
        lines.append(
            (
                name,
                split,
                gold["documents"],
                f"{gold[f'{schema} f1']:.1f}",
                f"{gold[f'{schema} pair f1']:.1f}",
                *(f"{raw[what]:.1f}" if what in raw else "" for what in ("concepts and type", "concepts")),
                f"{gold['ece']:.3f}",
            )
        )
    head = (
        "dataset",
        "split",
        "documents",
        "F1",
        "F1 of pairs",
        "from raw text: F1",
        "from raw text: F1 of pairs",
        "ECE",
    )
    model = result["model"]
    return rows(head, *lines) + f"{measured(result['facts'])}; {model['name']} ({model['precision']})"


def relation_cost() -> str:
    """Seconds per abstract with and without relations."""
    result = stored("relations")
    speed = result["speed"]
    lines = [(name, f"{seconds:.3f}") for name, seconds in speed["seconds_per_abstract"].items()]
    table = rows((f"{speed['documents']} abstracts of BioRED, one core", "seconds per abstract"), *lines)
    return table + measured(result["facts"])


TABLES = {
    "relations": relations,
    "relation_cost": relation_cost,
    "search_speed": search_speed,
    "search_recall": search_recall,
    "search_fusion": search_fusion,
    "readers": readers,
    "do_not_know": do_not_know,
}
