"""Google's BERT as its TensorFlow 1 program saves it: BioBERT's own release, and Bioformer's and BlueBERT's.

model.ckpt-1000000.index, .data-0000I-of-0000N, bert_config.json, vocab.txt; the graph in .meta is not needed.
"""

import re
from pathlib import PurePosixPath

import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.bundle import Bundle
from lexome.models.foreign.release import Release
from lexome.models.foreign.result import Foreign, missing, read_json, unknown
from lexome.models.foreign.tokens import wordpiece_files

LAYOUT = "google"

_TABLES = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
    "cls/predictions/output_bias": "cls.predictions.bias",
    # Saved as it is used by PyTorch, unlike every kernel.
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
}

_DENSE = re.compile(
    r"bert/encoder/layer_\d+/(attention/self/(query|key|value)|attention/output/dense|intermediate/dense|output/dense)"
    r"|bert/pooler/dense|cls/predictions/transform/dense"
)
_NORM = re.compile(
    r"bert/encoder/layer_\d+/(attention/)?output/LayerNorm|bert/embeddings/LayerNorm|cls/predictions/transform/LayerNorm"
)
_OURS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_OPTIMIZER = re.compile(r"global_step|.*/adam_[mv]|beta[12]_power")


def find_index(release: Release) -> str | None:
    """The index of the checkpoint to read: the one named, the last one saved, or the only one."""
    found = release.find("*.index")
    if release.chosen is not None:
        stem = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", release.chosen)
        return f"{stem}.index" if f"{stem}.index" in found else None
    if len(found) > 1 and "checkpoint" in release.names:
        last = re.search(rb'^model_checkpoint_path: "([^"]+)"', release.read("checkpoint"), re.MULTILINE)
        name = PurePosixPath(last[1].decode(errors="replace")).name if last else ""
        found = [f"{name}.index"] if f"{name}.index" in found else found
    if len(found) > 1:
        raise CheckpointError(
            f"{release.path} has the checkpoints {', '.join(name.removesuffix('.index') for name in found)}. "
            "Name one of them instead of the folder."
        )
    return found[0] if found else None


def read(release: Release) -> Foreign:
    """The checkpoint, its kernels transposed; all else stays mapped from the file."""
    index = find_index(release)
    assert index is not None  # detected by it
    bundle = Bundle(release, index)
    left_out = [name for name in bundle.entries if _OPTIMIZER.fullmatch(name)]
    names = {name: hf_name(name) for name in bundle.entries if name not in set(left_out)}
    strange = [name for name, ours in names.items() if ours is None]
    if strange:
        raise unknown(release.where(index), strange, layout="Google's BERT")
    weights = {}
    for name, ours in names.items():
        tensor = bundle.tensor(name)
        # A copy, and not a view across: a model that takes the tensor as it is would be slow ever after.
        weights[str(ours)] = tensor.t().contiguous() if name.endswith("/kernel") else tensor
    config = _config(release, weights, release.where(index))
    files = {}
    if "vocab.txt" in release.names:
        rows = weights["bert.embeddings.word_embeddings.weight"].shape[0]
        longest = weights["bert.embeddings.position_embeddings.weight"].shape[0]
        files = wordpiece_files(release.read("vocab.txt"), rows=rows, longest=longest)
    return Foreign(LAYOUT, config, weights, files, tuple(sorted(left_out)))


def hf_name(name: str) -> str | None:
    """Hugging Face's name of a tensor; None for one that BERT does not have."""
    if name in _TABLES:
        return _TABLES[name]
    module, _, last = name.rpartition("/")
    if not (
        (last in ("kernel", "bias") and _DENSE.fullmatch(module))
        or (last in ("gamma", "beta") and _NORM.fullmatch(module))
    ):
        return None
    module = re.sub(r"/layer_(\d+)/", r"/layer/\1/", module)
    return f"{module}/{_OURS[last]}".replace("/", ".")


def _config(release: Release, weights: dict[str, torch.Tensor], where: str) -> dict[str, object]:
    found = release.find("bert_config.json") or release.find("config.json") or release.find("*config*.json")
    if len(found) != 1:
        raise CheckpointError(f"{release.path}: no bert_config.json, which says how many heads there are. Add it.")
    config = read_json(release, found[0])
    for table in ("bert/embeddings/word_embeddings", "bert/embeddings/position_embeddings"):
        if _TABLES[table] not in weights:
            raise missing(where, table, layout="BERT")
    rows, width = weights["bert.embeddings.word_embeddings.weight"].shape
    said = (config.get("vocab_size"), config.get("hidden_size"))
    if said != (rows, width):
        raise CheckpointError(
            f"{release.where(found[0])} says {said[0]} pieces of width {said[1]}, but the checkpoint has "
            f"{rows} of {width}. Use the file that came with it."
        )
    heads = {name.partition(".")[2].partition(".")[0] for name in weights if name.startswith("cls.")}
    architecture = {0: "BertModel", 2: "BertForPreTraining"}.get(len(heads))
    architecture = architecture or ("BertForMaskedLM" if "predictions" in heads else "BertForNextSentencePrediction")
    return {"layer_norm_eps": 1e-12, "pad_token_id": 0, **config, "model_type": "bert", "architectures": [architecture]}
