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


Kind = Literal["wordpiece", "byte-bpe", "sentencepiece-unigram", "sentencepiece-bpe"]

# What is said of a vocabulary that is learnt, and of one that is adapted.
LEARNT = ("kind", "size", "cased", "min_frequency", "alphabet")
ADAPTED = ("new", "min_documents")


class VocabRecipe(Recipe):
    """Text to a tokenizer folder."""

    stage: Literal["learn-vocab"]
    inputs: tuple[Path, ...] = Field(min_length=1, description="Files, folders and archives of text.")
    out: Path = Field(description="The tokenizer folder.")
    format: str | None = Field(None, description='Where names and content do not tell; "text" is read line by line.')
    kind: Kind = Field("wordpiece", description="As BERT has it, as RoBERTa has it, or one of SentencePiece's two.")
    size: int = Field(32_768, ge=300, le=1_000_000, description="Pieces, special tokens among them.")
    cased: bool = Field(True, description="False makes all text lower case; WordPiece then drops accents too.")
    min_frequency: int = Field(2, ge=1, description="A pair is joined only if seen so often (not for unigram).")
    alphabet: int = Field(1000, ge=1, description="Most characters kept; byte-bpe needs no more than its 256 bytes.")
    sample_documents: int | None = Field(None, gt=0, description="Learn from about this many documents.")
    sample_megabytes: float | None = Field(None, gt=0, description="Learn from about this much text, in UTF-8.")
    seed: int = Field(0, ge=0, description="Which documents the sample takes.")
    adapt: Path | None = Field(
        None, description="A WordPiece tokenizer to change: words of the text in place of pieces it never has."
    )
    new: int = Field(4000, ge=1, description="With adapt: at most so many new words.")
    min_documents: int = Field(25, ge=1, description="With adapt: a new word is in so many documents.")
    max_length: int = Field(512, gt=2, description="Tokens a model takes at most; kept in tokenizer_config.json.")
    overwrite: bool = Field(False, description="Replace an output that another recipe or other text made.")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.sample_documents is not None and self.sample_megabytes is not None:
            raise ValueError("sample_documents and sample_megabytes are both given; expected one of them")
        if self.kind == "byte-bpe" and not self.cased:
            raise ValueError("byte-bpe keeps every byte, so it is always cased; choose another kind or leave cased out")
        needless = ADAPTED if self.adapt is None else LEARNT
        fields = type(self).model_fields
        if said := [name for name in needless if getattr(self, name) != fields[name].default]:
            why = "says nothing without adapt" if self.adapt is None else "is that of the tokenizer that adapt names"
            raise ValueError(f"{said[0]} {why}; leave it out")
        return self


class ShardRecipe(Recipe):
    """Records to token shards."""

    stage: Literal["shard"]
    inputs: tuple[Path, ...] = Field(min_length=1, description="Records, or files of any format Lexome reads.")
    format: str | None = Field(default=None, description="The format, where the files do not tell.")
    tokenizer: Path = Field(description="A tokenizer folder, or its tokenizer.json.")
    out: Path = Field(description="The folder for the shards and their manifest.json.")
    held_out: float = Field(default=0.0, ge=0, lt=1, description="Share of documents kept apart to measure loss on.")
    seed: int = Field(default=0, description="Chooses the documents that are held out.")
    overwrite: bool = Field(default=False, description="Replace an output that another recipe made.")
