"""build: literature of any format into cleaned, deduplicated records, and the table that says what became of it.

    read     each file: filters, Unicode, sentences, keys                 a job a file
    newest   all keys: versions, deletions, exact duplicates              one job
    bands    a band of all signatures: who may be a near duplicate        a job a band
    decide   near duplicates, sizes of sources                            one job
    write    the documents that stay                                      a job a file

What is made on the way lies in OUT/.lexome and goes when all is done.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from lexome.corpus.building import choosing, leakage
from lexome.corpus.building.decisions import Verdict
from lexome.corpus.building.reading import ReadSettings, read_file
from lexome.corpus.building.table import Corpus, counted
from lexome.corpus.claim import Claim, said
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, expand, units
from lexome.formats.files import plain_name, replacing, shown_name
from lexome.pipeline import Advance, Engine, Job, Outcome, Part, Stage, connected, fingerprint, run, whole
from lexome.recipe.build import BuildRecipe

# Raised when the same recipe and files would give other records than before.
VERSION = 3

# What reading makes of a file: documents, keys, signatures, and what was set aside.
ENDINGS = (".parquet", ".keys.npz", ".signatures", ".rejects.jsonl")

LOCAL = Engine()


@dataclass(frozen=True, slots=True)
class Built:
    """What a build came to: the corpus where it is complete, and files that failed or wait for other parts."""

    corpus: Corpus | None
    failures: dict[str, str]
    waiting: tuple[str, ...] = ()


def build(
    recipe: BuildRecipe, *, engine: Engine = LOCAL, part: Part | None = None, progress_shown: bool = True
) -> Built:
    """Make the records of a recipe under its `out`; what an earlier run has done is not done again.

    A folder that another recipe made is refused, unless the recipe says `overwrite`. With `part`, every stage does only
    its share, and the work ends where it must wait for other parts.
    """
    runner = _Runner(recipe, engine, part, progress_shown)
    inputs = _inputs(recipe)
    claim = _claim(recipe, runner.work)
    claim.require()
    identity = fingerprint("build", VERSION, said(recipe), _identities(recipe, inputs))
    corpus = Corpus.load(recipe.out)
    if corpus is not None and corpus.identity == identity and _all_here(recipe, corpus):
        # What a run leaves that is killed after its last file and before its last sweep.
        shutil.rmtree(runner.work, ignore_errors=True)
        return Built(corpus, {})
    claim.note()
    with connected(engine):
        return _built(runner, inputs, identity)


def _claim(recipe: BuildRecipe, work: Path) -> Claim:
    """The folder of a recipe, before anything in it is replaced."""
    taken = tuple(recipe.out / name for name in ("corpus.json", "corpus.md", "rejects.jsonl", "records"))
    return Claim(recipe, "a corpus", work, recipe.out / "corpus.json", taken)


def _built(runner: "_Runner", inputs: dict[str, tuple[Path, ...]], identity: str) -> Built:
    """Every stage in turn, as far as this part can go."""
    recipe = runner.recipe
    reading = runner.read(inputs)
    if reading.waiting or not reading.reports:
        return Built(None, reading.failures, reading.waiting)
    names = list(reading.reports)
    outcome = runner.choose(names)
    if outcome is None:
        return Built(None, reading.failures, ("the choice of documents, which one part makes for all",))
    # From here on records change, and a table of earlier ones must not vouch for them if this run is cut short.
    earlier = Corpus.load(recipe.out)
    if earlier is None or earlier.identity != identity:
        (recipe.out / "corpus.json").unlink(missing_ok=True)
    written = runner.write(names)
    if written.failures or written.waiting:
        return Built(None, reading.failures | written.failures, written.waiting)
    corpus = counted(recipe, reading.reports, outcome, identity=identity if not reading.failures else "")
    _finish(recipe, corpus, runner.rejects(names), keep=bool(reading.failures))
    return Built(corpus, reading.failures)


def _inputs(recipe: BuildRecipe) -> dict[str, tuple[Path, ...]]:
    """The files of each reading job, by its name, in the recipe's order."""
    jobs: dict[str, tuple[Path, ...]] = {}
    for source in recipe.sources:
        try:
            sets = units(source.paths, source.format, Tally())
        except FormatError as error:
            raise FormatError(f"source {source.name}: {error}") from None
        for files in sets:
            _require_outside(files, recipe.out / "records")
            stem = shown_name(PurePosixPath(plain_name(files[0].name)).stem or files[0].name)
            name = f"{source.name}/{stem}"
            if name in jobs:
                name = f"{source.name}/{shown_name(files[0].parent.name)}-{stem}"
            if name in jobs:
                raise UsageError(
                    f"source {source.name}: {files[0]} and {jobs[name][0]} would have records of the same name. "
                    "Make them sources of their own, or rename one."
                )
            jobs[name] = files
    return jobs


def _require_outside(files: Sequence[Path], records: Path) -> None:
    """UsageError for an input among the records, where what this build did not make is cleared away at its end."""
    for file in files:
        if file.resolve().is_relative_to(records.resolve()):
            raise UsageError(f"{file}: is both input and among the records to be made. Name another out.")


def _identities(recipe: BuildRecipe, inputs: dict[str, tuple[Path, ...]]) -> list[tuple[str, int, int]]:
    """Every file that the records depend on, with its size and time of change."""
    files = [*(file for set_ in inputs.values() for file in set_), *_leakage_files(recipe)]
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _leakage_files(recipe: BuildRecipe) -> list[Path]:
    """The files of the benchmark sets; of a folder each one, for its own time says nothing of what is in them."""
    return expand(recipe.leakage.sets, None, Tally())


def _all_here(recipe: BuildRecipe, corpus: Corpus) -> bool:
    return all((recipe.out / name).exists() for name in corpus.files)


class _Runner:
    """The stages of one build, and where each puts what it makes."""

    def __init__(self, recipe: BuildRecipe, engine: Engine, part: Part | None, shown: bool) -> None:
        self.recipe = recipe
        self.engine = engine
        self.part = part
        self.shown = shown
        self.work = recipe.out / ".lexome"

    def read(self, inputs: dict[str, tuple[Path, ...]]) -> Outcome:
        """Every file read, cleaned and keyed."""
        settings = {
            source.name: ReadSettings(
                source,
                self.recipe.languages,
                self.recipe.min_words,
                self.recipe.retracted,
                self.recipe.near,
                self.recipe.leakage.action,
                self._benchmarks(),
            )
            for source in self.recipe.sources
        }
        jobs = tuple(
            Job(name, files, self._read_outputs(name), settings[name.partition("/")[0]])
            for name, files in inputs.items()
        )
        parts = (self.recipe.model_dump(mode="json", exclude={"out", "seed", "overwrite"}), self._leak_identity())
        return self._run("read", read_file, jobs, *parts)

    def rejects(self, names: Sequence[str]) -> list[Path]:
        """What reading these files set aside."""
        return [self._read_outputs(name)[-1] for name in names]

    def choose(self, names: Sequence[str]) -> dict[str, Any] | None:
        """What is decided over all files together, or None where that is another part's work that is not done."""
        keys = tuple(self._read_outputs(name)[1] for name in names)
        sources = [self._rank(name) for name in names]
        settings = (sources, self.recipe)
        verdicts = self.work / "newest.npy"
        first = self._run("newest", choosing.newest, (Job("newest", keys, (verdicts,), settings),), names)
        if first.waiting or not whole(first):
            return None
        bands = self._bands(keys, verdicts, names)
        if bands is None:
            return None
        job = Job("decide", (verdicts, *bands, *keys), (self.work / "verdicts.npz",), (*settings, tuple(names)))
        last = self._run("decide", choosing.decide, (job,), names, self.recipe.seed)
        return whole(last)["decide"] if not last.waiting else None

    def write(self, names: Sequence[str]) -> Outcome:
        """The records of every file."""
        jobs = tuple(
            Job(
                name,
                (self._read_outputs(name)[0], self.work / "verdicts.npz"),
                (self.recipe.out / "records" / f"{name}.parquet",),
            )
            for name in names
        )
        return self._run("write", _write, jobs, names)

    def _bands(self, keys: tuple[Path, ...], verdicts: Path, names: Sequence[str]) -> tuple[Path, ...] | None:
        if self.recipe.near_duplicates == "keep":
            return ()
        outputs = tuple(self.work / "bands" / f"{number}.npy" for number in range(self.recipe.near.bands))
        jobs = tuple(Job(f"band-{number}", (verdicts, *keys), (out,), number) for number, out in enumerate(outputs))
        outcome = self._run("bands", choosing.band, jobs, names)
        return outputs if not outcome.waiting and whole(outcome) else None

    def _benchmarks(self) -> Path | None:
        """The index of the benchmark sets; every part makes its own if it is not there, from the same files."""
        sets = self.recipe.leakage.sets
        if not sets:
            return None
        path = self.work / f"benchmarks-{self._leak_identity()[:12]}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            found = leakage.index(sets, run_words=self.recipe.leakage.run_words)
            with replacing(path) as stream:
                found.save(stream)
        return path

    def _leak_identity(self) -> str:
        found = [(path, path.stat()) for path in _leakage_files(self.recipe)]
        files = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found]
        return fingerprint(VERSION, files, self.recipe.leakage.run_words)

    def _read_outputs(self, name: str) -> tuple[Path, ...]:
        folder = self.work / "read"
        return tuple(folder / f"{name}{ending}" for ending in ENDINGS)

    def _rank(self, name: str) -> int:
        return [source.name for source in self.recipe.sources].index(name.partition("/")[0])

    def _run(self, name: str, work: Any, jobs: tuple[Job, ...], *identity: object) -> Outcome:
        stage = Stage(name, work, jobs, self.work / "marks" / name, fingerprint(name, VERSION, *identity))
        return run(stage, engine=self.engine, part=self.part, progress_shown=self.shown)


def _write(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the rows of a file's documents that stay."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, verdicts = job.inputs
    with np.load(verdicts) as all_verdicts:
        mine = all_verdicts[job.name]
    staying = mine[mine != Verdict.DROPPED_BEFORE] == Verdict.KEPT
    # A row of documents that were dropped while reading is not in the file; older versions and the deleted are.
    begin = 0
    with pq.ParquetFile(path) as table, drafts[0].open("wb") as stream:
        writer = pq.ParquetWriter(stream, table.schema_arrow, compression="zstd", write_page_checksum=True)
        with writer:
            # A row group at a time: they are bounded by their text, while ten thousand articles may be a gigabyte.
            for number in range(table.num_row_groups):
                group = table.read_row_group(number)
                mask = pa.array(staying[begin : begin + group.num_rows])
                begin += group.num_rows
                if (kept := group.filter(mask)).num_rows:
                    writer.write_table(kept)
                advance(group.nbytes)
    return {"documents": int(staying.sum())}


def _finish(recipe: BuildRecipe, corpus: Corpus, rejects_of: Sequence[Path], *, keep: bool) -> None:
    """Write what was set aside and the table, clear away what was made on the way and what an earlier build left."""
    work = recipe.out / ".lexome"
    current = {recipe.out / name for name in corpus.files}
    for path in (recipe.out / "records").rglob("*.parquet"):
        if path not in current:
            path.unlink()
    aside = [path for path in rejects_of if path.stat().st_size]
    rejects = recipe.out / "rejects.jsonl"
    if aside:
        with replacing(rejects) as stream:
            for path in aside:
                stream.write(path.read_bytes())
    else:
        rejects.unlink(missing_ok=True)
    with replacing(recipe.out / "corpus.md") as stream:
        stream.write(corpus.markdown().encode())
    with replacing(recipe.out / "corpus.json") as stream:
        stream.write(json.dumps(corpus.as_dict(), indent=1, ensure_ascii=False).encode() + b"\n")
    if not keep:
        shutil.rmtree(work, ignore_errors=True)
