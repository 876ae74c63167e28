"""Recipes of `lexome build-terms`."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from lexome.recipe import Recipe, Table, invalid
from lexome.recipe.corpus_stages import Name

TermFormat = Literal[
    "mesh-xml", "mesh-ascii", "gene-info", "taxdump", "chebi", "cellosaurus", "obo", "ctd", "biosyn", "tsv"
]

Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][\w.-]*$")]
CurieText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][\w.-]*:[^\s:]\S*$")]


class Mapping(Table):
    """A table of equal ids in two vocabularies."""

    name: Name = Field(description="Its name, by which dictionaries refer to it.")
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

    name: Name = Field(description="Its name in the index and in summaries.")
    paths: tuple[Path, ...] = Field(min_length=1, description="Files, compressed or not, and archives.")
    data: Path | None = Field(default=None, description="The folder of its paths; by default the recipe's data.")
    format: TermFormat = Field(description="The form of its files; see `lexome.concepts.sources`.")
    license: str = Field(default="unknown", description="Its license, stored in the index.")
    version: str = Field(default="", description="Its version or date, stored in the index.")
    url: str = Field(default="", description="Its owner's page, stored in the index.")
    type: str | None = Field(
        default=None, min_length=1, description="The type of its terms; with MeSH, which of them to read."
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
    split: str = Field(default="|", min_length=1, description="tsv: what separates several names in a column.")
    synonyms: tuple[Literal["EXACT", "RELATED", "NARROW", "BROAD"], ...] = Field(
        default=("EXACT", "RELATED"), description="obo: the scopes of synonyms to read."
    )
    exclude_names: str | None = Field(
        default=None, description="Drop names that match this regular expression from beginning to end."
    )
    xref_prefixes: tuple[Prefix, ...] | None = Field(
        default=None, description="Keep only cross-references with these CURIE prefixes; by default all."
    )
    mappings: tuple[Name, ...] = Field(default=(), description="Mappings by which its ids are replaced.")
    join: tuple[Literal["id", "xrefs", "names"], ...] = Field(
        default=("id",),
        description="How its terms join concepts of earlier dictionaries, tried in order: by id (also mapped), "
        "by cross-references, by a common name.",
    )
    unjoined: Literal["keep", "keep-mapped", "drop"] = Field(
        default="keep", description="Terms that join none: keep, only those whose id is mapped, or drop."
    )

    @field_validator("exclude_names")
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


class TermsRecipe(Recipe):
    """Builds an index of names and ids from dictionaries."""

    stage: Literal["build-terms"]
    out: Path = Field(description="The index file.")
    data: Path = Field(default=Path("."), description="The folder that paths of dictionaries and mappings start from.")
    near: tuple[str, ...] = Field(
        default=(), description="Types that can be searched for similar names, besides equal ones."
    )
    max_name_characters: int = Field(default=200, ge=2, description="Drop longer names.")
    max_names: int = Field(default=2000, ge=1, description="Keep the first so many names of a concept.")
    overwrite: bool = Field(default=False, description="Replace an index of another recipe or other dictionaries.")
    dictionaries: tuple[Dictionary, ...] = Field(
        min_length=1, description="Where two disagree about a concept, the earlier one decides."
    )
    mappings: tuple[Mapping, ...] = Field(default=())

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
