"""Small copies of data sets, made by tests in the forms their owners publish."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

GENES = "BRCA1\tB\nbinds\tO\nTP53\tB\n.\tO\n"
LONG = "this\tO\nsentence\tO\nis\tO\nlong\tO\nenough\tO\nto\tO\ntell\tO\n"


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files under a folder, which is returned."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def columns(root: Path, name: str = "BC2GM", **splits: str) -> Path:
    """A set in BioBERT's columns, with the same sentence in each split unless others are given."""
    return write(root, {f"{name}/{split}.tsv": splits.get(split, GENES) for split in ("train", "devel", "test")})


def packed(path: Path, files: Mapping[str, str]) -> None:
    """A tar archive, compressed by its ending, that holds these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, f"w:{path.suffix[1:]}") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            raw = text.encode()
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))


def folds(root: Path, name: str = "GAD", *, last: str = "1") -> Path:
    """A set of ten folds as BioBERT's authors pack it: train without a header, test with one.

    `last` is the label of the first test row of fold 10; the other row there is 0.
    """
    files = {}
    for fold in range(1, 11):
        label = "1" if fold < 10 else last
        files[f"{name}/{fold}/train.tsv"] = (
            f"fold {fold} : @GENE$ causes @DISEASE$ .\t1\nfold {fold} : @GENE$ spares @DISEASE$ .\t0\n"
        )
        files[f"{name}/{fold}/test.tsv"] = (
            f"index\tsentence\tlabel\n0\ttest {fold} : @GENE$ and @DISEASE$ .\t{label}\n1\t@GENE$ or @DISEASE$ ?\t0\n"
        )
    packed(root / name / "folds.tar.xz", files)
    return root
