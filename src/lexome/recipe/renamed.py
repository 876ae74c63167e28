"""Recipe keys of the first edition and what they are called now."""

from collections.abc import Iterator, Mapping
from typing import Any

_TRAINING = {
    "optimizer.decay": "optimizer.weight_decay",
    "optimizer.clip": "optimizer.max_grad_norm",
    "schedule.warmup": "schedule.warmup_ratio",
    "schedule.end": "schedule.min_lr_ratio",
    "checkpointing": "gradient_checkpointing",
}
_PRETRAINING = {
    **_TRAINING,
    "optimizer.decay_embeddings": "optimizer.weight_decay_embeddings",
    "schedule.decay": "schedule.decay_ratio",
    "batch.passes": "batch.gradient_accumulation",
    "batch.ahead": "batch.prefetch",
    "text.short": "text.short_seq_prob",
    "masking.mask_share": "masking.mask_ratio",
    "masking.random_share": "masking.random_ratio",
    "masking.together": "masking.replace_whole_unit",
    "masking.duplicates": "masking.dupe_factor",
    "evaluation.rate": "evaluation.masking_rate",
    "log.models": "log.checkpoint_steps",
    "log.keep": "log.keep_states",
    "log.diverged": "log.divergence_threshold",
    "budget": "time_budget",
    "model.width": "model.hidden_size",
    "model.inner": "model.intermediate_size",
}
_FINETUNING = {
    **_TRAINING,
    "optimizer.layer_decay": "optimizer.layerwise_lr_decay",
    "batch.pass_tokens": "batch.micro_batch_tokens",
    "rounding": "qat_ratio",
    "graphs": "cuda_graphs",
    "evaluation.measure": "evaluation.metric",
    "evaluation.pass_tokens": "evaluation.batch_tokens",
    "teacher.share": "teacher.text_ratio",
    "head.width": "head.hidden_size",
    "models": "keep_models",
    "data.dev_share": "data.dev_fraction",
    "data.exclude_words": "data.exclude_ngram",
    "folds.dev": "folds.dev_fraction",
}
_STUDY = {
    "about": "description",
    "protocols.*.about": "protocols.*.description",
    "protocols.*.choose": "protocols.*.selection",
    "protocols.*.by": "protocols.*.select_on",
    "tasks.*.measures": "tasks.*.metrics",
    "tasks.*.after": "tasks.*.init_from",
    "tasks.*.step": "tasks.*.intermediate",
    "tasks.*.get": "tasks.*.source",
}
# Where a study has keys of fine-tuning recipes.
_STUDY_RECIPES = ("protocols.*.recipe", "protocols.*.variants.*", "protocols.*.selection", "protocols.*.report")

RENAMED_KEYS: dict[str, dict[str, str]] = {
    "build": {
        "leakage.run_words": "leakage.ngram_words",
        "near.run_words": "near.shingle_words",
        "sources.*.leave_out": "sources.*.exclude_passages",
        "sources.*.as_large_as": "sources.*.match_size_of",
    },
    "distill": {
        **_PRETRAINING,
        "every": "layer_stride",
        "loss.squared": "loss.scale_by_temperature",
        "loss.over": "loss.positions",
    },
    "finetune": _FINETUNING,
    "learn-vocab": {"new": "max_new_tokens"},
    "pretrain": _PRETRAINING,
    "reproduce": {
        **_STUDY,
        **{
            f"{place}.{old}": f"{place}.{new}"
            for place in (*_STUDY_RECIPES, "tasks.*.recipe")
            for old, new in _FINETUNING.items()
        },
    },
    "shard": {},
}
"""By stage: old keys and new ones. * is a name or a place in a list. In every stage `like` is now `extends`."""

RENAMED_VALUES = {"pretrain": {"new_vocabulary": {"refuse": "error", "carry": "transfer"}}}
"""By stage and key: the old value and the new one."""


def old_keys(keys: Mapping[str, Any], stage: str) -> dict[str, str]:
    """The old keys in a recipe, and what each is called now; {"optimizer.decay": "optimizer.weight_decay"}."""
    renamed = {"like": "extends"} | RENAMED_KEYS.get(stage, {})
    return {
        place: ".".join([*place.split(".")[:-1], new.rsplit(".", 1)[-1]])
        for old, new in renamed.items()
        for place in _places(keys, old.split("."))
    }


def upgrade(keys: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The keys of a recipe that the first edition stored, under their new names."""
    upgraded = _with_names(keys, RENAMED_KEYS.get(stage, {}))
    for key, values in RENAMED_VALUES.get(stage, {}).items():
        if upgraded.get(key) in values:
            upgraded[key] = values[upgraded[key]]
    return upgraded


def downgrade(keys: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The keys of a recipe under the names of the first edition, by which identities of runs are computed."""
    downgraded = _with_names(keys, {new: old for old, new in RENAMED_KEYS.get(stage, {}).items()})
    for key, values in RENAMED_VALUES.get(stage, {}).items():
        for old, new in values.items():
            if downgraded.get(key) == new:
                downgraded[key] = old
    return downgraded


def _with_names(keys: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A copy with some keys under other names; a name changes within its table."""
    copy: dict[str, Any] = _copy(keys)
    for old, new in names.items():
        for place in _places(copy, old.split(".")):
            *outer, last = place.split(".")
            table: Any = copy
            for name in outer:
                table = table[int(name)] if isinstance(table, list) else table[name]
            table[new.rsplit(".", 1)[-1]] = table.pop(last)
    return copy


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _places(keys: Any, path: list[str]) -> Iterator[str]:
    """The dotted keys of a recipe that match a path."""
    first, *rest = path
    if isinstance(keys, Mapping):
        names = [name for name in keys if first in ("*", name)]
        inside = [(str(name), keys[name]) for name in names]
    elif isinstance(keys, list | tuple) and first == "*":
        inside = [(str(place), item) for place, item in enumerate(keys)]
    else:
        return
    for name, value in inside:
        if not rest:
            yield name
        else:
            yield from (f"{name}.{place}" for place in _places(value, rest))
