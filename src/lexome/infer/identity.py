"""Which model a folder holds: its name, and a hash of everything that its findings depend on."""

import hashlib
from pathlib import Path

# The graph with its weights, settings, tokenizer. The certificate and the card change nothing that is found.
PARTS = ("*.onnx*", "onnx/*.onnx*", "*.json", "*.txt", "*.model")
WITHOUT = ("certificate.json",)


def identity_of(folder: Path) -> dict[str, str]:
    """The folder's name and the SHA-256 of its files, the same wherever the folder is."""
    digest = hashlib.sha256()
    files = {path for part in PARTS for path in folder.glob(part) if path.is_file() and path.name not in WITHOUT}
    for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
        with path.open("rb") as stream:
            own = hashlib.file_digest(stream, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {own}\n".encode())
    return {"name": folder.resolve().name, "sha256": digest.hexdigest()}
