"""Recipes of `lexome build`, `lexome learn-vocab` and `lexome shard`."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from lexome.recipe import Recipe, Table, invalid

# A source's name is also the name of its folder.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

Language = Literal["en", "fr", "de", "es", "it", "pt"]

Licenses = Literal["any", "stated", "commercial"]


class CorpusSource(Table):
    """One collection of files of one kind. Within it the newest version of a document wins."""

    name: Name = Field(description="Name of the source, in tables and as a folder.")
    paths: tuple[Path, ...] = Field(min_length=1, description="Files, folders and archives, oldest first.")
    format: str | None = Field(default=None, description="Format of the files, if it cannot be detected.")
    options: dict[str, str | int | float | bool] = Field(
        default={}, description="Options of the format, as for `lexome convert --set`."
    )
    licenses: Licenses = Field(
        default="any",
        description="any; stated: the license is known; commercial: CC0, CC BY, BY-SA, BY-ND, public domain.",
    )
    exclude_passages: tuple[str, ...] = Field(
        default=("table", "formula", "code", "reference"), description="Kinds of passages to leave out."
    )
    max_words: int | None = Field(default=None, gt=0, description="Subsample to about this many words.")
    match_size_of: Name | None = Field(default=None, description="Subsample to the size in bytes of this other source.")

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        if self.max_words is not None and self.match_size_of is not None:
            raise invalid("match_size_of", "max_words and match_size_of are both given; expected one of them")
        return self


class Near(Table):
    """Near-duplicate detection by MinHash."""

    similarity: float = Field(
        default=0.8, gt=0, le=1, description="Minimum Jaccard similarity of the shingles of near duplicates."
    )
    shingle_words: int = Field(default=5, gt=0, description="Words per shingle.")
    permutations: int = Field(
        default=128, gt=0, description="Signature size; the error of the estimate is 1 / sqrt(permutations)."
    )
    bands: int = Field(default=16, gt=0, description="LSH bands; documents that agree in one of them are compared.")

    @model_validator(mode="after")
    def _whole_bands(self) -> Self:
        if self.permutations % self.bands:
            raise invalid("bands", f"bands must divide permutations; {self.bands} does not divide {self.permutations}")
        return self


class Leakage(Table):
    """Benchmark documents that must not be trained on."""

    sets: tuple[Path, ...] = Field(default=(), description="Test sets, in any format that Lexome reads.")
    action: Literal["drop", "report"] = Field(default="drop", description="report: count them, but keep them.")
    ngram_words: int = Field(
        default=10,
        gt=0,
        description="A sentence is recognized by its first and last n-gram of this many words.",
    )


class BuildRecipe(Recipe):
    """Builds a cleaned, deduplicated corpus from literature."""

    stage: Literal["build"]
    out: Path = Field(description="The folder for records/, corpus.json and corpus.md.")
    seed: int = Field(default=0, ge=0, lt=1 << 64, description="Random seed of the subsampling.")
    sources: tuple[CorpusSource, ...] = Field(min_length=1)
    languages: tuple[Language, ...] = Field(
        default=("en",), description="Languages to keep, detected from the text; empty keeps all."
    )
    min_words: int = Field(default=20, ge=0, description="Drop documents with fewer words.")
    retracted: Literal["drop", "keep"] = Field(default="drop", description="Articles that PubMed marks as retracted.")
    exact_duplicates: Literal["drop", "keep"] = Field(
        default="drop", description="Documents with the same words, in the same order, as an earlier one."
    )
    near_duplicates: Literal["drop", "keep"] = Field(
        default="drop", description="Documents similar to an earlier one, by the settings in [near]."
    )
    overwrite: bool = Field(default=False, description="Replace the output of another recipe.")
    near: Near = Near()
    leakage: Leakage = Leakage()

    @model_validator(mode="after")
    def _sources_fit(self) -> Self:
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise invalid("sources", f"two sources have the same name; expected distinct names, got {', '.join(names)}")
        for source in self.sources:
            other = source.match_size_of
            if other is not None and (other not in names or other == source.name):
                raise invalid(
                    f"sources.{source.name}.match_size_of",
                    f"source {source.name}: match_size_of is {other!r}; expected another source's name",
                )
            if other is not None and self.source(other).match_size_of is not None:
                raise invalid(
                    f"sources.{source.name}.match_size_of",
                    f"source {source.name}: match_size_of names {other}, which itself matches another",
                )
        return self

    def source(self, name: str) -> CorpusSource:
        """The source of this name."""
        return next(source for source in self.sources if source.name == name)


Kind = Literal["wordpiece", "byte-bpe", "sentencepiece-unigram", "sentencepiece-bpe"]

# Keys for learning a vocabulary, and for adapting one.
LEARN_KEYS = ("kind", "size", "cased", "min_frequency", "alphabet")
ADAPT_KEYS = ("max_new_tokens", "min_documents")


class VocabRecipe(Recipe):
    """Learns a tokenizer from text, or adapts one to it."""

    stage: Literal["learn-vocab"]
    inputs: tuple[Path, ...] = Field(min_length=1, description="Files, folders and archives of text.")
    out: Path = Field(description="The tokenizer folder.")
    format: str | None = Field(
        None, description='Format of the files, if it cannot be detected; "text": one document per line.'
    )
    kind: Kind = Field("wordpiece", description="BERT's, RoBERTa's, or one of SentencePiece's two.")
    size: int = Field(32_768, ge=300, le=1_000_000, description="Vocabulary size, special tokens included.")
    cased: bool = Field(True, description="False lowercases all text; WordPiece then strips accents too.")
    min_frequency: int = Field(2, ge=1, description="Minimum count of a merged pair (not for unigram).")
    alphabet: int = Field(1000, ge=1, description="Maximum number of characters; byte-bpe always has its 256 bytes.")
    sample_documents: int | None = Field(None, gt=0, description="Learn from a sample of about this many documents.")
    sample_megabytes: float | None = Field(None, gt=0, description="Learn from a sample of about this much UTF-8 text.")
    seed: int = Field(0, ge=0, description="Random seed of the sample.")
    adapt: Path | None = Field(
        None, description="A WordPiece tokenizer to adapt: new words replace tokens that the text never uses."
    )
    max_new_tokens: int = Field(4000, ge=1, description="With adapt: maximum number of new words.")
    min_documents: int = Field(25, ge=1, description="With adapt: minimum number of documents with a new word.")
    max_length: int = Field(512, gt=2, description="Maximum sequence length, stored in tokenizer_config.json.")
    overwrite: bool = Field(False, description="Replace the output of another recipe or other text.")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.sample_documents is not None and self.sample_megabytes is not None:
            raise invalid(
                "sample_megabytes", "sample_documents and sample_megabytes are both given; expected one of them"
            )
        if self.kind == "byte-bpe" and not self.cased:
            raise invalid(
                "cased", "byte-bpe keeps every byte, so it is always cased; choose another kind, or remove cased"
            )
        fields = type(self).model_fields
        for name in ADAPT_KEYS if self.adapt is None else LEARN_KEYS:
            if getattr(self, name) != fields[name].default:
                why = "needs adapt" if self.adapt is None else "is set by the tokenizer that adapt names"
                raise invalid(name, f"{name} {why}; leave it out")
        return self


class ShardRecipe(Recipe):
    """Tokenizes records into shards."""

    stage: Literal["shard"]
    inputs: tuple[Path, ...] = Field(min_length=1, description="Records, or files of any format that Lexome reads.")
    format: str | None = Field(default=None, description="Format of the files, if it cannot be detected.")
    tokenizer: Path = Field(description="A tokenizer folder, or its tokenizer.json.")
    out: Path = Field(description="The folder for the shards and their manifest.json.")
    held_out: float = Field(default=0.0, ge=0, lt=1, description="Fraction of documents held out for evaluation.")
    seed: int = Field(default=0, description="Random seed of the held-out documents.")
    overwrite: bool = Field(default=False, description="Replace the output of another recipe.")


# Recipes of `lexome build-terms`


TermFormat = Literal[
    "mesh-xml", "mesh-ascii", "gene-info", "taxdump", "chebi", "cellosaurus", "obo", "ctd", "biosyn", "tsv"
]

Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][\w.-]*$")]
CurieText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][\w.-]*:[^\s:]\S*$")]


class Mapping(Table):
    """A table of equivalent ids in two vocabularies."""

    name: Name = Field(description="Name of the mapping, used by dictionaries to refer to it.")
    path: Path = Field(description="A table with tabs between columns.")
    columns: tuple[int | str, int | str] = Field(
        default=(0, 1), description="The columns of the two ids: from, to; by number from 0, or by name."
    )
    prefixes: tuple[Prefix | None, Prefix | None] = Field(
        default=(None, None), description="The CURIE prefixes of ids that have none."
    )
    rows: dict[str, tuple[str, ...]] = Field(
        default={}, description="Only rows whose value in a column begins with one of these."
    )


class Dictionary(Table):
    """Names and ids from one source."""

    name: Name = Field(description="Name of the dictionary, in the index and in summaries.")
    paths: tuple[Path, ...] = Field(min_length=1, description="Files, compressed or not, and archives.")
    data: Path | None = Field(default=None, description="The folder of its paths; by default the recipe's data.")
    format: TermFormat = Field(description="Format of its files; see `lexome.concepts.sources`.")
    license: str = Field(default="unknown", description="Its license, stored in the index.")
    version: str = Field(default="", description="Its version or date, stored in the index.")
    url: str = Field(default="", description="Its home page, stored in the index.")
    type: str | None = Field(
        default=None, min_length=1, description="The type of its terms; with MeSH, which terms to read."
    )
    prefix: Prefix | None = Field(default=None, description="The CURIE prefix of ids that have none.")
    taxon: CurieText | None = Field(default=None, description="The species of all its genes, as NCBITaxon:9606.")
    taxa: tuple[CurieText, ...] = Field(default=(), description="gene-info, taxdump: only these species.")
    columns: dict[Literal["id", "name", "names", "type", "taxon", "xrefs"], int | str] = Field(
        default={"id": 0, "name": 1}, description="tsv: columns by number from 0, or by name in the first row."
    )
    rows: dict[str, tuple[str, ...]] = Field(
        default={}, description="tsv: only rows whose value in a column begins with one of these."
    )
    split: str = Field(default="|", min_length=1, description="tsv: separator of several names in a column.")
    synonyms: tuple[Literal["EXACT", "RELATED", "NARROW", "BROAD"], ...] = Field(
        default=("EXACT", "RELATED"), description="obo: the scopes of synonyms to read."
    )
    exclude_names: str | None = Field(default=None, description="Drop names that fully match this regular expression.")
    drop_preferred_names: bool = Field(
        default=False,
        description="Drop names that another concept, with the same prefix, prefers in an earlier dictionary.",
    )
    exclude_terms: str | None = Field(
        default=None,
        description="Drop terms whose preferred name fully matches this regular expression.",
    )
    xref_prefixes: tuple[Prefix, ...] | None = Field(
        default=None, description="Keep only cross-references with these CURIE prefixes; by default all."
    )
    mappings: tuple[Name, ...] = Field(default=(), description="Mappings that translate its ids.")
    join: tuple[Literal["id", "xrefs", "names"], ...] = Field(
        default=("id",),
        description="How its terms are merged into concepts of earlier dictionaries, tried in order: by id (also "
        "mapped), by cross-references, by a common name.",
    )
    unjoined: Literal["keep", "keep-mapped", "drop"] = Field(
        default="keep", description="Terms that match no concept: keep all, keep those whose id is mapped, or drop all."
    )

    @field_validator("exclude_names", "exclude_terms")
    @classmethod
    def _is_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.format == "tsv":
            if "id" not in self.columns:
                raise invalid("columns", "columns has no id; expected the column with the ids")
            if not {"name", "names"} & self.columns.keys():
                raise invalid("columns", "columns has neither name nor names; expected one of them")
            if self.type is None and "type" not in self.columns:
                raise invalid("type", "a table has no type of its own; expected type, or a column of types")
        return self


class SynonymTable(Table):
    """Pairs of names of one concept, as text for the contrastive loss of pre-training (SapBERT; Liu et al. 2021)."""

    out: Path = Field(description="A file of documents, such as synonyms.jsonl.gz: an input of `lexome shard`.")
    types: tuple[str, ...] = Field(default=(), description="Types of concepts; by default all.")
    max_pairs: int = Field(default=4, ge=1, description="Maximum number of pairs per concept.")


class TermsRecipe(Recipe):
    """Builds an index of names and ids from dictionaries."""

    stage: Literal["build-terms"]
    out: Path = Field(description="The index file.")
    data: Path = Field(default=Path("."), description="Base folder of the paths of dictionaries and mappings.")
    near: tuple[str, ...] = Field(
        default=(), description="Types with search by similar names, in addition to matching names."
    )
    max_name_characters: int = Field(default=200, ge=2, description="Drop longer names.")
    max_names: int = Field(default=2000, ge=1, description="Maximum number of names per concept; the first are kept.")
    overwrite: bool = Field(default=False, description="Replace an index of another recipe or other dictionaries.")
    dictionaries: tuple[Dictionary, ...] = Field(
        min_length=1, description="If two disagree about a concept, the earlier one takes precedence."
    )
    mappings: tuple[Mapping, ...] = Field(default=())
    synonyms: SynonymTable | None = None

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if self.out.suffix.lower() in (".gz", ".xz", ".zst"):
            raise invalid("out", "an index is memory-mapped and cannot be compressed; expected another suffix")
        for key in ("dictionaries", "mappings"):
            names = [table.name for table in getattr(self, key)]
            if len(set(names)) < len(names):
                raise invalid(key, f"two {key} have the same name; expected distinct names, got {', '.join(names)}")
        known = {mapping.name for mapping in self.mappings}
        for place, dictionary in enumerate(self.dictionaries):
            if unknown := [name for name in dictionary.mappings if name not in known]:
                raise invalid(
                    f"dictionaries.{place}.mappings", f"no mapping {unknown[0]!r}; there are: {sorted(known)}"
                )
        return self
