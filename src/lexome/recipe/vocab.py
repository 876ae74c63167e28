"""The recipe of `lexome learn-vocab`: a kind of vocabulary, its size, and the text it is learnt from or adapted to."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from lexome.recipe import Recipe

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
