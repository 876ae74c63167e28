"""The jobs of a build that look at all files' keys at once, and the census of what stays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lexome.corpus.building import decisions
from lexome.corpus.building.decisions import Verdict
from lexome.pipeline import Advance, Job
from lexome.recipe.build import BuildRecipe


def newest(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the verdicts that need no comparing of texts."""
    sources, recipe = job.settings
    verdicts = decisions.newest(job.inputs, sources, exact=recipe.exact_duplicates == "drop")
    with drafts[0].open("wb") as file:
        np.save(file, verdicts)
    return {}


def band(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the pairs that agree in one band."""
    verdicts, *keys = job.inputs
    found = decisions.links(keys, job.settings, np.load(verdicts))
    with drafts[0].open("wb") as file:
        np.save(file, found)
    return {"links": len(found)}


def decide(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the last verdict on every document, file by file, and count them by source."""
    sources, recipe, names = job.settings
    keys = job.inputs[-len(names) :]
    verdicts = np.load(job.inputs[0])
    bands = [np.load(path) for path in job.inputs[1 : -len(names)]]
    compared = 0
    if bands:
        linked = np.concatenate(bands)
        compared = decisions.drop_near(verdicts, linked, keys, similarity=recipe.near.similarity)
    sizes = [len(rows) for rows in decisions.columns(keys, "row")]
    owners = np.repeat(np.asarray(sources), sizes)
    _sample(recipe, verdicts, owners, keys)
    cuts = np.cumsum(sizes)[:-1]
    with drafts[0].open("wb") as file:
        np.savez(file, **dict(zip(names, np.split(verdicts, cuts), strict=True)))
    return {"compared": compared, "sources": _census(recipe, verdicts, owners, keys)}


def _sample(recipe: BuildRecipe, verdicts: decisions.Verdicts, owners: decisions.Ints, keys: Sequence[Path]) -> None:
    """Cut sources to their sizes; those that are measured by another one last."""
    limited = [source for source in recipe.sources if source.max_words or source.as_large_as]
    if not limited:
        return
    ranks = decisions.sampling_ranks(decisions.column(keys, "ids"), recipe.seed)
    sizes = decisions.column(keys, "bytes")
    numbers = {source.name: number for number, source in enumerate(recipe.sources)}
    for source in sorted(limited, key=lambda source: source.as_large_as is not None):
        mine = owners == numbers[source.name]
        if source.max_words:
            decisions.drop_beyond(verdicts, mine, decisions.column(keys, "words"), ranks, source.max_words)
        else:
            other = (owners == numbers[str(source.as_large_as)]) & (verdicts == Verdict.KEPT)
            decisions.drop_beyond(verdicts, mine, sizes, ranks, int(sizes[other].sum()))


def _census(
    recipe: BuildRecipe, verdicts: decisions.Verdicts, owners: decisions.Ints, keys: Sequence[Path]
) -> dict[str, Any]:
    """Documents, words, bytes, licences and drops of each source."""
    words, size = decisions.column(keys, "words"), decisions.column(keys, "bytes")
    licences = np.concatenate(
        [
            names[which]
            for names, which in zip(
                decisions.columns(keys, "licences"), decisions.columns(keys, "licence"), strict=True
            )
        ]
    )
    found: dict[str, Any] = {}
    for number, source in enumerate(recipe.sources):
        mine = owners == number
        kept = mine & (verdicts == Verdict.KEPT)
        names, counts = np.unique(licences[kept], return_counts=True)
        drops = {
            verdict.name.lower(): int((mine & (verdicts == verdict)).sum())
            for verdict in Verdict
            if verdict not in (Verdict.KEPT, Verdict.DROPPED_BEFORE)
        }
        found[source.name] = {
            "documents": int(kept.sum()),
            "words": int(words[kept].sum()),
            "bytes": int(size[kept].sum()),
            "licences": dict(zip(names.tolist(), counts.tolist(), strict=True)),
            "drops": {reason: count for reason, count in drops.items() if count},
        }
    return found
