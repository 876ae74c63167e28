"""Bulk annotation on a GPU: PubMed XML to BioC or Parquet, files included, beside transformers' pipeline.

    python benchmarks/gpu_annotate.py [--small] [--device cuda] [--megabytes 208] [--workers N] [--parts stages,...]

Abstracts (JSON Lines) are written as PubMed XML, files of equal size, in the form of the annual baseline. They are
annotated by `annotate_files` with a process on the device, to each format and with and without linking. Measured are
tokens per second from file to file, the share of time that the device was running the model, and the hours that 40
million abstracts would take at this rate. A first run over a few files warms up and decides how many files the others
get, so that all parts end within `--minutes`. The parts:

    stages                 on one core without the model: reading, tokenizing, decoding, rules, linking and writing
    bioc-xml, parquet      without linking
    bioc-xml linked        with linking, over fewer files
    pipeline               transformers' token-classification pipeline, the same float weights in bf16 on the same
                           device, texts sorted by length, neither files nor rules
    certificate            agreement of mentions with fp32 on the CPU, on development documents, before any rules

A part that fails is recorded with its error, and the others go on. The result is written after each part, to
results/gpu_annotate.json or `--out`; with `--small`, which tries everything on a few abstracts, it is printed alone.
results/bulk_stages.json is of `--parts stages --device cpu --megabytes 2 --out results/bulk_stages.json`.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from facts import facts
from lexome import read, write
from lexome.datasets import find
from lexome.document import Document
from lexome.files import usable_cores
from lexome.infer.annotation import looks_foreign
from lexome.infer.annotator import Annotator, default_model
from lexome.infer.bulk import BulkSettings, annotate_files
from lexome.infer.concepts import ConceptOptions, naming_options
from lexome.infer.predictor import MODEL, read_settings
from lexome.infer.selection import ALL_RULES
from lexome.infer.sessions import packed_model
from lexome.pipeline import Engine
from real_data import DATA

# Workers import this module, and should not load torch for it, as those of `lexome annotate` do not.
if TYPE_CHECKING:
    from lexome.export.device import Server

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "gpu_annotate.json"
PUBMED = 40_000_000
FILES = 120
# Of all files, those that warm up, and that say how fast the machine is.
PROBE = 1 / 12
# Share of the time limit that a bulk part may take.
SHARES = {"bioc-xml": 0.35, "parquet": 0.3, "bioc-xml linked": 0.12}
PIPELINE_SECONDS = 20.0
# Documents of which each stage is timed.
STAGE_DOCUMENTS = 400
HELD_OUT = ("BC5CDR", "NCBI-disease-pubtator", "BioRED-NER", "NLM-Gene", "SPECIES-pubtator")


def main() -> None:
    import torch

    from lexome.export.device import precision_of, serve_models

    start = time.perf_counter()
    given = arguments()
    work = Path(tempfile.mkdtemp(prefix="gpu-annotate-"))
    result: dict[str, Any] = {
        "facts": facts("torch", "transformers", "numpy"),
        "device": torch.cuda.get_device_name() if given.device.startswith("cuda") else given.device,
        "precision": precision_of(given.device),
        "workers": given.workers,
    }

    def part(name: str, measure: Callable[[], dict[str, Any]], *, least: float = 0.0) -> dict[str, Any]:
        """The result of a part, printed and written; a failure, or a part for which there is no time, is recorded."""
        left = given.minutes * 60 - (time.perf_counter() - start)
        if given.parts and name not in given.parts:
            return {}
        try:
            found = measure() if left > least else {"skipped": f"{left:.0f} s were left"}
        except Exception as error:  # the other parts are still worth having
            found = {"failed": f"{type(error).__name__}: {error}"}
        result[name] = found
        result["minutes"] = round((time.perf_counter() - start) / 60, 2)
        print(f"{time.perf_counter() - start:6.1f} s  {name}: {json.dumps(found)}", flush=True)
        if not given.small:
            given.out.write_text(json.dumps(result, indent=1) + "\n")
        return found

    try:
        files = part("input", lambda: write_pubmed(given, work / "pubmed"))
        if "files" not in files:
            raise SystemExit(f"no abstracts in {given.text}. Name a folder or file with --text.")
        with serve_models([default_model()], given.device) if given.bulk else nullcontext() as server:
            count = max(1, round(PROBE * files["files"]))
            probe = part("probe", lambda: bulk(work, "bioc-xml", given, server, files=count))
            for name, share in SHARES.items():
                # Linking adds about half to what decoding costs.
                seconds = probe.get("seconds_per_file", 0.0) * (1.5 if "linked" in name else 1.0)
                count = min(files["files"], max(1, round(share * given.minutes * 60 / (seconds or 1.0))))
                measure = partial(bulk, work, name, given, server, files=count)
                part(name, measure, least=20.0)
        part("stages", lambda: stages(work, given))
        part("pipeline", lambda: pipeline(work, given), least=PIPELINE_SECONDS)
        part("certificate", lambda: agreement(given), least=10.0)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def arguments() -> argparse.Namespace:
    """Command-line arguments."""
    import torch

    options = argparse.ArgumentParser()
    options.add_argument("--small", action="store_true", help="a few abstracts, to try the script")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--data", type=Path, default=DATA, help="folder with corpus/ and benchmarks/")
    options.add_argument("--text", type=Path, help="abstracts to annotate; default: those of --data")
    options.add_argument("--megabytes", type=float, default=208)
    options.add_argument("--minutes", type=float, default=4, help="time limit for all parts together")
    options.add_argument("--workers", type=int, default=max(1, usable_cores() - 1))
    options.add_argument("--parts", type=lambda names: names.split(","), help="run these alone")
    options.add_argument("--out", type=Path, default=RESULT)
    given = options.parse_args()
    given.files = FILES
    given.text = given.text or given.data / "corpus" / "abstracts"
    given.bulk = not given.parts or not SHARES.keys().isdisjoint(given.parts)
    if given.parts:
        given.parts += ["input", *(["probe"] if given.bulk else [])]
    if given.small:
        given.megabytes, given.files = min(given.megabytes, 0.1), 4
    return given


def write_pubmed(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Abstracts as files of PubMed XML, from the beginning again where there are too few."""
    folder.mkdir()
    limit, size, documents = given.megabytes * 1e6, 0, 0
    first: list[Document] = []
    # Read once, and no further than needed.
    fresh = (first.append(doc) or doc for doc in read(given.text) if len(doc.text) > 200)  # type: ignore[func-returns-value]
    articles = chain(fresh, cycle(first))
    for number in range(given.files):
        with (folder / f"pubmed26n{number:04}.xml").open("w", encoding="utf-8") as stream:
            size += stream.write('<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n')
            while size < limit * (number + 1) / given.files:
                documents += 1
                size += stream.write(citation(next(articles), documents))
            size += stream.write("</PubmedArticleSet>\n")
    written = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "files": given.files,
        "documents": documents,
        "different": len(first),
        "megabytes": round(written / 1e6, 1),
    }


def citation(doc: Document, pmid: int) -> str:
    """A document as a PubmedArticle with the elements that every citation has."""
    title, *rest = (escape(passage.text) for passage in doc.passages)
    abstract = "".join(f"<AbstractText>{text}</AbstractText>" for text in rest or [title])
    return (
        f'<PubmedArticle><MedlineCitation Status="MEDLINE" Owner="NLM"><PMID Version="1">{pmid}</PMID>'
        "<DateRevised><Year>2026</Year><Month>01</Month><Day>01</Day></DateRevised>"
        "<Article><Journal><Title>Journal</Title><JournalIssue><PubDate><Year>2026</Year></PubDate></JournalIssue>"
        f"</Journal><ArticleTitle>{title}</ArticleTitle><Abstract>{abstract}</Abstract><Language>eng</Language>"
        "<PublicationTypeList><PublicationType>Journal Article</PublicationType></PublicationTypeList></Article>"
        f"</MedlineCitation></PubmedArticle>\n"
    )


def bulk(work: Path, name: str, given: argparse.Namespace, server: "Server", *, files: int) -> dict[str, Any]:
    """Annotate files; the rate includes reading, writing and the start of the workers, not that of the device."""
    out = work / "out"
    format, _, linked = name.partition(" ")
    inputs = sorted((work / "pubmed").iterdir())[:files]
    settings = BulkSettings((default_model(),), format, concepts=ConceptOptions(link=bool(linked)))
    before, start = server.update(), time.perf_counter()
    result = annotate_files(
        inputs,
        out,
        replace(settings, device=server.device),
        engine=Engine(workers=given.workers),
        progress_shown=False,
    )
    seconds = time.perf_counter() - start
    after = server.update()
    written = sum(path.stat().st_size for path in out.glob("*.*"))
    shutil.rmtree(out)
    if result.failures:
        return {"failed": result.failures}
    return {
        "files": files,
        "megabytes": round(sum(path.stat().st_size for path in inputs) / 1e6, 1),
        "megabytes_written": round(written / 1e6, 1),
        "documents": result.counts.documents,
        "mentions": result.counts.mentions.total(),
        "linked": result.counts.linked.total(),
        "tokens": result.counts.tokens,
        "seconds": round(seconds, 2),
        "seconds_per_file": round(seconds / files, 4),
        "tokens_per_second": round(result.counts.tokens / seconds),
        "documents_per_second": round(result.counts.documents / seconds, 1),
        "device_busy": round((after.busy_s - before.busy_s) / seconds, 3),
        "tokens_per_batch": round((after.tokens - before.tokens) / max(1, after.batches - before.batches)),
        "hours_for_40_million": round(PUBMED * seconds / result.counts.documents / 3600, 1),
    }


def stages(work: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of each stage on one core, the best of three rounds; the model is not among them.

    Rules and linking are differences: of decoding with and without rules, and of both with and without linking.
    """
    from lexome.export.device import open_model

    model = packed_model(default_model(), open_model(default_model(), given.device), types=())
    annotator = Annotator([model])
    plain = annotator.select(without_rules=(ALL_RULES,), overlaps="keep")
    ruled = annotator.select()
    concepts = ConceptOptions().open()
    assert concepts is not None
    path = work / "pubmed"
    docs = list(islice(read(path), 20 if given.small else STAGE_DOCUMENTS))
    # As many documents at a time as a worker sends.
    windows = [model.encode(doc) for doc in docs]
    logits = [model.run(own, batch_tokens=1 << 15) for own in windows]
    triples = list(zip(docs, windows, logits, strict=True))
    found = [model.predict(*triple, ruled) for triple in triples]
    linked = [concepts.apply(doc, ruled.types) for doc in found]
    out = work / "stage"
    steps: dict[str, Callable[[], object]] = {
        "read": lambda: list(islice(read(path), len(docs))),
        "language": lambda: [looks_foreign(doc) for doc in docs],
        "tokenize": lambda: [model.encode(doc) for doc in docs],
        "decode": lambda: [model.predict(*triple, plain) for triple in triples],
        "rules": lambda: [model.predict(*triple, ruled) for triple in triples],
        # Right after the rules, which have found the abbreviations.
        "link": lambda: [concepts.apply(model.predict(*triple, ruled), ruled.types) for triple in triples],
        "write bioc-xml": lambda: write(out, found, "bioc-xml"),
        "write parquet": lambda: write(out, found, "parquet"),
        "write bioc-xml linked": lambda: write(out, linked, "bioc-xml", **naming_options("bioc-xml", concepts)),
    }
    seconds = {name: min(timed(step) for _ in range(3)) for name, step in steps.items()}
    seconds["link"] = max(0.0, seconds["link"] - seconds["rules"])
    seconds["rules"] = max(0.0, seconds["rules"] - seconds["decode"])
    tokens = sum(len(window.ids) for own in windows for window in own)
    common = [seconds[name] for name in ("read", "language", "tokenize", "decode", "rules")]
    totals = {
        "bioc-xml": sum(common) + seconds["write bioc-xml"],
        "parquet": sum(common) + seconds["write parquet"],
        "bioc-xml linked": sum(common) + seconds["link"] + seconds["write bioc-xml linked"],
    }
    return {
        "documents": len(docs),
        "tokens": tokens,
        "microseconds_per_token": {name: round(1e6 * taken / tokens, 3) for name, taken in seconds.items()},
        "tokens_per_second": {name: round(tokens / taken) for name, taken in totals.items()},
    }


def timed(step: Callable[[], object]) -> float:
    """Seconds of CPU time that a step takes."""
    start = time.process_time()
    step()
    return time.process_time() - start


def pipeline(work: Path, given: argparse.Namespace) -> dict[str, Any]:
    """transformers' pipeline with the same weights on texts of the files, for a limited time."""
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer
    from transformers import pipeline as make_pipeline

    from lexome.export.device import precision_of
    from lexome.models.exported import write_exported

    settings = read_settings(default_model())
    checkpoint = work / "checkpoint"
    write_exported(
        default_model() / MODEL,
        checkpoint,
        kind=settings.kind,
        labels=settings.labels,
        tokenizer=default_model(),
        name=settings.source["name"],
    )
    tokenizer = AutoTokenizer.from_pretrained(checkpoint, model_max_length=512)
    dtype = torch.bfloat16 if precision_of(given.device) == "bf16" else torch.float32
    model = AutoModelForTokenClassification.from_pretrained(checkpoint, dtype=dtype)
    batch = 1 if given.device == "cpu" else 128
    run = make_pipeline(
        "token-classification",
        model=model,
        tokenizer=tokenizer,
        device=given.device,
        batch_size=batch,
        aggregation_strategy="simple",
    )
    texts = [doc.text for path in sorted((work / "pubmed").iterdir())[::12] for doc in read(path)]
    # Sorted by length within chunks of some batches, as many chunks as there is time for.
    size, done, mentions, tokens = 8 * batch, 0, 0, 0
    run(texts[:batch])
    start = time.perf_counter()
    limit = 2.0 if given.small else PIPELINE_SECONDS
    while done < len(texts) and time.perf_counter() - start < limit:
        chunk = sorted(texts[done : done + size], key=len)
        mentions += sum(map(len, run(chunk)))
        done += len(chunk)
    seconds = time.perf_counter() - start
    # Of its own tokenizer, counted after the clock has stopped.
    tokens = sum(map(len, tokenizer(texts[:done], truncation=True)["input_ids"]))
    return {"texts": done, "tokens": tokens, "mentions": mentions, "tokens_per_second": round(tokens / seconds)}


def agreement(given: argparse.Namespace) -> dict[str, Any]:
    """Mentions that the device and fp32 on the CPU agree on, of those that either has."""
    from lexome.export.device import load_on_device

    docs = [replace(doc, spans=(), relations=(), attributes=()) for doc in held_out(given.data, small=given.small)]
    found = [set(mentions(load_on_device([default_model()], device), docs)) for device in (given.device, "cpu")]
    both, either = len(found[0] & found[1]), len(found[0] | found[1])
    return {"documents": len(docs), "mentions": either, "agreement": round(both / max(1, either), 5)}


def held_out(data: Path, *, small: bool) -> list[Document]:
    """The development documents that the int8 model's certificate uses."""
    docs = [doc for name in HELD_OUT for doc in find(name, data=data / "benchmarks").splits(partial=True)["dev"]]
    return docs[::50] if small else docs


def mentions(annotator: Any, docs: Sequence[Document]) -> Iterator[tuple[int, int, int, str]]:
    """Document, place and type of each mention, before any rules."""
    types = [*annotator.types, *annotator.extra_types]
    annotated = annotator.annotate(docs, types=types, min_score=0.0, overlaps="keep", without_rules=(ALL_RULES,))
    for number, doc in enumerate(annotated):
        for span in doc.spans:
            yield number, span.start, span.end, span.type


if __name__ == "__main__":
    main()
