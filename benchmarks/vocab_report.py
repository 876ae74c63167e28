"""Known vocabularies on BC5CDR, and alternative definitions of the break-up rate; writes results/vocab_report.json.

python benchmarks/vocab_report.py DATA    DATA is the folder of real data
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lexome
from facts import ROOT, facts
from lexome.corpus.vocab.report import vocab_report
from lexome.corpus.vocab.tokenizers import load_tokenizer

VOCABULARIES = {
    "BERT cased": "bert_base_cased.vocab.txt",
    "BERT uncased": "bert_base_uncased.vocab.txt",
    "SciBERT uncased": "scibert_scivocab_uncased.vocab.txt",
    "GPT-2 and RoBERTa": "gpt2_roberta.encoder.json",
    "CovidELECTRA 50k": "covidECTRA_biobert_dir_50k.vocab.txt",
}
SETS = ("chem", "disease")

# Table 3 of Shin et al. 2020.
PAPER = {"chem": 3.012, "disease": 2.42}

Mention = tuple[str, list[str]]


def mentions(paths: Iterable[Path]) -> list[Mention]:
    """Each mention's text and its words in the file."""
    found: list[Mention] = []
    for doc in lexome.read(paths):
        tokens = [token for passage in doc.passages for token in passage.tokens]
        for span in doc.spans:
            words = [doc.slice(*token) for token in tokens if span.start <= token[0] and token[1] <= span.end]
            found.append((span.text, words))
    return found


def definitions(train: list[Mention], more: list[Mention], pieces: Callable[[str], int]) -> dict[str, float]:
    """The break-up rate under each definition."""

    def rate(words: Iterable[str]) -> float:
        counted = [pieces(word) for word in words]
        return sum(counted) / len(counted)

    words = [word for _, inside in train for word in inside]
    unique = {text: inside for text, inside in train}
    return {
        "tokens / words, all mentions of the training split": rate(words),
        "the same, training and development split": rate(word for _, inside in more for word in inside),
        "the same, lowercased": rate(word.lower() for word in words),
        "the same, without punctuation": rate(word for word in words if word[0].isalnum()),
        "distinct mentions": rate(word for inside in unique.values() for word in inside),
        "distinct words": rate(set(words)),
        "first words only": rate(inside[0] for _, inside in train),
        "mean over mentions of tokens / words": sum(rate(inside) for _, inside in train) / len(train),
        "tokens / mentions": rate(text for text, _ in train),
        "tokens after the first / words": rate(words) - 1,
        "tokens / words that are split": rate(word for word in words if pieces(word) > 1),
    }


def main(data: Path) -> None:
    folder = data / "benchmarks"
    sets = {name: folder / f"BC5CDR-{name}" / "train.tsv.xz" for name in SETS}
    vocabularies = {name: data / "vocabs" / file for name, file in VOCABULARIES.items()}
    texts = [folder / "BC5CDR-pubtator" / "CDR_TrainingSet.PubTator.txt.xz"]
    report = vocab_report(vocabularies, ner=sets, texts=texts)
    bert = load_tokenizer(vocabularies["BERT cased"])
    ways: dict[str, dict[str, float]] = {}
    for name in SETS:
        train = mentions([sets[name]])
        more = train + mentions([sets[name].with_name("devel.tsv.xz")])
        for way, found in definitions(
            train, more, lambda text: len(bert.encode(text, add_special_tokens=False))
        ).items():
            ways.setdefault(way, {})[name] = round(found, 3)
    result: dict[str, Any] = {"facts": facts("tokenizers"), "paper": PAPER, "definitions": ways, **report.as_dict()}
    (ROOT / "results" / "vocab_report.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    print(report.as_table())
    print(json.dumps(ways, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
