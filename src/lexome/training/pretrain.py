"""pretrain and distill: token shards and an encoder, new or from a checkpoint, into a checkpoint folder."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

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
from lexome.models.hf_folder import weights_sha256
from lexome.recipe.pretrain import DistillRecipe, PretrainRecipe
from lexome.training.loop import Clock
from lexome.training.losses import (
    DistilledLM,
    DistillingLoss,
    PretrainingLoss,
    Weights,
    compile_encoder,
    compile_layers,
    projection,
)
from lexome.training.objectives import SentenceLoss, SentenceWeights
from lexome.training.session import MODEL, Objective, ShardBatches, run_training
from lexome.training.start import (
    Start,
    Teacher,
    begin,
    checked,
    fitted,
    hash_of,
    load_teacher_encoder,
    refuse_foreign,
    same_tokenizer,
)
from lexome.training.trainer import Line, Setting


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The result of a run. `new` is False where it was finished before and nothing was done."""

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
    KeyboardInterrupt. Where torchrun started this process, it is one of many on the run.
    """
    inputs_sha256 = hash_of(recipe.start)
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


def mlm_objective(recipe: PretrainRecipe, data: ShardBatches, setting: Setting) -> Objective:
    """Masked language modeling with the recipe's model, and classification of pairs where the text has them."""
    start = begin(
        recipe,
        data.tokenizer,
        data.pieces.size,
        start=recipe.start,
        carried=recipe.new_vocabulary == "transfer",
        paired=data.text.paired,
    )
    if recipe.embedding_distillation is not None or recipe.contrastive is not None:
        return sentence_objective(recipe, start, data, setting)
    loss = PretrainingLoss(compiled=setting.compiled, autocast=setting.autocast)
    return Objective(start, start.model, loss, loss)


def sentence_objective(recipe: PretrainRecipe, start: Start, data: ShardBatches, setting: Setting) -> Objective:
    """Masked language modeling with the sentence-level objectives of the recipe beside it."""
    model, distillation, contrastive = own(start.model, who="model"), recipe.embedding_distillation, recipe.contrastive
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


def subset(teacher: MaskedLM, layers: Sequence[int]) -> MaskedLM:
    """A model of some of the teacher's layers, in this order, with its embeddings, last norm and head.

    All weights are copies. Layer 4 of the teacher may be layer 2 of the student; all other names are the same.
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


def every(layers: int, step: int) -> tuple[int, ...]:
    """Layers 0, n, 2n, ... of this many."""
    return tuple(range(0, layers, step))


def check_layers(config: EncoderConfig, layers: Sequence[int]) -> None:
    """UsageError where the teacher lacks a layer, or a layer would compute something else at its new index."""
    if not layers or max(layers) >= config.layers or min(layers) < 0:
        raise UsageError(
            f"layers is {list(layers)}, but the teacher has layers 0 to {config.layers - 1}. Choose some of those."
        )
    for new, old in enumerate(layers):
        if _manner(config, new) != _manner(config, old):
            raise UsageError(
                f"layer {old} of the teacher would be layer {new} of the student, where layers have another window, "
                f"other angles or no norm. Begin with layer 0, and keep layers 0, {config.global_every}, "
                f"{2 * config.global_every}, ... of the teacher at such places, and all others at others."
            )


def _manner(config: EncoderConfig, number: int) -> tuple[int | None, float, bool]:
    """What of a layer's computation depends on its index."""
    return config.window(number), config.rotary_base_of(number), config.first_norm or number > 0


def distill(recipe: DistillRecipe, *, progress_shown: bool = True, clock: Clock = time.monotonic) -> Pretrained:
    """Distill a teacher into a student, or resume an interrupted run, and write the checkpoint folder.

    It is interrupted and resumes as `pretrain`. With `control` the student is trained without the teacher, and ends
    bit-exactly as with `pretrain`. The teacher is only read.
    """
    teacher = None
    if not recipe.control or recipe.student == "layers":
        refuse_foreign(recipe.teacher)
        teacher = Teacher(recipe.teacher, weights_sha256(recipe.teacher), taught=not recipe.control)
    student = hash_of(recipe.student) if isinstance(recipe.student, Path) else ""
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
    # Apart from the run's own random numbers, so that a new student starts the same with a teacher and without.
    with torch.random.fork_rng(devices=[]):
        found = None if teacher is None else read_teacher(recipe, data)
    start = replace(student_of(recipe, data, found), teacher=teacher)
    if found is None or recipe.control:
        alone = PretrainingLoss(compiled=setting.compiled, autocast=setting.autocast)
        return Objective(start, start.model, alone, alone)
    student = own(start.model, who="student")
    module = DistilledLM(student, projection_of(recipe, student, width=found.config.hidden_size))
    given, teaching = weights_of(recipe), placed(found.model, setting)
    loss = DistillingLoss(teaching, given, compiled=setting.compiled, autocast=setting.autocast)
    return Objective(start, module, loss, loss, scale=given.mlm + given.kl + given.cosine)


def read_teacher(recipe: DistillRecipe, data: ShardBatches) -> Checkpoint:
    """The teacher, which must have the tokenizer of the shards and take sequences of their length."""
    check_tokenizer(recipe.teacher, data.tokenizer, who="teacher")
    found = checkpoint.load(recipe.teacher, kind="masked")
    if found.config.max_tokens < recipe.text.max_tokens:
        raise UsageError(
            f"text.max_tokens is {recipe.text.max_tokens}, but the teacher takes {found.config.max_tokens} at most. "
            "Lower it."
        )
    return found


def student_of(recipe: DistillRecipe, data: ShardBatches, teacher: Checkpoint | None) -> Start:
    """The student: layers of the teacher, a checkpoint, or new."""
    if recipe.student == "layers":
        assert teacher is not None
        return _of_layers(recipe, teacher)
    if recipe.student is not None:
        check_tokenizer(recipe.student, data.tokenizer, who="student")
    return begin(recipe, data.tokenizer, data.pieces.size, start=recipe.student)


def _of_layers(recipe: DistillRecipe, teacher: Checkpoint) -> Start:
    numbers = recipe.layers if recipe.layer_stride is None else every(teacher.config.layers, recipe.layer_stride)
    student = subset(own(teacher.model, who="teacher"), numbers)
    config = replace(teacher.config, layers=len(numbers))
    model, config = fitted(student.state_dict(), config, recipe.model, kind="masked", where=recipe.teacher)
    start = Start(model, config, teacher.architecture, recipe.teacher, checkpoint=recipe.teacher, unused=teacher.unused)
    return checked(start, max_tokens=recipe.text.max_tokens)


def projection_of(recipe: DistillRecipe, student: MaskedLM, *, width: int) -> nn.Linear | None:
    """A new projection of the student's hidden states to the teacher's width, where the recipe has one."""
    given, narrow = recipe.loss, student.encoder.config.hidden_size
    wanted = given.projection if given.projection is not None else narrow != width
    if given.cosine and narrow != width and not wanted:
        raise UsageError(
            f"the student is {narrow} wide and the teacher {width}, so their hidden states cannot be compared as they "
            "are. Leave loss.projection out, or set loss.cosine to 0."
        )
    return projection(student, width) if given.cosine and wanted else None


def check_tokenizer(folder: Path, tokenizer: Path, *, who: str) -> None:
    """CheckpointError where a model was trained with another tokenizer than that of the shards."""
    if same_tokenizer(folder, tokenizer):
        return
    there = "no tokenizer.json, and other pieces"
    if (folder / TOKENIZER_FILE).is_file():
        there = f"tokenizer {tokenizer_sha256(folder)[:12]}"
    raise CheckpointError(
        f"the shards were made with tokenizer {tokenizer_sha256(tokenizer)[:12]} ({tokenizer}), and the {who} in "
        f"{folder} has {there}. Teacher and student must guess among the same pieces: shard the text with the "
        "teacher's tokenizer, and take a student that was trained with it or is new."
    )


def placed(teacher: nn.Module, setting: Setting) -> MaskedLM | TransformersMaskedLM:
    """The teacher on the device and in the precision of the run."""
    teacher.to(setting.device, torch.bfloat16 if setting.precision == "bf16" else torch.float32)
    if isinstance(teacher, TransformersMaskedLM):
        return teacher
    if setting.compiled:
        compile_layers(teacher)
    return own(teacher, who="teacher")


def weights_of(recipe: DistillRecipe) -> Weights:
    """The weights of the recipe's loss."""
    given = recipe.loss
    return Weights(given.mlm, given.kl, given.cosine, given.temperature, given.scale_by_temperature, given.positions)


def own(model: nn.Module, *, who: str) -> MaskedLM:
    """The model, where it is Lexome's own encoder; else UsageError."""
    if not isinstance(model, MaskedLM):
        raise UsageError(
            f"the {who} is computed by transformers, and only models of Lexome's own encoder can learn from a teacher "
            f"or give layers: {', '.join(ARCHITECTURES)}. Such a model can be the teacher of a new student."
        )
    return model
