"""Checkpoints of other frameworks, converted to Hugging Face's format in memory.

google     TensorFlow 1 checkpoints of Google's BERT (BioBERT), read without TensorFlow
fairseq    fairseq's RoBERTa (bio-lm)
megatron   Megatron-LM's BERT, of one or several tensor-parallel ranks
nemo       NVIDIA's .nemo archives (BioMegatron)
pickle     Hugging Face folders from before safetensors
onnx       a BERT exported to ONNX by torch, with its config.json
"""

from pathlib import Path

from lexome.errors import CheckpointError
from lexome.models.foreign import fairseq, legacy_hf, megatron, onnx_weights, tensorflow
from lexome.models.foreign.release import ForeignCheckpoint, Release

__all__ = ["ForeignCheckpoint", "detect", "read_foreign"]

_READERS = {
    tensorflow.LAYOUT: tensorflow.read,
    fairseq.LAYOUT: fairseq.read,
    megatron.LAYOUT: megatron.read,
    megatron.NEMO_LAYOUT: megatron.read_nemo,
    legacy_hf.LAYOUT: legacy_hf.read,
    onnx_weights.LAYOUT: onnx_weights.read,
}


def detect(path: Path) -> str | None:
    """The layout of a folder, archive or file, by its file names only; None if unknown."""
    with Release(path) as release:
        return _layout(release)


def read_foreign(path: Path) -> ForeignCheckpoint:
    """Read the model in a folder, an archive (.tar, .tar.gz, .nemo) or a file; CheckpointError if it is unknown.

    No code in it is executed, and no archive is extracted. Unknown weights raise.
    """
    with Release(path) as release:
        layout = _layout(release)
        if layout is None:
            names = ", ".join(release.names[:5]) or "no files"
            known = "Google's BERT, fairseq, Megatron, NeMo, pytorch_model.bin or ONNX, each with its configuration"
            message = f"{path}: not a known checkpoint (it has {names}). Expected {known}."
            raise CheckpointError(message, code="unknown-layout", value=path)
        return _READERS[layout](release)


def _layout(release: Release) -> str | None:
    if megatron.find_nemo_weights(release):
        return megatron.NEMO_LAYOUT
    # A folder with several formats was converted by its authors; any of them will do.
    if "config.json" in release.names and "pytorch_model.bin" in release.names and release.selected is None:
        return legacy_hf.LAYOUT if legacy_hf.find_weights(release) else None
    if tensorflow.find_index(release):
        return tensorflow.LAYOUT
    if fairseq.find_model(release):
        return fairseq.LAYOUT
    if megatron.find_ranks(release):
        return megatron.LAYOUT
    if legacy_hf.find_weights(release):
        return legacy_hf.LAYOUT
    return onnx_weights.LAYOUT if onnx_weights.find_graph(release) else None
