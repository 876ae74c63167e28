"""Recipes: one TOML file that fully describes one run, checked against its stage's schema."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic_core import PydanticCustomError

from lexome.errors import RecipeError

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
# The tables of a study that hold keys of fine-tuning recipes.
_STUDY_RECIPES = ("protocols.*.recipe", "protocols.*.variants.*", "protocols.*.selection", "protocols.*.report")

RENAMED_KEYS: dict[str, dict[str, str]] = {
    "build": {
        "leakage.run_words": "leakage.ngram_words",
        "near.run_words": "near.shingle_words",
        "sources.*.leave_out": "sources.*.exclude_passages",
        "sources.*.licences": "sources.*.licenses",
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
"""Renamed keys by stage, old to new. * stands for a name or an index. In every stage, `like` is now `extends`."""

RENAMED_VALUES = {"pretrain": {"new_vocabulary": {"refuse": "error", "carry": "transfer"}}}
"""Renamed values, by stage and key."""


def old_keys(keys: Mapping[str, Any], stage: str) -> dict[str, str]:
    """The renamed keys in a recipe, old to new: {"optimizer.decay": "optimizer.weight_decay"}."""
    renamed = {"like": "extends"} | RENAMED_KEYS.get(stage, {})
    return {
        place: ".".join([*place.split(".")[:-1], new.rsplit(".", 1)[-1]])
        for old, new in renamed.items()
        for place in _places(keys, old.split("."))
    }


def upgrade(keys: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The keys of a recipe stored by the first edition, under their current names."""
    upgraded = _with_names(keys, RENAMED_KEYS.get(stage, {}))
    for key, values in RENAMED_VALUES.get(stage, {}).items():
        if upgraded.get(key) in values:
            upgraded[key] = values[upgraded[key]]
    return upgraded


def downgrade(keys: Mapping[str, Any], stage: str) -> dict[str, Any]:
    """The keys of a recipe under their names in the first edition, from which run identities are computed."""
    downgraded = _with_names(keys, {new: old for old, new in RENAMED_KEYS.get(stage, {}).items()})
    for key, values in RENAMED_VALUES.get(stage, {}).items():
        for old, new in values.items():
            if downgraded.get(key) == new:
                downgraded[key] = old
    return downgraded


def _with_names(keys: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A copy with some keys renamed, each within its table."""
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


class Table(BaseModel):
    """A table of a recipe: frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Recipe(Table):
    """The key that every recipe has: the command it is for. Each stage's schema adds its own."""

    stage: str


Schema = TypeVar("Schema", bound=Recipe)


def load(path: str | Path, schema: type[Schema], *, overrides: Iterable[str] = ()) -> Schema:
    """The recipe in a TOML file, with KEY=VALUE overrides.

    Nested keys are dotted, with indexes into lists of tables: sources.0.limit=10. A value is parsed as TOML if it is
    valid TOML (10, true, ["a"]), and is a string otherwise. An empty value, KEY=, removes the key.
    """
    path = Path(path)
    # Studies have an `extends` of their own, which concatenates lists.
    keys, files = (read_toml(path), [path]) if "extends" in schema.model_fields else read_keys(path)
    for pair in overrides:
        _override(keys, pair)
    stages = get_args(schema.model_fields["stage"].annotation)
    stage = keys.get("stage")
    if stage not in stages:
        problem = f"stage is {stage!r}" if stage is not None else "it has no stage"
        expected = " or ".join(map(json.dumps, stages))
        remedy = f"Run: lexome {stage} {path}" if stage in STAGES else "Set it."
        message = f"{path}: {problem}; expected stage = {expected}. {remedy}"
        raise RecipeError(message, code="wrong-stage", value=stage)
    return validate(keys, schema, ", extending ".join(map(str, files)))


def of(
    source: str | Path | Mapping[str, Any] | Schema,
    schema: type[Schema],
    *,
    overrides: Mapping[str, Any] | None = None,
) -> Schema:
    """The recipe of a stage from a TOML file or from its keys; a dictionary need not name the stage.

    `overrides` are keys with dots, such as {"optimizer.lr": 1e-5}, or tables; None removes a key.
    """
    if overrides and isinstance(source, str | Path | Mapping | Recipe):
        return of(merge(keys_of(source), *map(_layer, overrides.items())), schema)
    if isinstance(source, schema):
        return source
    if isinstance(source, str | Path):
        return load(source, schema)
    stage = get_args(schema.model_fields["stage"].annotation)[0]
    if not isinstance(source, Mapping) or source.get("stage", stage) != stage:
        seen = source.get("stage") if isinstance(source, Mapping) else type(source).__name__
        message = f"{seen!r}; expected a {stage} recipe: the path of a TOML file, or a dictionary of its keys."
        raise RecipeError(message, code="wrong-stage", value=seen)
    return validate({"stage": stage, **source}, schema, "the recipe")


def keys_of(source: str | Path | Mapping[str, Any] | Recipe) -> dict[str, Any]:
    """The keys of a recipe from a TOML file, a dictionary or a recipe, without defaults."""
    if isinstance(source, str | Path):
        return read_keys(Path(source))[0]
    return source.model_dump(exclude_unset=True) if isinstance(source, Recipe) else dict(source)


def _layer(override: tuple[str, Any]) -> dict[str, Any]:
    """A key with dots and its value as nested tables, for `merge`."""
    key, value = override
    for name in reversed(key.split(".")):
        value = {name: value}
    layer: dict[str, Any] = value
    return layer


def validate(keys: Mapping[str, Any], schema: type[Schema], name: str) -> Schema:
    """The recipe with these keys; RecipeError lists everything that is wrong with them, after the name."""
    stage = get_args(schema.model_fields["stage"].annotation)[0]
    if renamed := old_keys(keys, stage):
        changes = ", ".join(f"{old} is now {new}" for old, new in renamed.items())
        raise RecipeError(
            f"{name}: renamed keys: {changes}. Rename them in the recipe.",
            code="renamed-key",
            value=next(iter(renamed)),
        )
    for key, values in RENAMED_VALUES.get(stage, {}).items():
        if isinstance(keys.get(key), str) and keys[key] in values:
            new = values[keys[key]]
            raise RecipeError(f'{name}: {key} = "{keys[key]}" is now "{new}".', code="renamed-value", value=keys[key])
    try:
        return schema.model_validate(keys)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        code = {"extra_forbidden": "unknown-key", "missing": "missing-key"}.get(problem["type"], "invalid-value")
        raise RecipeError(f"{name}: {_problems(error, schema)}", code=code, value=problem_key(problem)) from None


def invalid(key: str, message: str) -> PydanticCustomError:
    """The error for a table's validator to raise about one of its keys, or about a key of a table inside it."""
    return PydanticCustomError("invalid_value", "{message}", {"message": message, "key": key})


def problem_key(problem: Mapping[str, Any]) -> str:
    """The key that one of pydantic's errors is about, as `--set` names it."""
    inner = problem["ctx"]["key"] if problem["type"] == "invalid_value" else None
    return ".".join(map(str, (*problem["loc"], *([inner] if inner else []))))


def stage_of(path: Path) -> str | None:
    """The command a recipe is for."""
    stage = read_keys(path)[0].get("stage")
    return stage if isinstance(stage, str) else None


def read_keys(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """The keys of a recipe and the files they come from, its own first.

    With `extends = "NAME"` they are those of NAME.toml in the same folder, overridden by its own; that recipe may
    extend a third. `extends` itself is not among the keys.
    """
    files, layers = [path], [read_toml(path)]
    while (base := layers[-1].pop("extends", None)) is not None:
        files.append(extended_file(files, base))
        layers.append(read_toml(files[-1]))
    stages = {str(layer["stage"]): file for layer, file in zip(layers, files, strict=True) if "stage" in layer}
    if len(stages) > 1:
        conflict = " and ".join(f"{stage!r} in {file}" for stage, file in stages.items())
        raise RecipeError(
            f"{path}: stage is {conflict}; expected a recipe to extend one of its own stage.",
            code="stage-conflict",
            value=list(stages),
        )
    return merge(*reversed(layers)), files


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"{path}: no such recipe. Check the path.", code="missing-file", value=path) from None
    except IsADirectoryError:
        message = f"{path}: is a folder; expected a recipe, a TOML file."
        raise RecipeError(message, code="not-a-file", value=path) from None
    except UnicodeDecodeError as error:
        message = f"{path}: byte {error.start} is not UTF-8; expected a TOML file."
        raise RecipeError(message, code="invalid-encoding", value=path) from None
    except RecursionError:
        message = f"{path}: lists or tables are nested too deeply; expected a recipe."
        raise RecipeError(message, code="invalid-toml", value=path) from None
    except tomllib.TOMLDecodeError as error:
        message = f"{path}: invalid TOML: {error}. String values need quotes."
        raise RecipeError(message, code="invalid-toml", value=path) from None


# At most this many recipes are searched for the one that makes a missing folder.
MAX_SEARCHED = 500


def made_by(path: Path) -> str:
    """A sentence with the command that makes a missing path; empty if no recipe here makes it.

    Recipes are searched in the current folder, and in its folder recipes and the folders below.
    """
    files = [*sorted(Path().glob("*.toml")), *sorted(Path("recipes").rglob("*.toml"))]
    for file in files[:MAX_SEARCHED]:
        try:
            keys = read_keys(file)[0]
        except (RecipeError, OSError):
            continue
        stage, out = keys.get("stage"), keys.get("out")
        if isinstance(stage, str) and isinstance(out, str) and path.absolute().is_relative_to(Path(out).absolute()):
            return f" To make it, run: lexome {stage} {file}"
    return ""


def extended_file(files: Sequence[Path], base: object) -> Path:
    """The file named by `extends` in the last of some files, each of which extends the next."""
    path = files[-1]
    if not isinstance(base, str):
        message = f'{path}: extends is {base!r}; expected the name of a recipe, such as extends = "ner".'
        raise RecipeError(message, code="invalid-value", value="extends")
    other = path.parent / f"{base.removesuffix('.toml')}.toml"
    if not other.is_file():
        message = f"{path}: extends is {base!r}, but there is no {other}. Name a recipe in the same folder."
        raise RecipeError(message, code="missing-file", value=other)
    if any(other.samefile(file) for file in files):
        message = f"{path}: circular extends: {base!r} extends {path.name} in turn. Remove one `extends`."
        raise RecipeError(message, code="circular-extends", value=base)
    return other


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Tables merged recursively, later ones winning; lists are replaced, and None removes a key."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            known = result.get(key)
            if value is None:
                result.pop(key, None)
            elif isinstance(value, Mapping):
                result[key] = merge(known if isinstance(known, Mapping) else {}, value)
            else:
                result[key] = value
    return result


def overrides_of(pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE pairs as a layer for `merge`: grid.seeds=first is {"grid": {"seeds": "first"}}, epochs= is None."""
    keys: dict[str, Any] = {}
    for pair in pairs:
        _override(keys, pair, keep_removed=True)
    return keys


def _override(keys: dict[str, Any], pair: str, *, keep_removed: bool = False) -> None:
    """Set one key in the nested tables. KEY= removes it, or with `keep_removed` leaves a None for `merge`."""

    def invalid(problem: str) -> RecipeError:
        return RecipeError(f"--set {pair!r}: {problem}", code="invalid-override", value=pair)

    def index(table: list[Any], name: str) -> int:
        if not name.isdigit() or int(name) >= len(table):
            raise invalid(f"{name!r} is not an index of a list of {len(table)}; indices count from 0.")
        return int(name)

    key, equals, text = pair.partition("=")
    if not (key and equals):
        raise invalid("expected KEY=VALUE, for example --set seed=1")
    *outer, last = key.strip().split(".")
    table: Any = keys
    for name in outer:
        if isinstance(table, list):
            table = table[index(table, name)]
        elif isinstance(table, dict):
            table = table.setdefault(name, {})
    if isinstance(table, list):
        table[index(table, last)] = _value(text)
    elif not isinstance(table, dict):
        raise invalid(f"{'.'.join(outer)} is not a table, so it has no key {last!r}.")
    elif text or keep_removed:
        table[last] = _value(text) if text else None
    else:
        table.pop(last, None)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _problems(error: ValidationError, schema: type[BaseModel]) -> str:
    """Everything that is wrong, a sentence each, with a similar name for each unknown key."""
    sentences = []
    for problem in error.errors(include_url=False):
        where = problem_key(problem)
        if problem["type"] == "extra_forbidden":
            sentences.append(f"unknown key {where}" + _suggestion(problem["loc"], schema))
        elif problem["type"] == "missing":
            sentences.append(f"{where} is missing; it has no default.")
        else:
            value = problem["input"]
            shown = "" if isinstance(value, Mapping) else f", got {json.dumps(value, default=str, ensure_ascii=False)}"
            # pydantic adds a prefix to messages of our own validators, and names Python's types instead of TOML's.
            message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
            message = message.replace("a valid tuple", "a list").replace("a valid dictionary", "a table")
            sentences.append(f"{where or 'the recipe'}: {message}{shown}.")
    return " ".join(sentences)


# Keys here, and their names in other libraries. Of several keys, the first that a stage has is suggested.
_FOREIGN = {
    "optimizer.lr": "learning_rate lr peak_lr base_lr",
    "batch.sequences batch.tokens": "batch_size train_batch_size per_device_train_batch_size per_gpu_train_batch_size",
    "evaluation.batch_tokens evaluation.tokens": "eval_batch_size per_device_eval_batch_size",
    "epochs": "num_train_epochs num_epochs n_epochs max_epochs epoch",
    "steps": "max_steps num_steps total_steps train_steps num_training_steps",
    "start student": "model_name_or_path model_name pretrained_model_name_or_path base_model checkpoint model_path",
    "teacher": "teacher_model teacher_name_or_path",
    "out": "output_dir out_dir save_dir output",
    "data.max_tokens text.max_tokens": "max_seq_length max_length max_seq_len model_max_length block_size",
    "schedule.warmup_steps": "warmup_steps num_warmup_steps",
    "schedule.warmup_ratio": "warmup_ratio warmup_proportion",
    "schedule.kind": "lr_scheduler_type lr_scheduler scheduler",
    "optimizer.weight_decay": "weight_decay l2",
    "optimizer.kind": "optim optimizer_type",
    "optimizer.eps": "adam_epsilon epsilon",
    "optimizer.betas": "adam_beta1 adam_beta2",
    "optimizer.max_grad_norm": "max_grad_norm gradient_clip_val clip_grad_norm grad_clip",
    "batch.gradient_accumulation": "gradient_accumulation_steps accumulate_grad_batches grad_accum_steps",
    "batch.prefetch": "dataloader_num_workers num_workers",
    "seed seeds": "seed random_seed random_state",
    "precision": "fp16 bf16 mixed_precision amp",
    "masking.rate": "mlm_probability masked_lm_prob mask_prob",
    "evaluation.every": "eval_steps eval_strategy evaluation_strategy eval_every",
    "evaluation.patience": "patience early_stopping_patience early_stopping",
    "evaluation.metric": "metric_for_best_model metric",
    "log.every": "logging_steps log_every log_interval",
    "log.save_every save_every": "save_steps save_interval",
    "log.keep_states": "save_total_limit",
    "data.sets shards": "dataset dataset_name datasets",
    "data.folder shards": "data_dir dataset_path data_path train_file validation_file",
    "score_test": "test_file do_predict do_test",
    "task.kind": "task_name",
    "task.labels": "labels num_labels label_list",
    "dropout model.dropout": "hidden_dropout_prob dropout",
    "attention_dropout model.attention_dropout": "attention_probs_dropout_prob attention_dropout",
    "method": "freeze freeze_encoder freeze_base_model use_lora",
    "lora.rank": "lora_r lora_rank",
    "lora.alpha": "lora_alpha",
    "lora.dropout": "lora_dropout",
    "lora.targets": "target_modules",
    "parallel.data": "num_gpus n_gpu world_size nproc_per_node",
    "resume_from": "resume_from_checkpoint",
    "loss.temperature teacher.temperature": "temperature",
}
FOREIGN_KEYS = {name: keys.split() for keys, names in _FOREIGN.items() for name in names.split()}
"""Keys of other libraries, each with the corresponding keys here."""


def _suggestion(place: Sequence[int | str], schema: type[BaseModel]) -> str:
    """A hint for an unknown key: what another library's key is called here, or a similar key."""
    name, where = str(place[-1]), ".".join(map(str, place))
    for key in FOREIGN_KEYS.get(name, ()):
        if key != where and _has_key(schema, key):
            return f"; here it is {key}."
    similar = difflib.get_close_matches(name, _known_keys(schema, place[:-1]), 1)
    return f"; did you mean {similar[0]}?" if similar else "."


def _has_key(schema: type[BaseModel], key: str) -> bool:
    """Whether a stage has a key; true for any key of [task] and [model], whose keys the schema does not list."""
    *tables, last = key.split(".")
    return last in _known_keys(schema, tables) or (tables in (["task"], ["model"]) and tables[0] in schema.model_fields)


def _known_keys(schema: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """The keys of a table, found by walking the schema to it."""
    for name in path:
        if isinstance(name, int):
            continue
        field = schema.model_fields.get(name)
        inner = next(iter(_models(field.annotation if field else None)), None)
        if inner is None:
            return []
        schema = inner
    return list(schema.model_fields)


def _models(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    return [model for part in getattr(hint, "__args__", ()) for model in _models(part)]


def explain(recipe: Recipe) -> str:
    """The recipe with every default filled in, as TOML."""
    lines: list[str] = []
    tables: list[str] = []
    for key, value in recipe.model_dump(mode="json").items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables += [f"\n[[{key}]]\n{_pairs(item)}" for item in value]
        elif isinstance(value, dict):
            tables.append(f"\n[{key}]\n{_pairs(value)}")
        else:
            lines.append(_pairs({key: value}))
    return "\n".join([*filter(None, lines), *tables])


def _pairs(table: Mapping[str, Any]) -> str:
    return "\n".join(f"{_key(key)} = {_literal(value)}" for key, value in table.items() if value is not None)


def _key(key: str) -> str:
    """A TOML key: quoted if it has other characters than letters, digits, - and _."""
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isascii() and bare.isalnum() else json.dumps(key, ensure_ascii=False)


def _literal(value: Any) -> str:
    """A TOML value: written as JSON, except for tables."""
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_literal(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


# Durations

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(duration: Any) -> Any:
    """The seconds in "90s", "20m", "1h30m" or "2d"; other values pass unchanged, for the schema to check."""
    if not isinstance(duration, str):
        return duration
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", duration):
        raise ValueError('expected a duration such as "90s", "20m", "1h30m" or "2d"')
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", duration))


Seconds = Annotated[float, BeforeValidator(seconds), PlainSerializer(lambda value: f"{value:g}s")]


Beta = Annotated[float, Field(ge=0, lt=1)]
"""The decay rate of a running mean, as AdamW takes it."""

LearningRate = Annotated[float, Field(gt=0, le=1e30, allow_inf_nan=False)]
"""Above 0, and bounded: overflow of float32 would raise instead of being reported as divergence."""

Device = Literal["auto", "cpu", "cuda"]


class OptimizerTable(Table):
    """AdamW, or Muon for the matrices of the layers and AdamW for everything else."""

    kind: Literal["adamw", "muon"] = Field(
        default="adamw", description="muon: Muon for the layers' matrices, AdamW for the rest."
    )
    lr: LearningRate = Field(
        default=5e-4,
        description="Peak learning rate; Muon's updates are scaled to the size of AdamW's.",
    )
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.98), description="AdamW's betas.")
    eps: float = Field(default=1e-6, gt=0, le=1, description="AdamW's epsilon.")
    weight_decay: float = Field(default=0.01, ge=0, le=1000, description="Weight decay of matrices; vectors have none.")
    weight_decay_embeddings: bool = Field(default=True, description="Whether weight decay applies to embeddings.")
    momentum: float = Field(default=0.95, ge=0, lt=1, description="Muon's momentum.")
    max_grad_norm: float | None = Field(
        default=1.0, ge=0, allow_inf_nan=False, description="Clip gradients to this norm; 0 turns clipping off."
    )


class ScheduleTable(Table):
    """The learning-rate schedule."""

    kind: Literal["linear", "cosine", "constant"] = Field(
        default="linear",
        description="Learning-rate decay after the warm-up; constant may decay at the end (decay_ratio).",
    )
    warmup_ratio: float = Field(default=0.02, ge=0, lt=1, description="Fraction of the run used for linear warm-up.")
    warmup_steps: int | None = Field(
        default=None, ge=0, description="Warm-up steps, instead of warmup_ratio; needs a length in steps."
    )
    decay_ratio: float = Field(
        default=0.2, ge=0, le=1, description="With constant: fraction of the run, at its end, of linear decay."
    )
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1, description="Final learning rate, as a fraction of lr.")


# More than any machine computes in one step; without bounds, a wrong unit would make a step that never ends.
MAX_PASSES = 1 << 20
MAX_BATCH_TOKENS = 1 << 27


class BatchTable(Table):
    """The size of a step: micro-batches whose gradients are accumulated."""

    gradient_accumulation: int = Field(
        default=1, ge=1, le=MAX_PASSES, description="Micro-batches per step; their gradients are accumulated."
    )
    prefetch: int = Field(
        default=8,
        ge=0,
        le=10_000,
        description="Steps prepared in the background; 0 prepares them in the training thread.",
    )


class EvaluationTable(Table):
    """Evaluation during training."""

    every: int | None = Field(default=None, ge=1, description="Steps between evaluations; by default only at the end.")


class LogTable(Table):
    """Logging and divergence checks; these keys may change between interrupting and resuming a run."""

    every: int = Field(default=20, ge=1, description="Steps between lines of metrics.jsonl.")
    divergence_threshold: float | None = Field(
        default=2.0, gt=0, description="Stop if three logged losses in a row are this far above the lowest."
    )


class CardTable(Table):
    """The parts of the model card that cannot be derived from the run."""

    title: str | None = Field(default=None, description="By default the name of `out`.")
    license: str = Field(default="unknown", description="The model's license.")
    data: str | None = Field(default=None, description="The training data and its licenses; by default derived.")


class DataParallelTable(Table):
    """Processes started by torchrun, one per GPU, each with a copy of the model (DDP)."""

    data: int | None = Field(
        default=None,
        ge=1,
        description="Replicas of the model, each with its own micro-batches. Default: all processes.",
    )
    backend: Literal["auto", "nccl", "gloo"] = Field(
        default="auto", description="Communication backend; auto: nccl for GPUs, gloo for CPUs."
    )


class ParallelTable(DataParallelTable):
    """data x shard x tensor processes, started by torchrun, one per GPU."""

    shard: int = Field(
        default=1, ge=1, description="Processes that shard weights, gradients and optimizer state of one copy (FSDP2)."
    )
    tensor: int = Field(default=1, ge=1, description="Processes that split each matrix (tensor parallelism).")


# Stages


# The module of each schema, imported on demand, so that a command loads only its own.
STAGES = {
    "build": "corpus_stages:BuildRecipe",
    "build-terms": "corpus_stages:TermsRecipe",
    "distill": "pretrain:DistillRecipe",
    "finetune": "finetune:FinetuneRecipe",
    "learn-vocab": "corpus_stages:VocabRecipe",
    "pretrain": "pretrain:PretrainRecipe",
    "reproduce": "study:StudyRecipe",
    "shard": "corpus_stages:ShardRecipe",
}


def schema_of(stage: str) -> type[Recipe]:
    """The schema of a stage's recipes."""
    module, _, name = STAGES[stage].partition(":")
    schema: type[Recipe] = getattr(import_module(f"lexome.recipe.{module}"), name)
    return schema
