"""pretrain and distill: train an encoder, new or from a checkpoint, on token shards."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.models import checkpoint
from lexome.models.backend import TransformersMaskedLM
from lexome.models.checkpoint import Checkpoint
from lexome.models.encoder import EncoderConfig
from lexome.models.heads import MaskedLM
from lexome.models.hf import ARCHITECTURES
from lexome.models.hf_folder import find_checkpoint, weights_sha256
from lexome.recipe import Table
from lexome.recipe.pretrain import DistillRecipe, PretrainRecipe
from lexome.training.loop import Clock
from lexome.training.losses import (
    DistilledLM,
    DistillingLoss,
    LossWeights,
    PretrainingLoss,
    SentenceLoss,
    SentenceWeights,
    compile_encoder,
    compile_layers,
    projection,
)
from lexome.training.session import MODEL, Objective, ShardBatches, initial_model, run_training
from lexome.training.start import (
    Start,
    Teacher,
    build_model,
    check_layout,
    check_start,
    load_teacher_encoder,
    same_tokenizer,
    start_sha256,
)
from lexome.training.trainer import Line, Setting

Located = TypeVar("Located", bound=Table)


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The result of a run. `new` is False if the run had already finished."""

    folder: Path
    steps: int
    tokens: int
    seconds: float
    loss: float | None
    held_out: Line | None
    new: bool


def pretrain(recipe: PretrainRecipe, *, progress_shown: bool = True, clock: Clock = time.monotonic) -> Pretrained:
    """Pre-train an encoder, or resume an interrupted run, and write the checkpoint folder.

    A finished run is not repeated. A killed one resumes from its last training state, bit-exactly on the same hardware
    unless its length is a time budget. Ctrl-C and SIGTERM save the state after the current step and raise a
    KeyboardInterrupt. Under torchrun, this process is one of several in the run.
    """
    recipe = _with_folders(recipe, "start")
    if recipe.embedding_distillation is not None:
        located = _with_folders(recipe.embedding_distillation, "teacher")
        recipe = recipe.model_copy(update={"embedding_distillation": located})
    inputs_sha256 = start_sha256(recipe.start)
    if recipe.embedding_distillation is not None:
        inputs_sha256 += weights_sha256(recipe.embedding_distillation.teacher)
    run, new = run_training(
        recipe,
        partial(mlm_objective, recipe),
        inputs_sha256=inputs_sha256,
        progress_shown=progress_shown,
        clock=clock,
    )
    return Pretrained(recipe.out / MODEL, run.steps, run.tokens, run.seconds, run.loss, run.held_out, new=new)


def _with_folders(table: Located, *keys: str) -> Located:
    """The table with folders for the names of models in the Hugging Face cache."""
    paths = {key: path for key in keys if isinstance(path := getattr(table, key), Path)}
    return table.model_copy(update={key: find_checkpoint(path) for key, path in paths.items()})


def mlm_objective(recipe: PretrainRecipe, data: ShardBatches, setting: Setting) -> Objective:
    """Masked language modeling with the recipe's model, and sentence-pair classification if the text has pairs."""
    transfer = recipe.new_vocabulary == "transfer"
    start = initial_model(recipe, data, start=recipe.start, transfer=transfer, paired=data.text.paired)
    if recipe.embedding_distillation is not None or recipe.contrastive is not None:
        return sentence_objective(recipe, start, data, setting)
    loss = PretrainingLoss(compiled=setting.compiled, autocast=setting.autocast)
    return Objective(start, start.model, loss, loss)


def sentence_objective(recipe: PretrainRecipe, start: Start, data: ShardBatches, setting: Setting) -> Objective:
    """Masked language modeling combined with the sentence-level objectives of the recipe."""
    model = require_own_encoder(start.model, who="model")
    distillation, contrastive = recipe.embedding_distillation, recipe.contrastive
    teacher, projected, weights = None, None, SentenceWeights()
    if distillation is not None:
        folder = distillation.teacher
        transfer = distillation.new_vocabulary == "transfer"
        teacher = load_teacher_encoder(folder, data.tokenizer, transfer=transfer, max_tokens=recipe.text.max_tokens)
        teacher.to(setting.device, torch.bfloat16 if setting.precision == "bf16" else torch.float32)
        if setting.compiled:
            compile_encoder(teacher)
        if teacher.config.hidden_size != model.encoder.config.hidden_size:
            projected = projection(model, teacher.config.hidden_size)
        start = replace(start, teacher=Teacher(folder, weights_sha256(folder), taught=True))
        weights = replace(weights, embedding=distillation.weight)
    if contrastive is not None:
        weights = replace(
            weights,
            contrastive=contrastive.weight,
            temperature=contrastive.temperature,
            pooling=contrastive.pooling,
        )
    loss = SentenceLoss(weights, teacher, compiled=setting.compiled, autocast=setting.autocast)
    # The contrastive loss among a few hundred texts starts near the logarithm of their number.
    scale = 1.0 + weights.embedding + 5 * weights.contrastive
    return Objective(start, DistilledLM(model, projected), loss, loss, scale=scale)


LAYERS = "encoder.layers."


def select_layers(teacher: MaskedLM, layers: Sequence[int]) -> MaskedLM:
    """A student with some of the teacher's layers, in this order, and its embeddings, final norm and head.

    All weights are copied, and layers renumbered: layer 4 of the teacher may be layer 2 of the student.
    """
    config = teacher.encoder.config
    check_layers(config, layers)
    weights = {name: weight for name, weight in teacher.state_dict().items() if not name.startswith(LAYERS)}
    for new, old in enumerate(layers):
        weights |= {
            f"{LAYERS}{new}.{name}": weight for name, weight in teacher.encoder.layers[old].state_dict().items()
        }
    with torch.device("meta"):
        student = MaskedLM(replace(config, layers=len(layers)))
    student.load_state_dict({name: weight.detach().clone() for name, weight in weights.items()}, assign=True)
    return student.requires_grad_(True)


def every_nth(layers: int, step: int) -> tuple[int, ...]:
    """Every n-th of this many layers: 0, n, 2n, ..."""
    return tuple(range(0, layers, step))


def check_layers(config: EncoderConfig, layers: Sequence[int]) -> None:
    """Raise UsageError if the teacher lacks a layer, or a layer would compute something else at its new index."""
    if not layers or max(layers) >= config.layers or min(layers) < 0:
        message = f"layers is {list(layers)}, but the teacher has layers 0 to {config.layers - 1}. Choose among those."
        raise UsageError(message, code="missing-layer", value=list(layers))
    for new, old in enumerate(layers):
        if _index_dependent(config, new) != _index_dependent(config, old):
            message = (
                f"layer {old} of the teacher would be layer {new} of the student, where the attention window, rotary "
                f"base or first norm differs. Start with layer 0, and map global layers (0, {config.global_every}, "
                f"{2 * config.global_every}, ...) to global layers, local ones to local ones."
            )
            raise UsageError(message, code="layer-mismatch", value=(old, new))


def _index_dependent(config: EncoderConfig, number: int) -> tuple[int | None, float, bool]:
    """The settings of a layer that depend on its index."""
    return config.window(number), config.rotary_base_of(number), config.first_norm or number > 0


def distill(recipe: DistillRecipe, *, progress_shown: bool = True, clock: Clock = time.monotonic) -> Pretrained:
    """Distill a teacher into a student, or resume an interrupted run, and write the checkpoint folder.

    Interruption and resumption are those of `pretrain`. With `control` the student is trained without the teacher,
    bit-exactly as by `pretrain`. The teacher is not modified.
    """
    recipe, teacher = _with_folders(recipe, "teacher", "student"), None
    if not recipe.control or recipe.student == "layers":
        check_layout(recipe.teacher)
        teacher = Teacher(recipe.teacher, weights_sha256(recipe.teacher), taught=not recipe.control)
    student = start_sha256(recipe.student) if isinstance(recipe.student, Path) else ""
    run, new = run_training(
        recipe,
        partial(distillation_objective, recipe, teacher),
        inputs_sha256=("" if teacher is None else teacher.sha256) + student,
        progress_shown=progress_shown,
        clock=clock,
    )
    return Pretrained(recipe.out / MODEL, run.steps, run.tokens, run.seconds, run.loss, run.held_out, new=new)


def distillation_objective(
    recipe: DistillRecipe, teacher: Teacher | None, data: ShardBatches, setting: Setting
) -> Objective:
    """The recipe's student and the distillation loss; masked language modeling alone for the control."""
    # A new student is initialized identically with and without a teacher.
    with torch.random.fork_rng(devices=[]):
        loaded = None if teacher is None else read_teacher(recipe, data)
    start = replace(student_of(recipe, data, loaded), teacher=teacher)
    if loaded is None or recipe.control:
        mlm = PretrainingLoss(compiled=setting.compiled, autocast=setting.autocast)
        return Objective(start, start.model, mlm, mlm)
    student = require_own_encoder(start.model, who="student")
    module = DistilledLM(student, projection_of(recipe, student, width=loaded.config.hidden_size))
    weights, teacher_model = loss_weights(recipe), place_teacher(loaded.model, setting)
    loss = DistillingLoss(teacher_model, weights, compiled=setting.compiled, autocast=setting.autocast)
    return Objective(start, module, loss, loss, scale=weights.mlm + weights.kl + weights.cosine)


def read_teacher(recipe: DistillRecipe, data: ShardBatches) -> Checkpoint:
    """Load the teacher, which must have the tokenizer of the shards and support text.max_tokens."""
    check_tokenizer(recipe.teacher, data.tokenizer, who="teacher")
    teacher, max_tokens = checkpoint.load(recipe.teacher, kind="masked"), recipe.text.max_tokens
    if teacher.config.max_tokens < max_tokens:
        limit = f"the teacher supports at most {teacher.config.max_tokens}"
        raise UsageError(f"text.max_tokens is {max_tokens}, but {limit}. Lower it.", code="too-long", value=max_tokens)
    return teacher


def student_of(recipe: DistillRecipe, data: ShardBatches, teacher: Checkpoint | None) -> Start:
    """The student: layers of the teacher, a checkpoint, or new."""
    if recipe.student == "layers":
        assert teacher is not None
        return _layer_student(recipe, teacher)
    if recipe.student is not None:
        check_tokenizer(recipe.student, data.tokenizer, who="student")
    return initial_model(recipe, data, start=recipe.student)


def _layer_student(recipe: DistillRecipe, teacher: Checkpoint) -> Start:
    layers = recipe.layers if recipe.layer_stride is None else every_nth(teacher.config.layers, recipe.layer_stride)
    student = select_layers(require_own_encoder(teacher.model, who="teacher"), layers)
    config = replace(teacher.config, layers=len(layers))
    model, config = build_model(student.state_dict(), config, recipe.model, kind="masked", where=recipe.teacher)
    start = Start(model, config, teacher.architecture, recipe.teacher, checkpoint=recipe.teacher, unused=teacher.unused)
    return check_start(start, max_tokens=recipe.text.max_tokens)


def projection_of(recipe: DistillRecipe, student: MaskedLM, *, width: int) -> nn.Linear | None:
    """A new projection of the student's hidden states to the teacher's hidden size, if the recipe needs one."""
    loss, size = recipe.loss, student.encoder.config.hidden_size
    needed = loss.projection if loss.projection is not None else size != width
    if loss.cosine and size != width and not needed:
        message = (
            f"the hidden size of the student is {size} and that of the teacher {width}, so the cosine loss needs a "
            "projection. Remove loss.projection, or set loss.cosine to 0."
        )
        raise UsageError(message, code="hidden-size-mismatch", value=(size, width))
    return projection(student, width) if loss.cosine and needed else None


def check_tokenizer(folder: Path, tokenizer: Path, *, who: str) -> None:
    """Raise CheckpointError if a model was trained with another tokenizer than that of the shards."""
    if same_tokenizer(folder, tokenizer):
        return
    actual = "a vocab.txt with other tokens"
    if (folder / TOKENIZER_FILE).is_file():
        actual = f"tokenizer {tokenizer_sha256(folder)[:12]}"
    message = (
        f"the shards use tokenizer {tokenizer_sha256(tokenizer)[:12]} ({tokenizer}), but the {who} in {folder} has "
        f"{actual}. Teacher and student must share a vocabulary: shard the text with the teacher's tokenizer, and use "
        "a student that is new or was trained with it."
    )
    raise CheckpointError(message, code="tokenizer-mismatch", value=folder)


def place_teacher(teacher: nn.Module, setting: Setting) -> MaskedLM | TransformersMaskedLM:
    """Move the teacher to the device and precision of the run."""
    teacher.to(setting.device, torch.bfloat16 if setting.precision == "bf16" else torch.float32)
    if isinstance(teacher, TransformersMaskedLM):
        return teacher
    if setting.compiled:
        compile_layers(teacher)
    return require_own_encoder(teacher, who="teacher")


def loss_weights(recipe: DistillRecipe) -> LossWeights:
    """The weights of the recipe's loss."""
    loss = recipe.loss
    return LossWeights(loss.mlm, loss.kl, loss.cosine, loss.temperature, loss.scale_by_temperature, loss.positions)


def require_own_encoder(model: nn.Module, *, who: str) -> MaskedLM:
    """The model itself; UsageError if it is not Lexome's own encoder."""
    if not isinstance(model, MaskedLM):
        message = (
            f"the {who} runs on the transformers backend, but this needs Lexome's own encoder: "
            f"{', '.join(ARCHITECTURES)}. A model on that backend can only be the teacher of a new student."
        )
        raise UsageError(message, code="unsupported-backend", value=who)
    return model
