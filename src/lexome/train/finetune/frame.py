"""The tokens of a model as tasks need them: its tokenizer, and the special tokens around one text or two."""

import json
from pathlib import Path
from typing import Any

from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, around, load_tokenizer
from lexome.errors import UsageError
from lexome.models.checkpoint import Checkpoint, encoder_of, load
from lexome.models.encoder import Encoder
from lexome.models.tokenizer_files import write_tokenizer
from lexome.tasks.task import Frame


def put_tokenizer(start: Path, folder: Path) -> None:
    """Write a checkpoint's tokenizer into a folder, tokenizer.json included whatever its own form is."""
    found = load(start, kind="encoder")
    source = found.folder
    if found.tokenizer_files:
        source = folder / "given"
        source.mkdir(exist_ok=True)
        for name, content in found.tokenizer_files.items():
            (source / name).write_bytes(content)
    write_tokenizer(source, folder, max_tokens=found.config.max_tokens, vocab=found.config.vocab)


def frame_of(found: Checkpoint, tokenizer: Path, *, max_tokens: int | None) -> Frame:
    """How rows of this model are built; no row is longer than `max_tokens`, nor than the model takes."""
    limit = found.config.max_tokens
    if max_tokens is not None and max_tokens > limit:
        raise UsageError(f"data.max_tokens is {max_tokens}, but the model takes {limit} at most. Lower it.")
    loaded = load_tokenizer(tokenizer / TOKENIZER_FILE)
    before, between, after = around(loaded) or _stated(loaded, tokenizer)
    return Frame(before, between, after, max_tokens or limit, has_segments(found))


def has_segments(found: Checkpoint) -> bool:
    """Whether the model tells a second text from the first by segments."""
    encoder = encoder_of(found.model)
    if isinstance(encoder, Encoder):
        return encoder.config.segments > 1
    return (getattr(encoder.model.config, "type_vocab_size", None) or 0) > 1


def _stated(loaded: Any, tokenizer: Path) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """CLS and SEP as its companions name them."""
    path = tokenizer / "special_tokens_map.json"
    stated = json.loads(path.read_bytes()) if path.is_file() else {}
    ids = []
    for name in ("cls_token", "sep_token"):
        held = stated.get(name)
        text = held["content"] if isinstance(held, dict) else held
        number = loaded.token_to_id(text) if text else None
        ids.append(() if number is None else (number,))
    return ids[0], ids[1], ids[1]
