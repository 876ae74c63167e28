"""The recipe of `lexome distill`: a student that learns from a teacher, or trains as long without it."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from lexome.recipe import Table
from lexome.recipe.pretrain import TrainingRecipe


class LossTable(Table):
    """What is minimised: a sum of three means, weighed as Lewis et al. (2020) did."""

    mlm: float = Field(default=5.0, ge=0, description="Weight of the cross entropy of masked words.")
    kl: float = Field(default=2.0, ge=0, description="Weight of KL(teacher || student) of the guesses.")
    cosine: float = Field(default=1.0, ge=0, description="Weight of 1 - cosine of last hidden states, over all tokens.")
    temperature: float = Field(default=2.0, gt=0, description="What both logits are divided by for kl.")
    squared: bool = Field(default=True, description="Multiply kl by the square of the temperature.")
    over: Literal["masked", "all"] = Field(
        default="masked", description="Compare guesses at masked words, or at all tokens as DistilBERT did."
    )
    projection: bool | None = Field(
        default=None, description="Learn a matrix from student to teacher width; none: where the widths differ."
    )

    @model_validator(mode="after")
    def _teaches(self) -> Self:
        if not (self.kl or self.cosine):
            raise ValueError("kl and cosine are both 0, so the teacher has no say; say control = true for that")
        if not (self.mlm or self.kl):
            raise ValueError("mlm and kl are both 0, so the head of masked words would learn nothing")
        return self


class DistillRecipe(TrainingRecipe):
    """Token shards, a teacher and a student to a smaller encoder."""

    stage: Literal["distill"]
    teacher: Path = Field(description="A checkpoint with a head of masked words, and the tokenizer of the shards.")
    student: Literal["layers"] | Path | None = Field(
        default=None, description='A checkpoint, or "layers": some of the teacher\'s. None: new, by preset or [model].'
    )
    layers: tuple[int, ...] = Field(default=(), description="Which of the teacher's layers, counted from 0.")
    every: int | None = Field(default=None, ge=1, description="In its place: layers 0, n, 2n, ...")
    control: bool = Field(
        default=False, description="Train the same student on the same text as long, by masked words alone."
    )
    loss: LossTable = LossTable()

    @model_validator(mode="after")
    def _student_fits(self) -> Self:
        if self.student is None and self.preset is None and not self.model:
            raise ValueError("there is no student; expected student, preset or a [model] table")
        if self.student is not None and self.preset is not None:
            raise ValueError("student and preset are both given; expected one of them")
        said = bool(self.layers) + (self.every is not None)
        if said != (self.student == "layers"):
            raise ValueError('expected either layers or every together with student = "layers", and neither without it')
        if list(self.layers) != sorted(set(self.layers)) or min(self.layers, default=0) < 0:
            raise ValueError("layers do not rise from 0 or more; expected numbers such as [0, 2, 4]")
        if self.text.kind in ("next_sentence", "sentence_order"):
            raise ValueError("pairs have no part in the loss; expected text.kind sentences or across_documents")
        return self
