"""The recipe of `lexome shard`: records and a tokenizer into token shards."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from lexome.recipe import Recipe


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
