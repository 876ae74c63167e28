"""`lexome build`, `learn-vocab`, `vocab-report`, `shard`, `build-terms` and `check`: what models and linking need."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.options import (
    AsJson,
    EngineOptions,
    Overrides,
    Quiet,
    RecipePath,
    app,
    exit_for_failures,
    exit_for_rejects,
    grouped,
    interruptible,
    print_rejected,
)
from lexome.errors import UsageError, needs

if TYPE_CHECKING:
    from lexome.recipe.finetune import FinetuneRecipe
    from lexome.recipe.pretrain import TrainingRecipe


@app.command()
@grouped
def build(
    recipe: RecipePath,
    *,
    set_: Overrides = None,
    pool: EngineOptions,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Build a corpus of cleaned, deduplicated records.

    Reads literature in any format. A table counts dropped documents by reason. Interrupted builds resume.
    """
    from lexome.recipe import load
    from lexome.recipe.corpus_stages import BuildRecipe

    loaded = load(recipe, BuildRecipe, overrides=set_ or [])
    with needs("corpus", purpose="building a corpus"):
        from lexome.corpus.build import build as run
    with interruptible(loaded.out, kept="finished files"):
        built = run(loaded, engine=pool.open(), part=pool.own_part(), progress_shown=not quiet)
    if built.corpus is not None and (as_json or not quiet):
        print(json.dumps(built.corpus.as_dict(), ensure_ascii=False) if as_json else built.corpus.markdown())
    rejects = loaded.out / "rejects.jsonl"
    if built.corpus is not None and quiet and not as_json:
        print_rejected(built.corpus.total.set_aside, rejects, sys.stderr)
    exit_for_failures(built.failures, built.waiting, loaded.out, quiet=quiet)
    if built.corpus is not None:
        exit_for_rejects(built.corpus.total.set_aside, rejects, documents=built.corpus.total.read)


@app.command()
def learn_vocab(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Train a tokenizer, or adapt a model's own.

    Writes a Hugging Face tokenizer folder: WordPiece, byte-level BPE or SentencePiece. Adapting puts new words into
    unused entries of a WordPiece vocabulary.
    """
    from lexome.recipe import load
    from lexome.recipe.corpus_stages import VocabRecipe

    loaded = load(recipe, VocabRecipe, overrides=set_ or [])
    with needs("corpus", purpose="learning a vocabulary"):
        from lexome.corpus.vocab.learn import learn_vocab as run
    with interruptible(loaded.out):
        learned = run(loaded, progress_shown=not quiet)
    if as_json:
        print(json.dumps(asdict(learned), default=str))
    elif not quiet:
        print(f"read      {learned.documents:,} documents, {learned.text_bytes:,} bytes of text")
        if learned.adapted is not None:
            done = learned.adapted
            saved = (done.tokens_before - done.tokens_after) / max(1, done.tokens_before)
            print(f"adapted   {done.given:,} new words in {done.free:,} unused entries")
            print(f"tokens    {done.tokens_before:,} before, {done.tokens_after:,} after, {saved:.1%} fewer")
        print(f"learned    {learned.pieces:,} pieces, tokenizer {learned.sha256[:12]}")
        print(f"{'wrote' if learned.new else 'kept':<9} {learned.folder}")


@app.command()
def vocab_report(
    vocabularies: Annotated[
        list[str], typer.Argument(metavar="NAME=PATH", help="Tokenizer folders, tokenizer.json or vocab.txt files.")
    ],
    ner: Annotated[
        list[str] | None,
        typer.Option("--ner", metavar="NAME=PATH", help="NER dataset whose entities to tokenize; repeatable."),
    ] = None,
    text: Annotated[list[Path] | None, typer.Option("--text", help="File with text to tokenize; repeatable.")] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the report as JSON.")] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Write a plot, as .svg, .png or .pdf.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare tokenizers by how they split words.

    Reports tokens per word (fertility) in text and in named entities, unknown tokens, symbols, and examples.
    """
    with needs("corpus", purpose="comparing vocabularies"):
        from lexome.corpus.vocab.report import named_paths
        from lexome.corpus.vocab.report import vocab_report as run

    report = run(named_paths(vocabularies), ner=named_paths(ner or [], what="set"), texts=text or [])
    if out is not None:
        report.write_json(out)
    if picture is not None:
        from lexome.corpus.vocab.report import plot

        plot(report, picture)
    print(json.dumps(report.as_dict(), ensure_ascii=False) if as_json else report.as_table())


@app.command()
@grouped
def shard(
    recipe: RecipePath,
    *,
    set_: Overrides = None,
    pool: EngineOptions,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tokenize records into token shards.

    Shards are memory-mapped token ids with document and sentence boundaries. Interrupted runs resume.
    """
    from lexome.recipe import load
    from lexome.recipe.corpus_stages import ShardRecipe

    loaded = load(recipe, ShardRecipe, overrides=set_ or [])
    with needs("corpus", purpose="sharding"):
        from lexome.corpus.shards import shard as run
    with interruptible(loaded.out, kept="finished files"):
        done = run(loaded, engine=pool.open(), part=pool.own_part(), progress_shown=not quiet)
    if done.manifest is not None and as_json:
        print(json.dumps(done.manifest, ensure_ascii=False))
    elif done.manifest is not None and not quiet:
        for name, total in done.manifest["totals"].items():
            counts = ", ".join(f"{count:,} {key}" for key, count in total.items())
            print(f"{name.replace('_', ' '):<9} {counts}")
        for key in ("unknown", "without_tokens"):
            if done.manifest[key]:
                print(f"noted     {done.manifest[key]:,} {_NOTED[key]}")
        print(f"wrote     {loaded.out}")
    exit_for_failures(done.failures, done.waiting, loaded.out, quiet=quiet)


_NOTED = {"unknown": "unknown tokens", "without_tokens": "documents without tokens"}


@app.command()
def build_terms(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Build an index of names and ids from dictionaries.

    Reads MeSH, NCBI Gene and Taxonomy, ChEBI, Cellosaurus, OBO, CTD and tables. Merges terms of several
    dictionaries by id, cross-references or names, and counts what was dropped.
    """
    from lexome.concepts.build_terms import build_terms as run
    from lexome.recipe import load
    from lexome.recipe.corpus_stages import TermsRecipe

    loaded = load(recipe, TermsRecipe, overrides=set_ or [])
    with interruptible(loaded.out):
        built = run(loaded, progress_shown=not quiet)
    if as_json:
        print(json.dumps(asdict(built), default=str, ensure_ascii=False))
    elif not quiet:
        print(built.markdown())
        print(f"\n{'wrote' if built.new else 'kept':<9} {built.path}, {built.bytes:,} bytes")
        if loaded.synonyms is not None:
            pairs = "" if built.pairs is None else f", {built.pairs:,} pairs of names"
            print(f"{'wrote' if pairs else 'kept':<9} {loaded.synonyms.out}{pairs}")


@app.command()
def check(recipe: RecipePath, set_: Overrides = None) -> None:
    """Validate a recipe, and print it with all defaults.

    Also checks dataset names, the settings of [task] and, if torch is installed, [model] and preset. Nothing is run.
    """
    from lexome.recipe import STAGES, explain, load, schema_of, stage_of
    from lexome.recipe.finetune import FinetuneRecipe
    from lexome.recipe.pretrain import TrainingRecipe

    stage = stage_of(recipe)
    if stage not in STAGES:
        expected = ", ".join(map(json.dumps, STAGES))
        message = f"{recipe}: stage is {stage!r}; expected one of {expected}."
        raise UsageError(message, code="unknown-stage", value=stage)
    loaded = load(recipe, schema_of(stage), overrides=set_ or [])
    if isinstance(loaded, FinetuneRecipe):
        _check_task(loaded)
    elif isinstance(loaded, TrainingRecipe) and (loaded.model or loaded.preset):
        _check_model(loaded)
    print(explain(loaded))


def _check_task(recipe: "FinetuneRecipe") -> None:
    """UsageError for an unknown dataset, or a [task] table that describes no task; the documents are not read."""
    from lexome.datasets import find
    from lexome.tasks import task_of

    sources = [find(name, data=recipe.data.root) for name in recipe.data.sets]
    try:
        task_of({**(sources[0].settings if len(sources) == 1 else {}), **recipe.task})
    except UsageError as error:
        # Settings that a folder's task lacks are inferred from its training documents.
        if error.code != "missing-key" or recipe.data.folder is None:
            raise


def _check_model(recipe: "TrainingRecipe") -> None:
    """UsageError for an unknown preset, or a [model] table that describes no encoder."""
    try:
        from lexome.training.start import check_model_table
    except ModuleNotFoundError as error:
        print(f"note: [model] and preset were not checked: {error.name} is not installed.", file=sys.stderr)
        return
    new = getattr(recipe, "start", None) is None and getattr(recipe, "student", None) is None
    check_model_table(recipe.preset, recipe.model, new=new)
