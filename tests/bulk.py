"""Small bulk work for the pipeline's tests: stages, and a program that runs one so that it can be killed.

Run as a program: `bulk.py FOLDER WORKERS` does the letters stage, `bulk.py FOLDER slow` one that takes minutes.
"""

import os
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from lexome.errors import FormatError
from lexome.files import fingerprint
from lexome.pipeline import Advance, Engine, Job, Stage, Work, require_complete, run

BLOCK = 64
# Between two blocks: slow enough to be killed inside a job. The stage's settings are another pause.
PAUSE_S = 0.002


def count_letters(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Two outputs, block by block and slowly: the text in capitals, and how often each letter is in it."""
    letters: Counter[str] = Counter()
    with job.inputs[0].open("rb") as source, drafts[0].open("wb") as capitals:
        while block := source.read(BLOCK):
            capitals.write(block.upper())
            capitals.flush()
            letters.update(block.decode())
            advance(len(block))
            time.sleep(job.settings)
    drafts[1].write_text("".join(f"{letter}\t{count}\n" for letter, count in sorted(letters.items())))
    return {"letters": letters.total(), "kinds": (len(letters),)}


def choke_on_poison(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """As above, but what the input says first is done to the worker."""
    match job.inputs[0].read_text().split()[0]:
        case "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        case "EXIT":
            os._exit(3)
        case "LEAVE":
            sys.exit("left")
        case "RAISE":
            drafts[0].write_text("half")
            raise ValueError("no such gene")
        case "FULL":
            Path("/dev/full").write_text("no room")
        case "REFUSE":
            raise FormatError("this is no file of mine")
        case "SILENT":
            return {}
        case "UNSAYABLE":
            drafts[0].write_text("all")
            drafts[1].write_text("all")
            return {"path": job.inputs[0]}
        case "ONCE" if not (trace := job.inputs[0].with_suffix(".trace")).exists():
            trace.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return count_letters(job, drafts, advance)


def wait_at_gate(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """As count_letters; but all jobs except two wait until the file that the settings name is there."""
    while not job.name.endswith(("abstract1", "abstract2")) and not job.settings.exists():
        time.sleep(PAUSE_S)
    return count_letters(replace(job, settings=0), drafts, advance)


def tell_process(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Writes its process id where the settings say, and takes a minute over it."""
    (job.settings / f"{os.getpid()}").touch()
    drafts[0].write_text("half")
    time.sleep(60)
    return {}


def stage(folder: Path, work: Work = count_letters, *, settings: object = PAUSE_S) -> Stage:
    """The stage over folder/in/*.txt, into folder/out."""
    jobs = tuple(
        Job(
            name=f"texts/{path.stem}",
            inputs=(path,),
            outputs=(folder / "out" / f"{path.stem}.txt", folder / "out" / f"{path.stem}.tsv"),
            settings=settings,
        )
        for path in sorted((folder / "in").glob("*.txt"))
    )
    return Stage("letters", work, jobs, folder / "marks", fingerprint(settings))


def texts(folder: Path, contents: dict[str, str]) -> Path:
    """The folder, with these files to read."""
    (folder / "in").mkdir(parents=True)
    for name, content in contents.items():
        (folder / "in" / f"{name}.txt").write_text(content)
    return folder


def made(folder: Path) -> dict[str, bytes]:
    """Everything under folder/out and folder/marks, hidden or not: its path and bytes."""
    paths = [path for part in ("out", "marks") for path in (folder / part).rglob("*")]
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"folder" for path in paths}


def main(folder: Path, how: str) -> None:
    """Runs the stage as the command line would: SIGTERM is an interruption, and that ends with 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if how == "slow":
            run(stage(folder, tell_process, settings=folder / "pids"), engine=Engine(workers=2))
        else:
            require_complete(run(stage(folder), engine=Engine(workers=int(how))))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
