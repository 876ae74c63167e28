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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np

from lexome.corpus import dedup, leakage
from lexome.corpus.dedup import Verdict
from lexome.corpus.ingest import ReadSettings, read_file
from lexome.corpus.output_folder import OutputFolder, recipe_keys
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_write, fingerprint, write_json
from lexome.formats import Tally, expand, work_units
from lexome.formats.streams import printable_name, uncompressed_name
from lexome.pipeline import Advance, Engine, Job, Part, Stage, StageResult, engine_session, require_complete, run
from lexome.recipe.corpus_stages import BuildRecipe


def newest(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the verdicts that need no comparing of texts."""
    sources, recipe = job.settings
    verdicts = dedup.newest(job.inputs, sources, exact=recipe.exact_duplicates == "drop")
    with drafts[0].open("wb") as file:
        np.save(file, verdicts)
    return {}


def band(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the pairs that agree in one band."""
    verdicts, *keys = job.inputs
    found = dedup.links(keys, job.settings, np.load(verdicts))
    with drafts[0].open("wb") as file:
        np.save(file, found)
    return {"links": len(found)}


def decide(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the last verdict on every document, file by file, and count them by source."""
    sources, recipe, names = job.settings
    keys = job.inputs[-len(names) :]
    verdicts = np.load(job.inputs[0])
    bands = [np.load(path) for path in job.inputs[1 : -len(names)]]
    compared = 0
    if bands:
        linked = np.concatenate(bands)
        compared = dedup.drop_near(verdicts, linked, keys, similarity=recipe.near.similarity)
    sizes = [len(rows) for rows in dedup.columns(keys, "row")]
    owners = np.repeat(np.asarray(sources), sizes)
    _sample(recipe, verdicts, owners, keys)
    cuts = np.cumsum(sizes)[:-1]
    with drafts[0].open("wb") as file:
        np.savez(file, **dict(zip(names, np.split(verdicts, cuts), strict=True)))
    return {"compared": compared, "sources": _census(recipe, verdicts, owners, keys)}


def _sample(recipe: BuildRecipe, verdicts: dedup.Verdicts, owners: dedup.Ints, keys: Sequence[Path]) -> None:
    """Cut sources to their sizes; those that are measured by another one last."""
    limited = [source for source in recipe.sources if source.max_words or source.match_size_of]
    if not limited:
        return
    ranks = dedup.sampling_ranks(dedup.column(keys, "ids"), recipe.seed)
    sizes = dedup.column(keys, "bytes")
    numbers = {source.name: number for number, source in enumerate(recipe.sources)}
    for source in sorted(limited, key=lambda source: source.match_size_of is not None):
        mine = owners == numbers[source.name]
        if source.max_words:
            dedup.drop_beyond(verdicts, mine, dedup.column(keys, "words"), ranks, source.max_words)
        else:
            other = (owners == numbers[str(source.match_size_of)]) & (verdicts == Verdict.KEPT)
            dedup.drop_beyond(verdicts, mine, sizes, ranks, int(sizes[other].sum()))


def _census(recipe: BuildRecipe, verdicts: dedup.Verdicts, owners: dedup.Ints, keys: Sequence[Path]) -> dict[str, Any]:
    """Documents, words, bytes, licences and drops of each source."""
    words, size = dedup.column(keys, "words"), dedup.column(keys, "bytes")
    licences = np.concatenate(
        [
            names[which]
            for names, which in zip(dedup.columns(keys, "licences"), dedup.columns(keys, "licence"), strict=True)
        ]
    )
    found: dict[str, Any] = {}
    for number, source in enumerate(recipe.sources):
        mine = owners == number
        kept = mine & (verdicts == Verdict.KEPT)
        names, counts = np.unique(licences[kept], return_counts=True)
        drops = {
            verdict.name.lower(): int((mine & (verdicts == verdict)).sum())
            for verdict in Verdict
            if verdict not in (Verdict.KEPT, Verdict.DROPPED_BEFORE)
        }
        found[source.name] = {
            "documents": int(kept.sum()),
            "words": int(words[kept].sum()),
            "bytes": int(size[kept].sum()),
            "licences": dict(zip(names.tolist(), counts.tolist(), strict=True)),
            "drops": {reason: count for reason, count in drops.items() if count},
        }
    return found


_COUNTS = ("drops", "set_aside", "leaks", "licences", "notes")


@dataclass(frozen=True, slots=True)
class SourceCount:
    """What one source came to."""

    name: str
    read: int
    documents: int
    words: int
    bytes: int
    drops: dict[str, int]
    set_aside: dict[str, int]
    leaks: dict[str, int]
    licences: dict[str, int]
    notes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A finished corpus: its sources, its files, and the identity of recipe and inputs ("" where files failed)."""

    identity: str
    sources: tuple[SourceCount, ...]
    files: tuple[str, ...]
    near_pairs_compared: int
    recipe: dict[str, Any]

    @classmethod
    def load(cls, out: Path) -> Self | None:
        """The corpus that an earlier run has finished in a folder, if it can be read."""
        try:
            stored = json.loads((out / "corpus.json").read_text(encoding="utf-8"))
            sources = tuple(SourceCount(**source) for source in stored.pop("sources"))
            return cls(sources=sources, files=tuple(stored.pop("files")), **stored)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @property
    def total(self) -> SourceCount:
        """All sources together."""
        return SourceCount(
            "all",
            *(sum(getattr(source, key) for source in self.sources) for key in ("read", "documents", "words", "bytes")),
            *(_added([asdict(source) for source in self.sources], key) for key in _COUNTS),
        )

    def markdown(self) -> str:
        """The table of the papers, then drops and licences, for people."""
        total = self.total
        everything = (*self.sources, total)
        sizes = [
            (part.name, f"{part.read:,}", f"{part.documents:,}", f"{part.words:,}", f"{part.bytes:,}")
            for part in everything
        ]
        parts = [_rows(("source", "read", "documents", "words", "bytes"), sizes)]
        for title, key, names in (
            ("dropped because", "drops", list(total.drops)),
            ("set aside as unreadable", "set_aside", list(total.set_aside)),
            ("found in benchmarks", "leaks", list(total.leaks)),
            ("licence", "licences", list(total.licences)),
        ):
            if names:
                lines = [(name, *(f"{getattr(part, key).get(name, 0):,}" for part in everything)) for name in names]
                parts.append(_rows((title, *(part.name for part in everything)), lines))
        return "\n\n".join(parts) + "\n"


def counted(
    recipe: BuildRecipe, reports: Mapping[str, Mapping[str, Any]], decided: Mapping[str, Any], *, identity: str
) -> Corpus:
    """The corpus from what reading and deciding reported."""
    sources = []
    for source in recipe.sources:
        mine = [report for name, report in reports.items() if name.partition("/")[0] == source.name]
        last = decided["sources"][source.name]
        drops = Counter(_added(mine, "drops")) + Counter(last["drops"])
        sources.append(
            SourceCount(
                name=source.name,
                read=sum(report["read"] for report in mine),
                documents=last["documents"],
                words=last["words"],
                bytes=last["bytes"],
                drops=dict(drops.most_common()),
                set_aside=_added(mine, "set_aside"),
                leaks=_added(mine, "leaks"),
                licences=last["licences"],
                notes=_added(mine, "notes"),
            )
        )
    files = tuple(f"records/{name}.parquet" for name in reports)
    return Corpus(identity, tuple(sources), files, decided["compared"], recipe_keys(recipe))


def _added(reports: Sequence[Mapping[str, Any]], key: str) -> dict[str, int]:
    return dict(sum((Counter(report[key]) for report in reports), Counter()).most_common())


def _rows(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table with numbers to the right."""
    align = "| " + " | ".join(["---", *["---:"] * (len(head) - 1)]) + " |"
    return "\n".join([f"| {' | '.join(head)} |", align, *(f"| {' | '.join(line)} |" for line in lines)])


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
    outputs = tuple(recipe.out / name for name in ("corpus.json", "corpus.md", "rejects.jsonl", "records"))
    folder = OutputFolder(recipe, "a corpus", runner.work, recipe.out / "corpus.json", outputs)
    folder.check()
    identity = fingerprint("build", VERSION, recipe_keys(recipe), _identities(recipe, inputs))
    corpus = Corpus.load(recipe.out)
    if corpus is not None and corpus.identity == identity and _all_here(recipe, corpus):
        # What a run leaves that is killed after its last file and before its last sweep.
        shutil.rmtree(runner.work, ignore_errors=True)
        return Built(corpus, {})
    folder.record()
    with engine_session(engine):
        return _built(runner, inputs, identity)


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
            sets = work_units(source.paths, source.format, Tally())
        except FormatError as error:
            raise FormatError(f"source {source.name}: {error}") from None
        for files in sets:
            _require_outside(files, recipe.out / "records")
            stem = printable_name(PurePosixPath(uncompressed_name(files[0].name)).stem or files[0].name)
            name = f"{source.name}/{stem}"
            if name in jobs:
                name = f"{source.name}/{printable_name(files[0].parent.name)}-{stem}"
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

    def read(self, inputs: dict[str, tuple[Path, ...]]) -> StageResult:
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
        first = self._run("newest", newest, (Job("newest", keys, (verdicts,), settings),), names)
        if first.waiting or not require_complete(first):
            return None
        bands = self._bands(keys, verdicts, names)
        if bands is None:
            return None
        job = Job("decide", (verdicts, *bands, *keys), (self.work / "verdicts.npz",), (*settings, tuple(names)))
        last = self._run("decide", decide, (job,), names, self.recipe.seed)
        return require_complete(last)["decide"] if not last.waiting else None

    def write(self, names: Sequence[str]) -> StageResult:
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
        outcome = self._run("bands", band, jobs, names)
        return outputs if not outcome.waiting and require_complete(outcome) else None

    def _benchmarks(self) -> Path | None:
        """The index of the benchmark sets; every part makes its own if it is not there, from the same files."""
        sets = self.recipe.leakage.sets
        if not sets:
            return None
        path = self.work / f"benchmarks-{self._leak_identity()[:12]}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            found = leakage.index(sets, run_words=self.recipe.leakage.ngram_words)
            with atomic_write(path) as stream:
                found.save(stream)
        return path

    def _leak_identity(self) -> str:
        found = [(path, path.stat()) for path in _leakage_files(self.recipe)]
        files = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found]
        return fingerprint(VERSION, files, self.recipe.leakage.ngram_words)

    def _read_outputs(self, name: str) -> tuple[Path, ...]:
        folder = self.work / "read"
        return tuple(folder / f"{name}{ending}" for ending in ENDINGS)

    def _rank(self, name: str) -> int:
        return [source.name for source in self.recipe.sources].index(name.partition("/")[0])

    def _run(self, name: str, work: Any, jobs: tuple[Job, ...], *identity: object) -> StageResult:
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
        with atomic_write(rejects) as stream:
            for path in aside:
                stream.write(path.read_bytes())
    else:
        rejects.unlink(missing_ok=True)
    with atomic_write(recipe.out / "corpus.md") as stream:
        stream.write(corpus.markdown().encode())
    write_json(recipe.out / "corpus.json", corpus.as_dict())
    if not keep:
        shutil.rmtree(work, ignore_errors=True)
