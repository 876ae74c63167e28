"""build: literature in any format to cleaned, deduplicated records, with a table of what was dropped and why.

    read     filters, Unicode normalization, sentences, keys      one job per file
    newest   versions, deletions, exact duplicates                one job
    bands    LSH candidates of near duplicates                    one job per band
    decide   near duplicates, subsampling of sources              one job
    write    the documents that are kept                          one job per file

Intermediate files are in OUT/.lexome and are removed at the end.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np

from lexome.corpus import dedup
from lexome.corpus.dedup import Verdict
from lexome.corpus.ingest import ReadSettings, ingest_file
from lexome.corpus.output_folder import OutputFolder, recipe_keys
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_write, fingerprint, write_json
from lexome.formats import Tally, expand, work_units
from lexome.formats.streams import output_name, uncompressed_name
from lexome.pipeline import Advance, Engine, Job, Part, Stage, StageResult, engine_session, require_complete, run
from lexome.recipe.corpus_stages import BuildRecipe, CorpusSource


def newest_job(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the verdicts that need no comparison of texts."""
    owners, exact = job.settings
    verdicts = dedup.drop_old_versions(job.inputs, owners, exact=exact)
    with drafts[0].open("wb") as file:
        np.save(file, verdicts)
    return {}


def band_job(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the candidate pairs of one LSH band."""
    verdicts, *keys = job.inputs
    pairs = dedup.candidate_pairs(keys, job.settings, np.load(verdicts))
    with drafts[0].open("wb") as file:
        np.save(file, pairs)
    return {"links": len(pairs)}


def decide_job(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the final verdict on every document, by file, and the totals of each source."""
    owners, names, sources, similarity, seed = job.settings
    keys = job.inputs[-len(names) :]
    verdicts = np.load(job.inputs[0])
    bands = [np.load(path) for path in job.inputs[1 : -len(names)]]
    compared = 0
    if bands:
        linked = np.concatenate(bands)
        compared = dedup.drop_near_duplicates(verdicts, linked, keys, similarity=similarity)
    sizes = [len(rows) for rows in dedup.columns(keys, "row")]
    owners = np.repeat(np.asarray(owners), sizes)
    _subsample_sources(sources, verdicts, owners, keys, seed=seed)
    cuts = np.cumsum(sizes)[:-1]
    with drafts[0].open("wb") as file:
        np.savez(file, **dict(zip(names, np.split(verdicts, cuts), strict=True)))
    return {"compared": compared, "sources": _source_totals(sources, verdicts, owners, keys)}


def _subsample_sources(
    sources: Sequence[CorpusSource], verdicts: dedup.Verdicts, owners: dedup.Ints, keys: Sequence[Path], *, seed: int
) -> None:
    """Subsample sources to their sizes; those matched to another source come last."""
    limited = [source for source in sources if source.max_words or source.match_size_of]
    if not limited:
        return
    ranks = dedup.sampling_ranks(dedup.column(keys, "ids"), seed)
    sizes = dedup.column(keys, "bytes")
    numbers = {source.name: number for number, source in enumerate(sources)}
    for source in sorted(limited, key=lambda source: source.match_size_of is not None):
        mine = owners == numbers[source.name]
        if source.max_words:
            dedup.subsample(verdicts, mine, dedup.column(keys, "words"), ranks, source.max_words)
        else:
            other = (owners == numbers[str(source.match_size_of)]) & (verdicts == Verdict.KEPT)
            dedup.subsample(verdicts, mine, sizes, ranks, int(sizes[other].sum()))


def _source_totals(
    sources: Sequence[CorpusSource], verdicts: dedup.Verdicts, owners: dedup.Ints, keys: Sequence[Path]
) -> dict[str, Any]:
    """Documents, words, bytes, licenses and drops of each source."""
    words, size = dedup.column(keys, "words"), dedup.column(keys, "bytes")
    by_file = zip(dedup.columns(keys, "licenses"), dedup.columns(keys, "license"), strict=True)
    licenses = np.concatenate([names[which] for names, which in by_file])
    totals: dict[str, Any] = {}
    for number, source in enumerate(sources):
        mine = owners == number
        kept = mine & (verdicts == Verdict.KEPT)
        names, counts = np.unique(licenses[kept], return_counts=True)
        drops = {
            verdict.name.lower(): int((mine & (verdicts == verdict)).sum())
            for verdict in Verdict
            if verdict not in (Verdict.KEPT, Verdict.DROPPED_BEFORE)
        }
        totals[source.name] = {
            "documents": int(kept.sum()),
            "words": int(words[kept].sum()),
            "bytes": int(size[kept].sum()),
            "licenses": dict(zip(names.tolist(), counts.tolist(), strict=True)),
            "drops": {reason: count for reason, count in drops.items() if count},
        }
    return totals


_COUNTS = ("drops", "set_aside", "leaks", "licenses", "notes")


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Counts of one source."""

    name: str
    read: int
    documents: int
    words: int
    bytes: int
    drops: dict[str, int]
    set_aside: dict[str, int]
    leaks: dict[str, int]
    licenses: dict[str, int]
    notes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A finished corpus: its sources, its files, and a fingerprint of recipe and inputs ("" if files failed)."""

    identity: str
    sources: tuple[SourceStats, ...]
    files: tuple[str, ...]
    near_pairs_compared: int
    recipe: dict[str, Any]

    @classmethod
    def load(cls, out: Path) -> Self | None:
        """The corpus that an earlier run finished in a folder, or None."""
        try:
            stored = json.loads((out / "corpus.json").read_text(encoding="utf-8"))
            sources = tuple(SourceStats(**source) for source in stored.pop("sources"))
            return cls(sources=sources, files=tuple(stored.pop("files")), **stored)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @property
    def total(self) -> SourceStats:
        """All sources together."""
        return SourceStats(
            "all",
            *(sum(getattr(source, key) for source in self.sources) for key in ("read", "documents", "words", "bytes")),
            *(_sum_counts([asdict(source) for source in self.sources], key) for key in _COUNTS),
        )

    def markdown(self) -> str:
        """Markdown tables of sizes, drops, skipped documents, leaks and licenses."""
        total = self.total
        everything = (*self.sources, total)
        sizes = [
            (part.name, f"{part.read:,}", f"{part.documents:,}", f"{part.words:,}", f"{part.bytes:,}")
            for part in everything
        ]
        parts = [_markdown_table(("source", "read", "documents", "words", "bytes"), sizes)]
        titles = ("dropped", "skipped as unreadable", "found in benchmarks", "license")
        for title, key in zip(titles, ("drops", "set_aside", "leaks", "licenses"), strict=True):
            counts = [getattr(part, key) for part in everything]
            lines = [(name, *(f"{own.get(name, 0):,}" for own in counts)) for name in getattr(total, key)]
            if lines:
                parts.append(_markdown_table((title, *(part.name for part in everything)), lines))
        return "\n\n".join(parts) + "\n"


def summarize_corpus(
    recipe: BuildRecipe, reports: Mapping[str, Mapping[str, Any]], decided: Mapping[str, Any], *, identity: str
) -> Corpus:
    """The corpus from the reports of the read and decide stages."""
    sources = []
    for source in recipe.sources:
        mine = [report for name, report in reports.items() if name.partition("/")[0] == source.name]
        last = decided["sources"][source.name]
        drops = Counter(_sum_counts(mine, "drops")) + Counter(last["drops"])
        counts: dict[str, Any] = {key: _sum_counts(mine, key) for key in ("set_aside", "leaks", "notes")}
        counts |= {key: last[key] for key in ("documents", "words", "bytes", "licenses")}
        read = sum(report["read"] for report in mine)
        sources.append(SourceStats(name=source.name, read=read, drops=dict(drops.most_common()), **counts))
    files = tuple(f"records/{name}.parquet" for name in reports)
    return Corpus(identity, tuple(sources), files, decided["compared"], recipe_keys(recipe))


def _sum_counts(reports: Sequence[Mapping[str, Any]], key: str) -> dict[str, int]:
    return dict(sum((Counter(report[key]) for report in reports), Counter()).most_common())


def _markdown_table(head: tuple[str, ...], lines: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table with right-aligned numbers."""
    align = "| " + " | ".join(["---", *["---:"] * (len(head) - 1)]) + " |"
    return "\n".join([f"| {' | '.join(head)} |", align, *(f"| {' | '.join(line)} |" for line in lines)])


# Incremented when the same recipe and files would give different records.
VERSION = 3

# Outputs of reading a file: documents, keys, signatures, rejected documents.
ENDINGS = (".parquet", ".keys.npz", ".signatures", ".rejects.jsonl")

LOCAL = Engine()


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The corpus, if it is complete, and files that failed or wait for other parts."""

    corpus: Corpus | None
    failures: dict[str, str]
    waiting: tuple[str, ...] = ()


def build(
    recipe: BuildRecipe, *, engine: Engine = LOCAL, part: Part | None = None, progress_shown: bool = True
) -> BuildResult:
    """Write the records of a recipe to its `out`; finished work is not repeated.

    The output of another recipe is refused unless `overwrite` is set. With `part`, every stage runs only its own jobs,
    and the build returns when it has to wait for other parts.
    """
    runner = _Runner(recipe, engine, part, progress_shown)
    inputs = _inputs(recipe.sources, recipe.out / "records")
    outputs = tuple(recipe.out / name for name in ("corpus.json", "corpus.md", "rejects.jsonl", "records"))
    folder = OutputFolder(recipe, "a corpus", runner.work, recipe.out / "corpus.json", outputs)
    folder.check()
    files = (*chain(*inputs.values()), *_leakage_files(recipe.leakage.sets))
    identity = fingerprint("build", VERSION, recipe_keys(recipe), _file_identities(files))
    corpus = Corpus.load(recipe.out)
    if (
        corpus is not None
        and corpus.identity == identity
        and all((recipe.out / name).exists() for name in corpus.files)
    ):
        # Left by a run that was killed between its last file and its cleanup.
        shutil.rmtree(runner.work, ignore_errors=True)
        return BuildResult(corpus, {})
    folder.record()
    with engine_session(engine):
        return _run_stages(runner, inputs, identity)


def _run_stages(runner: "_Runner", inputs: dict[str, tuple[Path, ...]], identity: str) -> BuildResult:
    """Run the stages in turn, as far as this part can go."""
    recipe = runner.recipe
    reading = runner.read(inputs)
    if reading.waiting or not reading.reports:
        return BuildResult(None, reading.failures, reading.waiting)
    names = list(reading.reports)
    outcome = runner.choose(names)
    if outcome is None:
        return BuildResult(None, reading.failures, ("the selection of documents, which one part makes for all",))
    # Records change from here on: the table of earlier ones must not describe them if this run is interrupted.
    earlier = Corpus.load(recipe.out)
    if earlier is None or earlier.identity != identity:
        (recipe.out / "corpus.json").unlink(missing_ok=True)
    written = runner.write(names)
    if written.failures or written.waiting:
        return BuildResult(None, reading.failures | written.failures, written.waiting)
    corpus = summarize_corpus(recipe, reading.reports, outcome, identity=identity if not reading.failures else "")
    _finish(recipe.out, corpus, runner.rejects(names), keep=bool(reading.failures))
    return BuildResult(corpus, reading.failures)


def _inputs(sources: Sequence[CorpusSource], records: Path) -> dict[str, tuple[Path, ...]]:
    """The files of each read job, by its name, in the order of the sources; none may be in the folder of records."""
    jobs: dict[str, tuple[Path, ...]] = {}
    for source in sources:
        try:
            sets = work_units(source.paths, source.format, Tally())
        except FormatError as error:
            raise FormatError(f"source {source.name}: {error}", code=error.code, value=error.value) from None
        for files in sets:
            # Records that this build does not write are removed at its end, so an input must not be among them.
            if inside := [file for file in files if file.resolve().is_relative_to(records.resolve())]:
                message = f"{inside[0]}: is an input inside the output folder. Choose another out."
                raise UsageError(message, code="input-is-output", value=inside[0])
            stem = output_name(PurePosixPath(uncompressed_name(files[0].name)).stem or files[0].name)
            name = f"{source.name}/{stem}"
            if name in jobs:
                name = f"{source.name}/{output_name(f'{files[0].parent.name}-{stem}')}"
            if name in jobs:
                raise UsageError(
                    f"source {source.name}: {files[0]} and {jobs[name][0]} would have records of the same name. "
                    "Make them separate sources, or rename one.",
                    code="duplicate-name",
                    value=name,
                )
            jobs[name] = files
    return jobs


def _file_identities(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Files that the records depend on, each with its size and modification time."""
    return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _leakage_files(sets: Sequence[Path]) -> list[Path]:
    """The files of the benchmark datasets, folders expanded: a folder's modification time does not cover its files."""
    return expand(sets, None, Tally())


class _Runner:
    """The stages of one build and their outputs."""

    def __init__(self, recipe: BuildRecipe, engine: Engine, part: Part | None, shown: bool) -> None:
        self.recipe, self.engine, self.part, self.shown = recipe, engine, part, shown
        self.work = recipe.out / ".lexome"

    def read(self, inputs: dict[str, tuple[Path, ...]]) -> StageResult:
        """Every file read, cleaned and keyed."""
        recipe, benchmarks = self.recipe, self._benchmarks()
        shared = (recipe.languages, recipe.min_words, recipe.retracted, recipe.near, recipe.leakage.action, benchmarks)
        settings = {source.name: ReadSettings(source, *shared) for source in recipe.sources}
        jobs = tuple(
            Job(name, files, self._read_outputs(name), settings[name.partition("/")[0]])
            for name, files in inputs.items()
        )
        keys = recipe.model_dump(mode="json", exclude={"out", "seed", "overwrite"})
        return self._run("read", ingest_file, jobs, keys, self._leak_identity())

    def rejects(self, names: Sequence[str]) -> list[Path]:
        """The rejected documents of these files."""
        return [self._read_outputs(name)[-1] for name in names]

    def choose(self, names: Sequence[str]) -> dict[str, Any] | None:
        """The decisions over all files, or None if another part has not made them yet."""
        keys = tuple(self._read_outputs(name)[1] for name in names)
        ranks = {source.name: rank for rank, source in enumerate(self.recipe.sources)}
        owners = [ranks[name.partition("/")[0]] for name in names]
        verdicts = self.work / "newest.npy"
        job = Job("newest_job", keys, (verdicts,), (owners, self.recipe.exact_duplicates == "drop"))
        first = self._run("newest_job", newest_job, (job,), names)
        if first.waiting or not require_complete(first):
            return None
        bands: tuple[Path, ...] = ()
        if self.recipe.near_duplicates != "keep":
            bands = tuple(self.work / "bands" / f"{number}.npy" for number in range(self.recipe.near.bands))
            jobs = tuple(Job(f"band-{number}", (verdicts, *keys), (out,), number) for number, out in enumerate(bands))
            outcome = self._run("bands", band_job, jobs, names)
            if outcome.waiting or not require_complete(outcome):
                return None
        settings = (owners, tuple(names), self.recipe.sources, self.recipe.near.similarity, self.recipe.seed)
        job = Job("decide_job", (verdicts, *bands, *keys), (self.work / "verdicts.npz",), settings)
        last = self._run("decide_job", decide_job, (job,), names, self.recipe.seed)
        return require_complete(last)["decide_job"] if not last.waiting else None

    def write(self, names: Sequence[str]) -> StageResult:
        """The records of every file."""
        verdicts, records = self.work / "verdicts.npz", self.recipe.out / "records"
        jobs = tuple(
            Job(name, (self._read_outputs(name)[0], verdicts), (records / f"{name}.parquet",)) for name in names
        )
        return self._run("write", _write, jobs, names)

    def _benchmarks(self) -> Path | None:
        """The index of the benchmark datasets; every part builds it if it is missing."""
        sets = self.recipe.leakage.sets
        if not sets:
            return None
        path = self.work / f"benchmarks-{self._leak_identity()[:12]}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            benchmarks = dedup.index_benchmarks(sets, run_words=self.recipe.leakage.ngram_words)
            with atomic_write(path) as stream:
                benchmarks.save(stream)
        return path

    def _leak_identity(self) -> str:
        files = _file_identities(_leakage_files(self.recipe.leakage.sets))
        return fingerprint(VERSION, files, self.recipe.leakage.ngram_words)

    def _read_outputs(self, name: str) -> tuple[Path, ...]:
        return tuple(self.work / "read" / f"{name}{ending}" for ending in ENDINGS)

    def _run(self, name: str, work: Any, jobs: tuple[Job, ...], *identity: object) -> StageResult:
        stage = Stage(name, work, jobs, self.work / "marks" / name, fingerprint(name, VERSION, *identity))
        return run(stage, engine=self.engine, part=self.part, progress_shown=self.shown)


def _write(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the rows of the documents that are kept."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, verdicts = job.inputs
    with np.load(verdicts) as all_verdicts:
        mine = all_verdicts[job.name]
    staying = mine[mine != Verdict.DROPPED_BEFORE] == Verdict.KEPT
    # Documents dropped while reading have no row in the file; older versions and deleted ones do.
    begin = 0
    with (
        pq.ParquetFile(path) as table,
        drafts[0].open("wb") as stream,
        pq.ParquetWriter(stream, table.schema_arrow, compression="zstd", write_page_checksum=True) as writer,
    ):
        # One row group at a time: their text is bounded, while ten thousand articles may take a gigabyte.
        for number in range(table.num_row_groups):
            group = table.read_row_group(number)
            kept = group.filter(pa.array(staying[begin : begin + group.num_rows]))
            begin += group.num_rows
            if kept.num_rows:
                writer.write_table(kept)
            advance(group.nbytes)
    return {"documents": int(staying.sum())}


def _finish(out: Path, corpus: Corpus, rejects_of: Sequence[Path], *, keep: bool) -> None:
    """Write rejects and tables; remove intermediate files and records of earlier builds."""
    current = {out / name for name in corpus.files}
    for path in (out / "records").rglob("*.parquet"):
        if path not in current:
            path.unlink()
    aside = [path for path in rejects_of if path.stat().st_size]
    rejects = out / "rejects.jsonl"
    if aside:
        with atomic_write(rejects) as stream:
            for path in aside:
                stream.write(path.read_bytes())
    else:
        rejects.unlink(missing_ok=True)
    with atomic_write(out / "corpus.md") as stream:
        stream.write(corpus.markdown().encode())
    write_json(out / "corpus.json", corpus.as_dict())
    if not keep:
        shutil.rmtree(out / ".lexome", ignore_errors=True)
