"""The folder of real data beside the project; tests that need it are skipped where it is missing."""

from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared"
DATA = SHARED / "data"
