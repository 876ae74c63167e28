"""The model card of a folder: README.md with the front matter that model hubs read."""

import json
from collections.abc import Mapping

from lexome.values import value

PIPELINES = {
    "encoder": "feature-extraction",
    "masked": "fill-mask",
    "paired": "fill-mask",
    "token": "token-classification",
    "sequence": "text-classification",
    "span": "question-answering",
}


@value
class Card:
    """The facts of a model, said by who made it. Nothing here is guessed.

    data      sentences about the text it was trained on, with the licences of that text
    recipe    the recipe it was made by, as TOML
    scores    rows of (what was measured, value, how)
    """

    title: str
    summary: str
    license: str
    data: str
    language: tuple[str, ...] = ("en",)
    base_model: str | None = None
    datasets: tuple[str, ...] = ()
    tags: tuple[str, ...] = ("biomedical",)
    recipe: str | None = None
    scores: tuple[tuple[str, str, str], ...] = ()
    limits: str | None = None


def render(card: Card, *, kind: str, facts: Mapping[str, str]) -> str:
    """The text of README.md. `facts` are what the model itself tells: its size, its architecture."""
    front = {
        "license": card.license,
        "language": list(card.language),
        "base_model": card.base_model,
        "pipeline_tag": PIPELINES[kind],
        "tags": ["lexome", *(tag for tag in card.tags if tag != "lexome")],
        "library_name": "transformers",
        "datasets": list(card.datasets),
    }
    # JSON is YAML, and needs no rules about what must be quoted: the language code "no" stays a language.
    lines = [f"{key}: {json.dumps(held, ensure_ascii=False)}" for key, held in front.items() if held]
    parts = ["---", *lines, "---", "", f"# {card.title}", "", card.summary, ""]
    parts += ["## Model", "", *(f"- {name}: {said}" for name, said in facts.items()), ""]
    parts += ["## Data", "", card.data, ""]
    if card.recipe:
        parts += ["## Recipe", "", "```toml", card.recipe.strip(), "```", ""]
    parts += ["## Scores", "", *_scores(card), ""]
    if card.limits:
        parts += ["## Limits", "", card.limits, ""]
    return "\n".join(parts)


def _scores(card: Card) -> list[str]:
    if not card.scores:
        return ["None were measured."]
    rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in card.scores]
    return ["| measured | value | how |", "| --- | --- | --- |", *rows]
