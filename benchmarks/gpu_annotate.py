"""Bulk annotation on a GPU: PubMed XML to BioC or Parquet, files included, beside transformers' pipeline.

    python benchmarks/gpu_annotate.py [--small] [--device cuda] [--text ABSTRACTS] [--megabytes 256] [--workers N]

Abstracts (JSON Lines) are written as PubMed XML, a hundred files of equal size, in the form of the annual baseline.
They are annotated by `annotate_files` with a process on the device, once to each format. Measured are tokens per
second from file to file, the share of time that the device was running the model, and the hours that 40 million
abstracts would take at this rate. transformers' token-classification pipeline runs the same float weights in bf16 on
the same device, with texts sorted by length, without reading or writing files; its mentions are not decoded with rules.
The certificate is the agreement of mentions with fp32 on the CPU, on development documents, before any rules.
`--small` tries everything on a few abstracts. Writes results/gpu_annotate.json, or for --small prints alone.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import torch

from facts import facts
from lexome import read
from lexome.datasets import find
from lexome.document import Document
from lexome.export.device import load_on_device, precision_of, serve_models
from lexome.files import usable_cores
from lexome.infer.annotator import default_model
from lexome.infer.bulk import BulkSettings, annotate_files
from lexome.infer.predictor import MODEL, read_settings
from lexome.infer.selection import ALL_RULES
from lexome.models.exported import write_exported
from lexome.pipeline import Engine

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
RESULT = ROOT / "results" / "gpu_annotate.json"
PUBMED = 40_000_000
FILES = 100
FORMATS = ("bioc-xml", "parquet")
HELD_OUT = ("BC5CDR", "NCBI-disease-pubtator", "BioRED-NER", "NLM-Gene", "SPECIES-pubtator")


def main() -> None:
    given = arguments()
    work = Path(tempfile.mkdtemp(prefix="gpu-annotate-"))
    try:
        documents, size = write_pubmed(given.text, work / "pubmed", megabytes=given.megabytes, files=given.files)
        result: dict[str, Any] = {
            "facts": facts("torch", "transformers", "numpy"),
            "device": torch.cuda.get_device_name() if given.device.startswith("cuda") else given.device,
            "precision": precision_of(given.device),
            "workers": given.workers,
            "documents": documents,
            "megabytes": round(size / 1e6, 1),
            "lexome": {},
        }
        for format in FORMATS:
            result["lexome"][format] = bulk(work, format, given)
            print(format, result["lexome"][format], flush=True)
        result["pipeline"] = pipeline(work, given)
        print("pipeline", result["pipeline"], flush=True)
        result["certificate"] = agreement(given)
        print("certificate", result["certificate"], flush=True)
        if not given.small:
            RESULT.write_text(json.dumps(result, indent=1) + "\n")
    finally:
        shutil.rmtree(work, ignore_errors=True)


def arguments() -> argparse.Namespace:
    """Command-line arguments."""
    options = argparse.ArgumentParser()
    options.add_argument("--small", action="store_true", help="two megabytes, to try the script")
    options.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--text", type=Path, default=DATA / "corpus" / "abstracts")
    options.add_argument("--megabytes", type=float, default=256)
    options.add_argument("--workers", type=int, default=max(1, usable_cores() - 1))
    given = options.parse_args()
    given.files = FILES
    if given.small:
        given.megabytes, given.files = min(given.megabytes, 0.3), 4
    return given


def write_pubmed(source: Path, folder: Path, *, megabytes: float, files: int) -> tuple[int, int]:
    """Abstracts as files of PubMed XML, from the beginning again where there are too few; their number and bytes."""
    folder.mkdir()
    limit, size, documents = megabytes * 1e6, 0, 0
    articles = cycle(list(islice((doc for doc in read(source) if len(doc.text) > 200), 200_000)))
    for number in range(files):
        with (folder / f"pubmed26n{number:04}.xml").open("w", encoding="utf-8") as stream:
            size += stream.write('<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n')
            while size < limit * (number + 1) / files:
                documents += 1
                size += stream.write(citation(next(articles), documents))
            size += stream.write("</PubmedArticleSet>\n")
    return documents, sum(path.stat().st_size for path in folder.iterdir())


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


def bulk(work: Path, format: str, given: argparse.Namespace) -> dict[str, Any]:
    """Annotate all files; the rate includes reading, writing and the start of the workers, not loading torch."""
    out = work / f"out-{format}"
    settings = BulkSettings((default_model(),), format)
    with serve_models([default_model()], given.device) as server:
        start = time.perf_counter()
        result = annotate_files(
            [work / "pubmed"],
            out,
            replace(settings, device=server.device),
            engine=Engine(workers=given.workers),
            progress_shown=False,
        )
        seconds = time.perf_counter() - start
    shutil.rmtree(out)
    usage = server.usage
    return {
        "documents": result.counts.documents,
        "tokens": result.counts.tokens,
        "seconds": round(seconds, 2),
        "tokens_per_second": round(result.counts.tokens / seconds),
        "documents_per_second": round(result.counts.documents / seconds, 1),
        "device_busy": round(usage.busy_s / seconds, 3),
        "tokens_per_batch": round(usage.tokens / max(1, usage.batches)),
        "hours_for_40_million": round(PUBMED * seconds / result.counts.documents / 3600, 1),
    }


def pipeline(work: Path, given: argparse.Namespace) -> dict[str, Any]:
    """transformers' pipeline with the same weights, on the texts of the files; tokens as its own tokenizer counts."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer
    from transformers import pipeline as make_pipeline

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
    run = make_pipeline(
        "token-classification",
        model=model,
        tokenizer=tokenizer,
        device=given.device,
        batch_size=1 if given.device == "cpu" else 128,
        aggregation_strategy="simple",
    )
    texts = sorted((doc.text for doc in read(work / "pubmed")), key=len)[:: 8 if given.small else 4]
    tokens = sum(map(len, tokenizer(texts, truncation=True)["input_ids"]))
    start = time.perf_counter()
    found = sum(map(len, run(texts)))
    seconds = time.perf_counter() - start
    return {"texts": len(texts), "tokens": tokens, "mentions": found, "tokens_per_second": round(tokens / seconds)}


def agreement(given: argparse.Namespace) -> dict[str, Any]:
    """Mentions that the device and fp32 on the CPU agree on, of those that either has."""
    docs = [replace(doc, spans=(), relations=(), attributes=()) for doc in held_out(given.small)]
    found = [set(mentions(load_on_device([default_model()], device), docs)) for device in (given.device, "cpu")]
    both, either = len(found[0] & found[1]), len(found[0] | found[1])
    return {"documents": len(docs), "mentions": either, "agreement": round(both / max(1, either), 5)}


def held_out(small: bool) -> list[Document]:
    """The development documents that the int8 model's certificate uses."""
    docs = [doc for name in HELD_OUT for doc in find(name, data=DATA / "benchmarks").splits(partial=True)["dev"]]
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
