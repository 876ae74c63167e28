"""The recipe of `lexome build`: sources, what is dropped, and how sources are mixed."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from lexome.recipe import Recipe, Table

# A source's name is a folder's name too.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

Language = Literal["en", "fr", "de", "es", "it", "pt"]

Licences = Literal["any", "stated", "commercial"]


class Source(Table):
    """One collection: files that are read alike and mixed as one. Within it a document's newest version wins."""

    name: Name = Field(description="What it is called in tables; its folder's name too.")
    paths: tuple[Path, ...] = Field(min_length=1, description="Files, folders and archives, oldest first.")
    format: str | None = Field(default=None, description="The format, where the files' names and content do not tell.")
    options: dict[str, str | int | float | bool] = Field(
        default={}, description="Options of the format, as for `lexome convert --set`."
    )
    licences: Licences = Field(
        default="any",
        description="any; stated: one must be known; commercial: CC0, CC BY, BY-SA, BY-ND, public domain.",
    )
    leave_out: tuple[str, ...] = Field(
        default=("table", "formula", "code", "reference"), description="Kinds of passages that are no running text."
    )
    max_words: int | None = Field(default=None, gt=0, description="Sub-sample to about this many words.")
    as_large_as: Name | None = Field(default=None, description="Sub-sample to the size in bytes of this other source.")

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.max_words is not None and self.as_large_as is not None:
            raise ValueError("max_words and as_large_as are both given; expected one of them")
        return self


class Near(Table):
    """When two documents count as near duplicates."""

    similarity: float = Field(
        default=0.8, gt=0, le=1, description="Share of word runs in common, estimated by MinHash."
    )
    run_words: int = Field(default=5, gt=0, description="Words in a run.")
    permutations: int = Field(
        default=128, gt=0, description="Size of a signature: the estimate's error is its root's inverse."
    )
    bands: int = Field(
        default=16, gt=0, description="Cuts of the signature; two documents are compared if one of them agrees."
    )

    @model_validator(mode="after")
    def _whole_bands(self) -> Self:
        if self.permutations % self.bands:
            raise ValueError(f"bands must divide permutations; {self.bands} does not divide {self.permutations}")
        return self


class Leakage(Table):
    """Benchmark documents that must not be trained on."""

    sets: tuple[Path, ...] = Field(default=(), description="Test sets, in any format Lexome reads.")
    action: Literal["drop", "report"] = Field(default="drop", description="report: count them, and keep them.")
    run_words: int = Field(
        default=10,
        gt=0,
        description="A sentence is found by its first and last run of so many words; shorter ones are not.",
    )


class BuildRecipe(Recipe):
    """Literature to cleaned, deduplicated records."""

    stage: Literal["build"]
    out: Path = Field(description="The folder for records/, corpus.json and corpus.md.")
    seed: int = Field(default=0, ge=0, lt=1 << 64, description="Which documents sub-sampling takes.")
    sources: tuple[Source, ...] = Field(min_length=1)
    languages: tuple[Language, ...] = Field(
        default=("en",), description="Those that can be told from a text; empty keeps every language."
    )
    min_words: int = Field(default=20, ge=0, description="A document with fewer words is dropped.")
    retracted: Literal["drop", "keep"] = Field(default="drop", description="Articles that PubMed says are retracted.")
    exact_duplicates: Literal["drop", "keep"] = Field(
        default="drop", description="Documents with the same words in the same order as an earlier one."
    )
    near_duplicates: Literal["drop", "keep"] = Field(
        default="drop", description="Documents that are much like an earlier one; [near] says how much."
    )
    overwrite: bool = Field(default=False, description="Replace an output that another recipe made.")
    near: Near = Near()
    leakage: Leakage = Leakage()

    @model_validator(mode="after")
    def _sources_fit(self) -> Self:
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"two sources have the same name; expected names apart, seen {', '.join(names)}")
        for source in self.sources:
            other = source.as_large_as
            if other is not None and (other not in names or other == source.name):
                raise ValueError(f"source {source.name}: as_large_as is {other!r}; expected another source's name")
            if other is not None and self.source(other).as_large_as is not None:
                raise ValueError(
                    f"source {source.name}: as_large_as names {other}, which is itself measured by another"
                )
        return self

    def source(self, name: str) -> Source:
        """The source of this name."""
        return next(source for source in self.sources if source.name == name)
