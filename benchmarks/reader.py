r"""Readers on BioASQ 7b: factoid, list and yes/no questions, on gold texts and with retrieval, and "do not know".

    python benchmarks/reader.py --reader FOLDER --yesno FOLDER [--data DATASETS] [--device cuda] [--out FILE]

A FOLDER is a model that `lexome export` wrote, which onnxruntime runs on the CPU as users run it, or a fine-tuned
checkpoint, which has no calibration and which torch runs, on CUDA if there is a GPU. Without --data, the datasets are
looked for in ../shared/data/benchmarks. --limit tries the script on a few questions.

| texts       | what is read                                                                                  |
| ----------- | --------------------------------------------------------------------------------------------- |
| `alone`     | the texts of BioBERT's test file, one by one, answers merged by probability: as in the papers  |
| `together`  | the same texts together, as `lexome ask` reads passages                                       |
| `snippets`  | the snippets that experts chose, together                                                     |
| `retrieved` | the passages that `lexome ask` finds in all documents of BioASQ 4b to 7b, each its snippets   |

No threshold keeps an answer back in these scores. "Do not know" is scored on answerable questions and on unanswerable
ones: the same questions with the snippets of another one, or with documents retrieved from those that experts chose for
other questions; where a text has an answer by chance, the question is left out. `precision` is the share of
unanswerable questions among those that get no answer, were both kinds equally frequent; `or_wrong` counts those as well
whose best answer would have been wrong. Percentages, but for thresholds and calibration errors.
"""

import argparse
import json
import lzma
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from facts import facts
from lexome.datasets import find
from lexome.document import Document, Question
from lexome.export.calibration import expected_calibration_error
from lexome.infer.annotator import Model
from lexome.infer.predictor import SETTINGS, Predictor, TokenIds, identity_of
from lexome.search import Index, index
from lexome.search.ask import PASSAGES, coverage, min_coverage, read_questions, threshold_of
from lexome.tasks import Questions
from lexome.tasks.metrics import bioasq_yesno
from lexome.tasks.qa import Form, ask_elsewhere, ask_of, find_answer, is_right, join_texts
from lexome.tasks.task import Floats
from real_data import DATASETS

ROOT = Path(__file__).resolve().parents[1]
EDITIONS = ("4B", "5B", "6B", "7B")
# Fang et al. 2023, table 3: Bioformer-8L after SQuAD, on `alone`.
PUBLISHED = {"model": "Bioformer-8L", "strict": 40.87, "lenient": 59.75, "mrr": 48.08}
# Tokens that torch runs at a time on a GPU.
BATCH_TOKENS = 1 << 16
Row = dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """A question with the answers to it, and whether the texts that were read have one."""

    gold: Question
    found: Question
    likely: float
    answerable: bool = True
    covered: bool = True

    @property
    def best(self) -> float:
        """The probability of the best answer."""
        return max((answer.score or 0.0 for answer in self.found.answers), default=0.0)

    def is_unknown(self, threshold: tuple[float, bool]) -> bool:
        """Whether answers are withheld, by the reader's threshold and what that is of, or for lack of coverage."""
        least, by_answerable = threshold
        return not self.covered or (self.likely if by_answerable else self.best) < least


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--reader", type=Path, required=True)
    options.add_argument("--yesno", type=Path)
    options.add_argument("--data", type=Path, default=DATASETS)
    options.add_argument("--device", default=None)
    options.add_argument("--threads", type=int)
    options.add_argument("--limit", type=int)
    options.add_argument("--out", type=Path, default=ROOT / "results" / "reader.json")
    given = options.parse_args()
    began = time.perf_counter()
    rows: list[Row] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folders = [folder for folder in (given.reader, given.yesno) if folder is not None]
        all_exported = all((folder / SETTINGS).is_file() for folder in folders)
        device = "cpu" if all_exported else given.device or default_device()
        models = [
            open_reader(folder, scratch / str(number), device, given.threads) for number, folder in enumerate(folders)
        ]
        golden = {form: gold_questions(given.data, form)[: given.limit] for form in get_args(Form)}
        everywhere = index_documents(given.data, scratch / "all", without=())
        asked_of = [doc for docs in golden.values() for doc in docs]
        elsewhere = index_documents(given.data, scratch / "elsewhere", without=asked_of)
        indexes = [stack.enter_context(Index.open(path)) for path in (everywhere, elsewhere)]
        for model in models:
            for row in evaluate(model, golden, indexes, given):
                print(json.dumps(row), flush=True)
                rows.append(row)
    content = {
        **facts("numpy", "onnxruntime", "torch"),
        "device": hardware(device),
        "seconds": round(time.perf_counter() - began),
        "readers": [
            {**identity_of(folder), "precision": model.settings.precision, "calibration": model.settings.calibration}
            for folder, model in zip(folders, models, strict=True)
        ],
        "published": PUBLISHED,
        "questions": {form: len(docs) for form, docs in golden.items()},
        "passages": PASSAGES,
        "rows": rows,
    }
    given.out.write_text(json.dumps(content, indent=1) + "\n")


def default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def hardware(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"


# --- Models


def open_reader(folder: Path, scratch: Path, device: str, threads: int | None) -> Model:
    """The reader in a folder: an exported one, or a checkpoint, which torch runs."""
    if (folder / SETTINGS).is_file():
        return Model.open(folder, threads=threads)
    from lexome.export.export import export

    export(folder, scratch, name=folder.resolve().name)
    model = Model.open(scratch, threads=threads)
    return model.with_predictor(TorchPredictor(model.predictor, folder, device))


class TorchPredictor(Predictor):
    """A checkpoint in torch, on packed sequences, with the settings and the tokenizer of its export."""

    def __init__(self, exported: Predictor, checkpoint: Path, device: str) -> None:
        import torch

        from lexome.models.checkpoint import load

        vars(self).update(vars(exported))
        self._model = load(checkpoint).model.to(device).eval()
        self._device = torch.device(device)

    def logits(
        self,
        rows: Sequence[TokenIds],
        *,
        segments: Sequence[TokenIds] | None = None,
        batch: int = 1,
        batch_tokens: int = 0,
    ) -> list[Floats]:
        """Logits of each sequence, in batches of up to BATCH_TOKENS; in bfloat16 on a GPU, but for the sums."""
        import torch

        from lexome.models.encoder import Packing

        results: list[Floats] = []
        at = 0
        while at < len(rows):
            end, size = at, 0
            while end < len(rows) and (end == at or size + len(rows[end]) <= BATCH_TOKENS):
                size += len(rows[end])
                end += 1
            lengths = [len(row) for row in rows[at:end]]
            packing = Packing.of(np.cumsum(lengths), self._device)
            packed = [
                None
                if part is None
                else torch.from_numpy(np.concatenate([np.asarray(row, np.int64) for row in part[at:end]])).to(
                    self._device
                )
                for part in (rows, segments if self.settings.segments else None)
            ]
            on_cuda = self._device.type == "cuda"
            with torch.inference_mode(), torch.autocast(self._device.type, torch.bfloat16, enabled=on_cuda):
                logits = self._model(packed[0], packing, packed[1]).float().cpu().numpy()
            per_sequence = self.settings.kind == "sequence"
            results += list(logits) if per_sequence else np.split(logits, np.cumsum(lengths)[:-1])
            at = end
        return results


# --- Questions and documents


def golden_files(data: Path) -> Iterator[tuple[str, list[Row]]]:
    """The golden files by edition."""
    for edition in EDITIONS:
        (path,) = (data / "BioASQ" / "golden").glob(f"{edition}_golden.json*")
        content = path.read_bytes()
        yield edition, json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)["questions"]


def gold_questions(data: Path, form: Form) -> list[Document]:
    """The questions of one form in 7b, each with its snippets."""
    from lexome.formats import read

    (path,) = (data / "BioASQ" / "golden").glob("7B_golden.json*")
    docs = (doc for doc in read(path, "bioasq") if doc.questions[0].type == form)
    return [doc for doc in join_texts(docs) if doc.passages and doc.questions[0].answers]


def index_documents(data: Path, folder: Path, *, without: Sequence[Document]) -> Path:
    """An index of the documents of all questions, but for those that experts found for some questions."""
    left_out = {name_of(url) for doc in without for url in doc.questions[0].documents}
    texts: dict[str, dict[str, None]] = {}
    for _, questions in golden_files(data):
        for question in questions:
            for snippet in question.get("snippets", ()):
                name = name_of(snippet["document"])
                if name not in left_out:
                    texts.setdefault(name, {})[snippet["text"]] = None
    records = ({"id": name, "text": " ".join(own)} for name, own in texts.items())
    path = folder.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    index([path], folder, progress_shown=False)
    return folder


def name_of(url: str) -> str:
    return url.rsplit("/", 1)[-1]


# --- Reading


def evaluate(
    model: Model, golden: dict[Form, list[Document]], indexes: Sequence[Index], given: argparse.Namespace
) -> Iterator[Row]:
    """The rows of one reader: for each form that it answers, its scores and what it does not know, by texts."""
    own = cast(Questions, model.task)
    for form, docs in golden.items():
        if (form == "yesno") != (own.form == "yesno"):
            continue
        task = own if form == own.form else own.with_form(form)
        reader = model.with_task(task)
        every = model.with_task(task.with_all_candidates())
        least = threshold_of(model, form)
        if form == "factoid":
            kept = {doc.questions[0].id for doc in docs}
            split = find("BioASQ-7b", data=given.data).split("test")
            texts = [doc for doc in split if given.limit is None or doc.meta.part_of in kept]
            began = time.perf_counter()
            scores = percent(task.with_all_candidates().score(texts, every.annotate(texts)))
            yield row(form, "alone", scores, seconds=time.perf_counter() - began)
            yield row(form, "together", percent(answer_scores(task, read(reader, join_texts(texts)))))
        began = time.perf_counter()
        answered = read(reader, docs)
        seconds = time.perf_counter() - began
        scores = percent(answer_scores(task, answered)) | (majority(docs) if form == "yesno" else {})
        others = read(reader, ask_elsewhere(docs), gold=docs)
        yield row(form, "snippets", scores, do_not_know(task, answered, others, least), seconds)
        began = time.perf_counter()
        retrieved = read(reader, retrieve(indexes[0], docs, answerable=True), documents=indexes[0])
        seconds = time.perf_counter() - began
        scores = percent(answer_scores(task, retrieved))
        if form == "yesno":
            # Which documents do not answer a yes/no question cannot be told by looking for "yes" in them.
            yield row(form, "retrieved", scores, seconds=seconds)
            continue
        found = [doc.id for doc in retrieve(indexes[0], docs, answerable=True) if has_answer(doc)]
        scores["passages_with_an_answer"] = round(100 * len(found) / len(docs), 1)
        answerable = [one for one in retrieved if one.gold.id in found]
        others = read(reader, retrieve(indexes[1], docs, answerable=False), gold=docs, documents=indexes[1])
        yield row(form, "retrieved", scores, do_not_know(task, answerable, others, least), seconds)


def row(form: str, texts: str, scores: Row, unknown: Row | None = None, seconds: float | None = None) -> Row:
    result: Row = {"form": form, "texts": texts, "scores": scores}
    result |= {} if unknown is None else {"do_not_know": unknown}
    return result | ({} if seconds is None else {"seconds": round(seconds)})


def read(
    reader: Model, docs: Sequence[Document], *, gold: Sequence[Document] = (), documents: Index | None = None
) -> list[Answered]:
    """The answers to the question of each document. With `gold`, which has the right ones, the texts have none.

    With the index that they were retrieved from, texts that have too little of a question withhold its answers.
    """
    questions = {doc.questions[0].id: doc.questions[0] for doc in gold or docs}
    # Without places: scores compare texts.
    return [
        Answered(
            questions[found.id],
            replace(found, answers=tuple(replace(answer, start=None) for answer in found.answers)),
            likely,
            answerable=not gold,
            covered=documents is None or is_covered(documents, doc),
        )
        for doc, (found, likely) in zip(docs, read_questions(reader, docs), strict=True)
    ]


def is_covered(documents: Index, doc: Document) -> bool:
    texts = [passage.text for passage in doc.passages]
    return coverage(documents, doc.questions[0].text, texts) >= min_coverage(documents.passages)


def retrieve(documents: Index, docs: Sequence[Document], *, answerable: bool) -> list[Document]:
    """The questions of these documents with the passages that `lexome ask` reads; none with an answer, if so wanted."""
    found = [
        ask_of(doc.questions[0], [hit.text for hit in documents.search(doc.questions[0].text, limit=PASSAGES).hits])
        for doc in docs
    ]
    return found if answerable else [doc for doc in found if not has_answer(doc)]


def has_answer(doc: Document) -> bool:
    return any(next(find_answer(answer, doc.passages), None) for answer in doc.questions[0].answers)


# --- Scores


def answer_scores(task: Questions, answered: Sequence[Answered]) -> dict[str, float]:
    """The metrics of the form. A list has been cut by its threshold already."""
    gold, found = (
        [ask_of(question, ()) for question in part]
        for part in zip(*((one.gold, one.found) for one in answered), strict=True)
    )
    return task.with_all_candidates().score(gold, found)


def majority(docs: Sequence[Document]) -> Row:
    """Macro F1 of the most frequent answer to all yes/no questions."""
    gold = [doc.questions[0].answers[0].text for doc in docs]
    common = Counter(gold).most_common(1)[0][0]
    return {"majority": round(100 * bioasq_yesno(gold, [common] * len(gold)).macro_f1, 2)}


def do_not_know(
    task: Questions, answered: Sequence[Answered], others: Sequence[Answered], least: tuple[float, bool]
) -> Row:
    """How often an answer is kept back, how often that is right, and how well probabilities of best answers hold."""
    wrong = [not task.answer_score(one.gold, one.found) for one in answered]
    unknown = [one.is_unknown(least) for one in answered]
    of_others = sum(one.is_unknown(least) for one in others) / max(1, len(others))
    share, both = (sum(part) / max(1, len(answered)) for part in (unknown, map(all, zip(unknown, wrong, strict=True))))
    best = [
        (max(own.found.answers, key=lambda answer: answer.score or 0.0, default=None), own)
        for own in (*answered, *others)
    ]
    pairs = [(own.best, answer is not None and own.answerable and is_right(own.gold, answer)) for answer, own in best]
    probabilities, right = np.array(pairs, np.float64).T
    kept_back = of_others + share
    return {
        "threshold": least[0],
        "of": "any answer" if least[1] else "the best answer",
        "answerable": {"questions": len(answered), "unknown": round(100 * share, 1)},
        "unanswerable": {"questions": len(others), "unknown": round(100 * of_others, 1)},
        "precision": round(100 * of_others / kept_back, 1) if kept_back else None,
        "or_wrong": round(100 * (of_others + both) / kept_back, 1) if kept_back else None,
        "ece": round(expected_calibration_error(probabilities, right), 4),
    }


def percent(scores: dict[str, float]) -> Row:
    return {name: round(100 * value, 2) for name, value in scores.items()}


if __name__ == "__main__":
    main()
