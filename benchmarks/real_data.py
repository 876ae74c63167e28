"""The folder of real data that benchmarks read unless another one is named."""

from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DATASETS = DATA / "benchmarks"
ABSTRACTS = DATA / "corpus" / "abstracts"
