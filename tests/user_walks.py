"""What a data scientist and an ML engineer do on their first day, offline, with what each of them got.

Each walk takes an empty folder and yields a line for each thing that was tried; a thing that fails raises.
tests/four_users.py plays them.
"""

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import pandas
import spacy

import lexome
from lexome.corpus.build import build
from lexome.corpus.shards import shard
from lexome.corpus.vocab.learn import learn_vocab
from lexome.errors import LexomeError
from lexome.pipeline import Engine
from lexome.recipe import load
from lexome.recipe.corpus_stages import BuildRecipe, ShardRecipe, VocabRecipe

ROOT = Path(__file__).resolve().parents[1]
TEXTS = ["Mutations in BRCA1 raise the risk of breast cancer.", "Aspirin was given to mice."]


def refusal(work: Callable[[], object]) -> str:
    """The message of the error that this raises."""
    try:
        work()
    except LexomeError as error:
        return str(error)
    raise AssertionError("expected an error")


def data_scientist(folder: Path) -> Iterator[str]:
    """Annotate lists, make tables, look at notebooks, put it into spaCy and other processes, try a foreign recipe."""
    annotator = lexome.load(threads=1)
    docs = annotator(TEXTS)
    yield f"a list of texts: {[[span.text for span in doc.spans] for doc in docs]}"
    records = [doc.to_dict() for doc in docs]
    assert records[0].keys() == records[1].keys()
    yield f"dictionaries with the keys {', '.join(records[0])}"
    table = lexome.to_dataframe(docs)
    assert isinstance(table, pandas.DataFrame)
    yield f"a table of {len(table)} mentions: {table['type'].value_counts().to_dict()}"
    page = docs[0]._repr_html_()
    assert "BRCA1" in page
    yield f"a notebook view of {len(page):,} characters"
    # As the entry point does where Lexome is installed.
    import_module("lexome.infer.spacy_component")
    nlp = spacy.blank("en")
    nlp.add_pipe("lexome", config={"threads": 1})
    yield f"spaCy entities: {[(entity.text, entity.label_) for entity in nlp(TEXTS[0]).ents]}"
    again = pickle.loads(pickle.dumps(annotator))
    assert again(TEXTS) == docs
    yield "the same from a pickled annotator"
    lexome.write(folder / "docs.jsonl", docs)
    frame = pandas.read_json(folder / "docs.jsonl", lines=True)
    yield f"JSON Lines in pandas, without a missing value: {not frame.isna().any().any()}"
    foreign = {"model_name_or_path": "dmis-lab/biobert-v1.1", "learning_rate": 5e-5, "num_train_epochs": 3}
    yield f"a recipe with foreign keys: {refusal(partial(lexome.finetune, foreign))}"
    recipe = {"start": "lab/no-such-model", "out": folder / "out", "epochs": 1, "task": {"kind": "ner"}}
    recipe["data"] = {"folder": ROOT / "samples/ner"}
    yield f"a model of the Hub: {refusal(partial(lexome.finetune, recipe, progress_shown=False))}"


def ml_engineer(folder: Path) -> Iterator[str]:
    """Pre-train on the shipped text, lengthen the run, meet a damaged state, fine-tune, export, and annotate."""
    corpus, vocab, shards = folder / "corpus", folder / "vocab", folder / "shards"
    tiny, alone = ROOT / "recipes" / "tiny", Engine(workers=0)
    sources = ['sources.1.paths=["' + str(ROOT / "samples/invented.jsonl") + '"]']
    sources += ['sources.0.paths=["' + str(ROOT / "samples/pubmed.xml") + '"]']
    recipe = {"shards": shards, "out": folder / "encoder", "preset": "tiny", "steps": 12, "device": "cpu"}
    recipe |= {"text": {"max_tokens": 64}, "batch": {"tokens": 512}, "optimizer": {"lr": 0.003}, "log": {"every": 4}}
    recipe |= {"schedule": {"kind": "constant", "warmup_ratio": 0.0, "decay_ratio": 0.0}}
    train = partial(lexome.pretrain, progress_shown=False)
    yield f"no shards yet: {refusal(partial(train, recipe))}"
    built = load(tiny / "build.toml", BuildRecipe, overrides=[f"out={corpus}", *sources])
    build(built, engine=alone, progress_shown=False)
    keys = [f'inputs=["{corpus / "records"}"]', f"out={vocab}"]
    learn_vocab(load(tiny / "vocab.toml", VocabRecipe, overrides=keys), progress_shown=False)
    keys = [f'inputs=["{corpus / "records"}"]', f"tokenizer={vocab}", f"out={shards}"]
    shard(load(tiny / "shard.toml", ShardRecipe, overrides=keys), engine=alone, progress_shown=False)
    tokens = sum(path.stat().st_size // 2 for path in shards.rglob("*.tokens"))
    yield f"a corpus, a vocabulary, and shards of {tokens:,} tokens"
    short = train(recipe)
    longer = train({**recipe, "out": folder / "longer", "steps": 24, "resume_from": folder / "encoder"})
    assert longer.held_out is not None
    assert short.held_out is not None
    assert longer.held_out["loss"] < short.held_out["loss"]
    yield f"held-out loss {short.held_out['loss']:.2f} after 12 steps, lengthened to 24: {longer.held_out['loss']:.2f}"
    [*_, state] = sorted((folder / "longer" / "state").iterdir())
    part = next(state.glob("*.distcp"))
    raw = bytearray(part.read_bytes())
    raw[len(raw) // 2] ^= 1
    part.write_bytes(raw)
    longest = {**recipe, "out": folder / "longest", "steps": 36, "resume_from": folder / "longer"}
    yield f"a flipped bit in a state: {refusal(partial(train, longest))}"
    task = {"kind": "ner", "types": ["Gene", "Chemical"]}
    tuned = lexome.finetune(
        {"start": longer.folder, "out": folder / "tuned", "epochs": 4, "device": "cpu", "optimizer": {"lr": 0.002},
         "data": {"folder": ROOT / "samples/ner"}, "task": task},
        progress_shown=False,
    )  # fmt: skip
    warnings = " ".join(tuned.summary.warnings)
    yield f"fine-tuned: {tuned.model is not None}; told: {warnings or 'nothing'}"
    assert tuned.model is not None
    from lexome.export.export import export

    export(tuned.model, folder / "onnx")
    yield f"exported and opened: {lexome.load(folder / 'onnx', threads=1).types}"
