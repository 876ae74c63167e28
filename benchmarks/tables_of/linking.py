"""Tables of linking: accuracy on gold mentions, F1 from raw text, speed, abbreviations, and the hard cases."""

import re
from typing import Any

from tables_of.results import measured, rows, stored

# Accuracy@1 on gold mentions: BioSyn with BioBERT (Sung et al. 2020) and with SapBERT (Liu et al. 2021).
PUBLISHED_GOLD = {
    ("NCBI-disease-pubtator", "Disease"): ("91.1", "92.4"),
    ("BC5CDR", "Disease"): ("93.2", "93.5"),
    ("BC5CDR", "Chemical"): ("96.6", "96.6"),
}
# F1 by document from raw text: Leaman and Lu 2016 (TaggerOne).
TAGGERONE = {("NCBI-disease-pubtator", "Disease"): "80.7", ("BC5CDR", "Chemical"): "89.5"}
# Means of F1 over corpora that no tool was trained on, recognition and linking together: Sänger et al. 2024.
ACROSS = {"HunFlair2": "58.8", "PubTator Central": "54.3", "scispaCy": "37.6", "BERN2": "36.9"}
NAMES = {"NCBI-disease-pubtator": "NCBI-disease", "linnaeus-pubtator": "linnaeus"}


def linking_gold() -> str:
    """Accuracy@1 (and @5) on gold mentions of test splits, beside the published."""
    result = stored("linking")
    scores: dict[tuple[str, str], dict[tuple[str, bool], Any]] = {}
    for row in result["gold_mentions"]:
        key = (row["dictionary"], row["training_mentions"])
        scores.setdefault((row["set"], row["type"]), {})[key] = row
    lines = []
    for (name, type), own in scores.items():
        columns = [("shipped", False), ("shipped", True), ("MEDIC", False), ("MEDIC", True)]
        cells = (_accuracy(own.get(column)) for column in columns)
        published = PUBLISHED_GOLD.get((name, type), ("", ""))
        plain = own["shipped", False]
        known = f"{plain['known']:.1f}" if type != "Variant" else ""  # read off the mention
        lines.append((NAMES.get(name, name), type, plain["mentions"], known, *cells, *published))
    head = (
        "test set",
        "type",
        "mentions",
        "gold id in the shipped index",
        "shipped index",
        "with training mentions",
        "MEDIC",
        "MEDIC and training mentions",
    )
    return rows((*head, "BioSyn ¹", "SapBERT ¹"), *lines) + measured(result["facts"])


def _accuracy(row: Any) -> str:
    return f"{row['accuracy_at_1']:.1f} ({row['accuracy_at_5']:.1f})" if row is not None else ""


def linking_raw() -> str:
    """F1 of concepts from raw text, by document and by mention."""
    result = stored("linking")
    lines = []
    for row in result["raw_text"]:
        types = row["by_document"]["types"]
        which = f"{row['dictionary']}, training mentions" if row["training_mentions"] else row["dictionary"]
        told = ", ".join(f"{type} {score:.1f}" for type, score in types.items()) if len(types) > 1 else ""
        document = row["by_document"]
        precise = f"{document['precision']:.1f} / {document['recall']:.1f}"
        cells = (which, f"{document['f1']:.1f}", precise, told, f"{row['by_mention']['f1']:.1f}")
        lines.append((NAMES.get(row["set"], row["set"]), *cells))
    head = ("test set", "dictionary", "F1 by document", "precision / recall", "by type", "F1 by mention")
    return rows(head, *lines)


def linking_published() -> str:
    """Published F1 from raw text."""
    lines: list[tuple[str, ...]] = [
        (f"TaggerOne, {NAMES.get(name, name)}, {type}", score, "by document, trained on the set")
        for (name, type), score in TAGGERONE.items()
    ]
    lines += [(f"{tool}, mean of corpora it was not trained on", score, "by mention") for tool, score in ACROSS.items()]
    return rows(("published", "F1", "of"), *lines)


def linking_calibration() -> str:
    """Probabilities beside how often the best candidate is right."""
    lines = [
        (
            NAMES.get(row["set"], row["set"]),
            row["type"],
            row["mentions"],
            f"{row['mean_probability']:.2f}",
            f"{row['right']:.2f}",
            f"{row['expected_calibration_error']:.2f}",
            f"{100 * row['at_least']['0.9']['kept']:.0f}% ({row['at_least']['0.9']['right']:.2f})",
        )
        for row in stored("linking")["calibration"]
    ]
    head = ("test set", "type", "mentions with candidates", "mean probability", "accuracy")
    return rows((*head, "expected calibration error", "with probability ≥ 0.9 (accuracy)"), *lines)


def linking_species() -> str:
    """Whether genes are of the right species."""
    lines = [
        (row["set"], row["mentions"], *(f"{row[key]:.1f}%" for key in ("human", "species_right", "gene_right")))
        for row in stored("linking")["species"]
    ]
    return rows(("test set", "mentions", "gold gene is human", "species accuracy", "gene accuracy"), *lines)


def linking_genes() -> str:
    """Accuracy@1 of genes if mouse and rat genes count by what they are."""
    found = [row for row in stored("linking")["gold_mentions"] if row["type"] == "Gene"]
    lines = [
        (
            row["set"],
            "with training mentions" if row["training_mentions"] else "shipped index",
            f"{row['known']:.1f}",
            f"{row['accuracy_at_1']:.1f}",
            f"{row['same_gene_at_1']:.1f}",
        )
        for row in found
    ]
    return rows(("test set", "dictionary", "gold id known", "accuracy@1", "accuracy@1, same gene"), *lines)


def linking_speed() -> str:
    """What linking costs."""
    cost = stored("linking")["cost"]
    lines = [
        ("CPU time of linking, relative to annotation without it", f"{cost['linking_percent_of_annotation']:.1f}%"),
        ("mentions linked per second, one core", f"{cost['mentions_per_second']:,}"),
        ("opening the index", f"{cost['open_ms']:.0f} ms"),
        ("memory with the model loaded", f"{cost['annotator_loaded_mb']:.0f} MB"),
        ("the same with the index, after linking", f"{cost['after_linking_mb']:.0f} MB"),
        ("peak memory of the process", f"{cost['peak_mb']:.0f} MB"),
    ]
    return rows(("", f"{cost['documents']} abstracts"), *lines)


def abbreviations() -> str:
    """Precision and recall on MED1250."""
    result = stored("abbreviations")
    lines: list[tuple[object, ...]] = [
        (f"Lexome, {name}", one["gold"], f"{one['precision']:.1f}", f"{one['recall']:.1f}", f"{one['f1']:.1f}")
        for name, one in result["scores"].items()
    ]
    for name, one in result["published"].items():
        f1 = 2 * one["precision"] * one["recall"] / (one["precision"] + one["recall"])
        lines.append((f"{name}, published", "", f"{one['precision']:.1f}", f"{one['recall']:.1f}", f"{f1:.1f}"))
    return rows(("MED1250", "definitions", "precision", "recall", "F1"), *lines)


def hard_cases() -> str:
    """The hard cases and the concepts that the linker gives."""
    result = stored("hard_cases")
    lines = []
    for case in result["cases"]:
        text = re.sub(r"\{([^|}]*)\|([^}]*)\}", r"**\1** (\2)", case["text"])
        said = "; ".join(" + ".join(ids) or "none" for ids in case["said"]).replace("|", "\\|")
        expected = "; ".join(" + ".join(ids) or "none" for ids in case["expected"]).replace("|", "\\|")
        wrong = "" if case["said"] == case["expected"] else f" — expected {expected}"
        lines.append((case["kind"], text, f"{said}{wrong}", case["why"]))
    count = f"{result['right']} of {len(result['cases'])} are right.\n\n"
    return count + rows(("kind", "text", "linked to", "why it is hard"), *lines)


TABLES = {
    table.__name__: table
    for table in (
        linking_gold,
        linking_raw,
        linking_published,
        linking_calibration,
        linking_species,
        linking_genes,
        linking_speed,
        abbreviations,
        hard_cases,
    )
}
