"""Checkpoints of other frameworks, turned into Hugging Face's form in memory.

google     TensorFlow 1 checkpoints of Google's BERT (BioBERT), read without TensorFlow
fairseq    fairseq's RoBERTa (bio-lm)
megatron   Megatron-LM's BERT, of one or several tensor-parallel ranks
nemo       NVIDIA's .nemo archives (BioMegatron)
pickle     Hugging Face folders of before safetensors
onnx       a BERT exported to ONNX by torch, its configuration beside it
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
    """The layout of a folder, archive or file, by the names in it and no more; None where it is none of ours."""
    with Release(path) as release:
        return _layout(release)


def read_foreign(path: Path) -> ForeignCheckpoint:
    """The model in a folder, an archive (.tar, .tar.gz, .nemo) or a file; CheckpointError where it cannot be read.

    Nothing in it is run, and no archive is extracted. Weights that the layout does not have raise.
    """
    with Release(path) as release:
        layout = _layout(release)
        if layout is None:
            seen = ", ".join(release.names[:5]) or "nothing"
            raise CheckpointError(
                f"{path}: no checkpoint that is known here (it has {seen}). Expected a TensorFlow checkpoint with "
                "bert_config.json, fairseq's model.pt with dict.txt, Megatron's mp_rank_00, a .nemo archive, or "
                "config.json with pytorch_model.bin or onnx/model.onnx."
            )
        return _READERS[layout](release)


def _layout(release: Release) -> str | None:
    if megatron.find_weights(release):
        return megatron.NEMO_LAYOUT
    # A folder with both was converted by its authors, so the conversion is as good as the source.
    if "config.json" in release.names and "pytorch_model.bin" in release.names and release.chosen is None:
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
