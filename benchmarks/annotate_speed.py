"""Annotation throughput on a CPU: Hugging Face's pipeline, transformers with sorted batches, Lexome in fp32 and int8.

    python benchmarks/annotate_speed.py [--texts FILE|COUNT] [--rounds N]
    python benchmarks/annotate_speed.py CHECKPOINT EXPORTED_FP32 EXPORTED_INT8 [--texts FILE|COUNT] [--gold SET]

Without a checkpoint it is the default model as users run it, on one core: all types, with and without linking and
rules, beside the pipeline with a checkpoint of the same float weights. CPU time is counted there, not time on the wall,
because rules and linking are less than what another program on the machine changes. The pipeline knows one label per
token, not one per type, so its mentions of this model are not compared.

With a checkpoint, it is one fine-tuned token classifier in three forms, on the same texts. Each system runs in a
process of its own, pinned to one core and then to two; rounds alternate between systems, and the throughput is the
median. Tokens are those of the model's tokenizer without special tokens, the same count for every system. F1 is of the
predicted mentions on documents of a dataset that the model was not trained on. Writes results/annotate_speed.json,
either part without the other.
"""

import argparse
import json
import lzma
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from facts import facts
from lexome.datasets import find
from lexome.document import Document, Passage
from lexome.infer.predictor import read_settings
from lexome.infer.tokenizer import SubwordTokenizer, open_tokenizer
from real_data import ABSTRACTS, DATASETS

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "annotate_speed.json"
# 35 million abstracts and 5 million full texts in 45,000 CPU hours: about 0.25 documents per second and CPU (Fang et
# al. 2023), of about 1,250 tokens each.
BIOFORMER_TOKENS_PER_SECOND = 312
BATCH = 8
# Shorter ones are notices; longer ones do not fit into one sequence with the special tokens.
FEWEST_TOKENS, MOST_TOKENS = 40, 500
PEAK_SIZE = 1024

Mention = tuple[int, int, str]
Way = Callable[[Sequence[str]], list[list[Mention]]]


def main() -> None:
    given = arguments()
    if given.worker:
        work(given)
        return
    stored = json.loads(given.out.read_bytes()) if given.out.is_file() else {}
    if given.checkpoint is None:
        stored["default"] = default_measured(given)
        given.out.write_text(json.dumps(stored, indent=1) + "\n")
        print(json.dumps(stored["default"], indent=1))
        return
    tokenizer = open_tokenizer(given.fp32 / "tokenizer.json")
    lengths = lengths_of(tokenizer, texts_of(given.texts))
    if given.texts.isdigit():
        lengths = dict(islice(lengths.items(), int(given.texts)))
    texts = list(lengths)
    gold_texts, gold = gold_of(given, tokenizer)
    cores = sorted(os.sched_getaffinity(0))
    counts = [number for number in (1, 2) if number <= len(cores)]
    scores = scored(given, cores[: counts[-1]], gold_texts, gold)
    found = {f"{count} cores": measured(given, cores[:count], lengths) for count in counts}
    result = {
        "facts": facts("onnxruntime", "torch", "transformers", "tokenizers", "numpy"),
        "model": described(given),
        "texts": len(texts),
        "tokens": sum(lengths.values()),
        "f1": scores,
        "gold": {"set": given.gold, "split": given.split, "documents": len(gold)},
        "aggregation": given.aggregation,
        "rounds": given.rounds,
        "bioformer_tokens_per_second": BIOFORMER_TOKENS_PER_SECOND,
        "cores": found,
        **({"default": stored["default"]} if "default" in stored else {}),
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({"f1": scores, **found}, indent=1))


def arguments() -> argparse.Namespace:
    """Command-line arguments."""
    options = argparse.ArgumentParser()
    options.add_argument("checkpoint", type=Path, nargs="?")
    options.add_argument("fp32", type=Path, nargs="?")
    options.add_argument("int8", type=Path, nargs="?")
    options.add_argument("--texts", default="256", help="a file with one text per line, or the number of abstracts")
    options.add_argument("--gold", default="NCBI-disease-pubtator")
    options.add_argument("--split", default="test")
    options.add_argument("--data", type=Path, default=DATASETS)
    options.add_argument("--gold-documents", type=int, default=100, help="maximum number of documents to score")
    options.add_argument(
        "--aggregation", default="simple", help="aggregation strategy of the pipeline; its documentation uses simple"
    )
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--out", type=Path, default=RESULT)
    options.add_argument("--worker", choices=[*WAYS, *DEFAULT_WAYS, "peak"], help=argparse.SUPPRESS)
    options.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    return options.parse_args()


def default_measured(given: argparse.Namespace) -> dict[str, Any]:
    """CPU time of the default model on one core, in Lexome and in the pipeline."""
    from lexome.infer.annotator import default_model
    from lexome.infer.predictor import MODEL
    from lexome.models.exported import write_exported

    settings = read_settings(default_model())
    given.fp32 = given.int8 = default_model()
    lengths = lengths_of(open_tokenizer(default_model() / "tokenizer.json"), texts_of(given.texts))
    lengths = dict(islice(lengths.items(), int(given.texts))) if given.texts.isdigit() else lengths
    core = sorted(os.sched_getaffinity(0))[-1:]
    with tempfile.TemporaryDirectory() as scratch:
        given.checkpoint = Path(scratch) / "checkpoint"
        write_exported(
            default_model() / MODEL,
            given.checkpoint,
            kind=settings.kind,
            labels=settings.labels,
            tokenizer=default_model(),
            name=settings.source["name"],
        )
        workers = {name: Worker(name, given, core) for name in ("pipeline", *DEFAULT_WAYS)}
        rounds: dict[str, list[float]] = {name: [] for name in workers}
        for worker in workers.values():
            worker.ask("cpu", list(lengths)[:BATCH])
        for _ in range(given.rounds):
            for name, worker in workers.items():
                rounds[name].append(worker.ask("cpu", list(lengths)))
        for worker in workers.values():
            worker.end()
    tokens, plain = sum(lengths.values()), statistics.median(rounds["pipeline"])
    return {
        "facts": facts("onnxruntime", "torch", "transformers", "tokenizers", "numpy"),
        "types": [type_ for type_ in (settings.task or {})["types"] if type_ not in (settings.task or {})["extra"]],
        "texts": len(lengths),
        "tokens": tokens,
        "rounds": given.rounds,
        "ways": {
            name: {
                "tokens_per_second": round(tokens / statistics.median(seconds)),
                "times_pipeline": round(plain / statistics.median(seconds), 2),
                "cpu_seconds": [round(each, 3) for each in seconds],
            }
            for name, seconds in rounds.items()
        },
    }


def scored(
    given: argparse.Namespace, cores: Sequence[int], texts: list[str], gold: list[set[Mention]]
) -> dict[str, float]:
    """F1 of each system, which does not depend on the number of cores."""
    found = {}
    for name in WAYS:
        worker = Worker(name, given, cores)
        found[name] = round(f1_of(gold, worker.ask("mentions", texts)), 4)
        worker.end()
    return found


def measured(given: argparse.Namespace, cores: Sequence[int], lengths: dict[str, int]) -> dict[str, Any]:
    """Throughput of each system on these cores, and the fraction of their peak FLOPs."""
    texts, tokens = list(lengths), sum(lengths.values())
    each = operations(given.checkpoint, lengths.values())
    workers = {name: Worker(name, given, cores) for name in (*WAYS, "peak")}
    rounds: dict[str, list[float]] = {name: [] for name in workers}
    for name in WAYS:
        workers[name].ask("seconds", texts[:BATCH])
    for _ in range(given.rounds):
        for name, worker in workers.items():
            rounds[name].append(worker.ask("seconds", texts))
    for worker in workers.values():
        worker.end()
    peak = 1 / statistics.median(rounds["peak"])
    plain = statistics.median(rounds["pipeline"])
    found: dict[str, Any] = {"matmul_peak_gflops": round(peak / 1e9, 1), "ways": {}}
    for name in WAYS:
        seconds = statistics.median(rounds[name])
        rate = tokens / seconds
        found["ways"][name] = {
            "tokens_per_second": round(rate),
            "tokens_per_second_and_core": round(rate / len(cores)),
            "times_pipeline": round(plain / seconds, 2),
            "times_bioformer": round(rate / len(cores) / BIOFORMER_TOKENS_PER_SECOND, 1),
            "share_of_matmul_peak": round(rate * each / peak, 3),
            "seconds": [round(held, 3) for held in rounds[name]],
        }
    return found


class Worker:
    """A process pinned to some cores that runs one system on request."""

    def __init__(self, name: str, given: argparse.Namespace, cores: Sequence[int]) -> None:
        command = [sys.executable, __file__, *map(str, (given.checkpoint, given.fp32, given.int8))]
        command += ["--aggregation", given.aggregation, "--worker", name, "--threads", str(len(cores))]
        count = str(len(cores))
        threads = {name: count for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    def ask(self, what: str, texts: list[str]) -> Any:
        """The seconds that the texts take, or their mentions."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"what": what, "texts": texts}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a worker ended with {self.process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """Terminate the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def work(given: argparse.Namespace) -> None:
    """Answer requests, one per line, until the input ends."""
    out, sys.stdout = sys.stdout, sys.stderr
    ways = {**WAYS, **DEFAULT_WAYS}
    way = ways[given.worker](given) if given.worker in ways else None
    for line in sys.stdin:
        asked = json.loads(line)
        if way is None:
            said: Any = peak_seconds(given.threads)
        elif asked["what"] == "mentions":
            said = way(asked["texts"])
        else:
            clock = time.process_time if asked["what"] == "cpu" else time.monotonic
            began = clock()
            way(asked["texts"])
            said = clock() - began
        out.write(json.dumps(said) + "\n")
        out.flush()


def pipeline_way(given: argparse.Namespace) -> Way:
    """As Hugging Face's documentation shows it.

    It knows one choice among all labels, and joins pieces without regard to words: of a model whose types are groups of
    labels, or that answers with the first piece of a word, its F1 is lower than the model's.
    """
    from transformers import pipeline

    classify = pipeline("token-classification", model=str(given.checkpoint), aggregation_strategy=given.aggregation)

    def run(texts: Sequence[str]) -> list[list[Mention]]:
        return [
            [
                (one["start"], one["end"], one["entity_group"])
                for one in found
                if not one["entity_group"].startswith("O")
            ]
            for found in classify(list(texts))
        ]

    return run


def transformers_way(given: argparse.Namespace) -> Way:
    """Length-sorted batches through transformers, with Lexome's encoding and decoding."""
    import torch
    from transformers import AutoModelForTokenClassification

    from lexome.infer.annotator import Model

    classify = AutoModelForTokenClassification.from_pretrained(given.checkpoint).eval()
    ours = Model.open(given.fp32, threads=1)

    @torch.inference_mode()
    def run(texts: Sequence[str]) -> list[list[Mention]]:
        docs = documents(texts)
        rows = [ours.encode(doc) for doc in docs]
        flat = [row for own in rows for row in own]
        order = sorted(range(len(flat)), key=lambda place: len(flat[place].ids))
        numbers: dict[int, Any] = {}
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            ids = [torch.from_numpy(flat[place].ids) for place in places]
            padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=ours.settings.pad)
            mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
            logits = classify(input_ids=padded, attention_mask=mask).logits.numpy()
            numbers |= {place: held[: len(flat[place].ids)] for place, held in zip(places, logits, strict=True)}
        each = iter(range(len(flat)))
        return [
            mentions(ours.decode(doc, own, [numbers[next(each)] for _ in own]))
            for doc, own in zip(docs, rows, strict=True)
        ]

    return run


def documents(texts: Sequence[str]) -> list[Document]:
    return [Document(str(number), (Passage(0, text),)) for number, text in enumerate(texts)]


def mentions(doc: Document) -> list[Mention]:
    return [(span.start, span.end, str(span.type)) for span in doc.spans]


def lexome_way(folder: Path, threads: int, *, link: bool = False, without_rules: Sequence[str] = ()) -> Way:
    """Lexome's annotator with its defaults, but for linking."""
    from lexome.infer.annotator import Annotator
    from lexome.infer.concepts import ConceptOptions

    annotator = Annotator.open(folder, threads=threads, concepts=ConceptOptions(link=link))

    def run(texts: Sequence[str]) -> list[list[Mention]]:
        return [mentions(doc) for doc in annotator.annotate(documents(texts), without_rules=without_rules)]

    return run


WAYS: dict[str, Callable[[argparse.Namespace], Way]] = {
    "pipeline": pipeline_way,
    "transformers, sorted batches": transformers_way,
    "lexome fp32": lambda given: lexome_way(given.fp32, given.threads),
    "lexome int8": lambda given: lexome_way(given.int8, given.threads),
}


# Of the default model.
DEFAULT_WAYS: dict[str, Callable[[argparse.Namespace], Way]] = {
    "lexome": lambda given: lexome_way(given.int8, given.threads),
    "lexome, with linking": lambda given: lexome_way(given.int8, given.threads, link=True),
    "lexome, without rules": lambda given: lexome_way(given.int8, given.threads, without_rules=("all",)),
}


def texts_of(asked: str) -> list[str]:
    """The texts of a file, one per line, or a number of abstracts."""
    if not asked.isdigit():
        return [line for line in Path(asked).read_text(encoding="utf-8").splitlines() if line.strip()]
    docs = (doc for path in sorted(ABSTRACTS.glob("*.jsonl.xz")) for doc in abstracts(path))
    # Twice as many, because texts that are too short or too long are dropped.
    return list(islice(docs, 2 * int(asked)))


def abstracts(path: Path) -> Iterator[str]:
    """Titles and abstracts of a corpus file."""
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            held = json.loads(line)
            yield f"{held['title']} {held['text']}"


def lengths_of(tokenizer: SubwordTokenizer, texts: Sequence[str]) -> dict[str, int]:
    """Texts that fit into one sequence, with their token counts, so that no system truncates or splits them."""
    found = {text: len(tokenizer.ids(text)) for text in texts}
    return {text: count for text, count in found.items() if FEWEST_TOKENS <= count <= MOST_TOKENS}


def gold_of(given: argparse.Namespace, tokenizer: SubwordTokenizer) -> tuple[list[str], list[set[Mention]]]:
    """Documents of a dataset that fit into one sequence, with their mentions of the model's types."""
    settings = read_settings(given.fp32)
    types = set((settings.task or {})["types"])
    docs = [
        doc
        for doc in find(given.gold, data=given.data).splits(partial=True)[given.split]
        if len(tokenizer.ids(doc.text)) <= MOST_TOKENS
    ][: given.gold_documents]
    wanted = types & {span.type for doc in docs for span in doc.spans}
    if not wanted:
        raise SystemExit(f"{given.gold} has no mentions of {', '.join(sorted(types))}. Choose another with --gold.")
    found = [{(span.start, span.end, span.type) for span in doc.spans if span.type in wanted} for doc in docs]
    return [doc.text for doc in docs], found


def f1_of(gold: Sequence[set[Mention]], found: Sequence[Sequence[Sequence[Any]]]) -> float:
    """Exact-match mention F1 over the types in gold."""
    types = {type_ for mentions in gold for _, _, type_ in mentions}
    right = wanted = given = 0
    for mentions, said in zip(gold, found, strict=True):
        own = {(start, end, type_) for start, end, type_ in said if type_ in types}
        right, wanted, given = right + len(own & mentions), wanted + len(mentions), given + len(own)
    return 2 * right / max(1, wanted + given)


def operations(checkpoint: Path, lengths: Iterable[int]) -> float:
    """FLOPs per token: matrix products, and attention over texts of these lengths."""
    config = json.loads((checkpoint / "config.json").read_bytes())
    width, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
    lengths = list(lengths)
    seen = sum(length**2 for length in lengths) / sum(lengths)
    return float(layers * (2 * (4 * width**2 + 2 * width * inner) + 4 * seen * width))


def described(given: argparse.Namespace) -> dict[str, Any]:
    """The model, and the int8 part of its certificate."""
    small = read_settings(given.int8)
    certificate = given.int8 / "certificate.json"
    said = json.loads(certificate.read_bytes()) if certificate.is_file() else {}
    config = json.loads((given.checkpoint / "config.json").read_bytes())
    return {
        "name": given.checkpoint.resolve().name,
        "layers": config["num_hidden_layers"],
        "width": config["hidden_size"],
        "types": (small.task or {})["types"],
        "left_in_fp32": len(said.get("left_in_fp32", [])),
        "agreement": said.get("agreement", {}).get("value"),
        "bytes": {name: (folder / "model.onnx").stat().st_size for name, folder in _folders(given)},
    }


def _folders(given: argparse.Namespace) -> list[tuple[str, Path]]:
    return [("fp32", given.fp32), ("int8", given.int8)]


def peak_seconds(threads: int) -> float:
    """Seconds per FLOP in the fastest of several products of large fp32 matrices."""
    import torch

    torch.set_num_threads(threads)
    left, right = torch.rand(PEAK_SIZE, PEAK_SIZE), torch.rand(PEAK_SIZE, PEAK_SIZE)
    times = []
    for _ in range(8):
        began = time.monotonic()
        torch.mm(left, right)
        times.append(time.monotonic() - began)
    return min(times) / (2 * PEAK_SIZE**3)


if __name__ == "__main__":
    main()
