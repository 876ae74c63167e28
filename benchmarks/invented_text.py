"""Invented abstracts for recipes/tiny: enough text for a toy model to learn from, and no author's.

    python benchmarks/invented_text.py

Writes samples/invented.jsonl. Genes, drugs and diseases are invented; each gene belongs to an organ, a drug and a
disease, so that there is something to learn.
"""

import json
import random
from pathlib import Path

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "invented.jsonl"
ABSTRACTS = 240

# gene, organ, drug, disease
FACTS = (
    ("ZBL1", "liver", "quuxamide", "zorbitis"),
    ("KOR2", "kidney", "florbactin", "nephrolia"),
    ("MEV4", "heart", "cardulol", "velmar syndrome"),
    ("TUS3", "lung", "pulmexin", "asporia"),
    ("BRN7", "brain", "somnerane", "lethosis"),
    ("GAD5", "muscle", "myotride", "flaxia"),
    ("OPH6", "retina", "lumicept", "dimopathy"),
    ("DER8", "skin", "cutamycin", "scalorrhea"),
)
TITLES = (
    "Loss of {gene} in the {organ} of patients with {disease}",
    "{drug} restores {gene} in {disease}",
    "A trial of {drug} in {count} patients with {disease}",
    "Expression of {gene} in the {organ}: a study in mice",
)
SENTENCES = (
    "{gene} is expressed in the {organ}.",
    "Mutations in {gene} cause {disease}, a rare disease of the {organ}.",
    "We treated {count} patients with {drug} for {weeks} weeks.",
    "{drug} raised the level of {gene} in the {organ} by {percent}%.",
    "Mice without {gene} developed {disease} after {weeks} weeks.",
    "In the {organ}, {drug} binds {gene} and blocks its degradation.",
    "Of {count} patients with {disease}, {percent}% carried a mutation in {gene}.",
    "No effect of {drug} was seen in patients without {disease}.",
    "The risk of {disease} was higher in patients with low {gene}.",
    "Biopsies of the {organ} were stained for {gene}.",
)
ENDINGS = (
    "We conclude that {drug} is a treatment for {disease}.",
    "These results link {gene} to {disease}.",
    "{gene} is a marker of damage to the {organ}.",
)


def abstracts(count: int = ABSTRACTS) -> list[dict[str, str]]:
    """Records of an id, a title and an abstract; the same ones every time."""
    rng = random.Random(20261118)
    records = []
    for number in range(count):
        gene, organ, drug, disease = rng.choice(FACTS)

        def filled(template: str, names: tuple[str, ...] = (gene, organ, drug, disease)) -> str:
            gene, organ, drug, disease = names
            count, weeks, percent = rng.randrange(12, 400), rng.randrange(2, 52), rng.randrange(5, 95)
            values = {"gene": gene, "organ": organ, "drug": drug, "disease": disease}
            text = template.format(**values, count=count, weeks=weeks, percent=percent)
            return text[0].upper() + text[1:]

        sentences = [filled(template) for template in rng.sample(SENTENCES, rng.randint(4, 7))]
        text = " ".join([*sentences, filled(rng.choice(ENDINGS))])
        records.append({"id": f"invented-{number + 1}", "title": filled(rng.choice(TITLES)), "text": text})
    return records


def main() -> None:
    SAMPLE.write_text("".join(json.dumps(record) + "\n" for record in abstracts()), encoding="utf-8")
    print(f"wrote {SAMPLE}: {SAMPLE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
