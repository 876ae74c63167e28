"""Answers in BERN2's shape, for programs that were written for it."""

import time
from typing import Any

from lexome.document import Document, Span

# BERN2's names of what it finds, by ours and those of the corpora, in lower case without spaces.
_NAMES = {
    "gene": "gene",
    "geneorgeneproduct": "gene",
    "protein": "gene",
    "gene/protein": "gene",
    "disease": "disease",
    "diseaseorphenotypicfeature": "disease",
    "chemical": "drug",
    "chemicalentity": "drug",
    "drug": "drug",
    "species": "species",
    "organism": "species",
    "organismtaxon": "species",
    "mutation": "mutation",
    "variant": "mutation",
    "sequencevariant": "mutation",
    "cellline": "cell_line",
    "celltype": "cell_type",
    "dna": "DNA",
    "rna": "RNA",
}
# What BERN2 says of a mention that it finds no concept for.
_NO_CONCEPT = "CUI-less"


def bern2_shape(doc: Document, *, pmid: str | None = None, now_s: float | None = None) -> dict[str, Any]:
    """The document as BERN2 answers: mentions with begin and end in `text`, which is the document's own text."""
    shape: dict[str, Any] = {
        "annotations": [_annotation(span) for span in sorted(doc.spans, key=lambda span: (span.start, span.end))],
        "text": doc.text,
        "timestamp": time.strftime("%a %b %d %H:%M:%S +0000 %Y", time.gmtime(now_s)),
    }
    return shape if pmid is None else {"pmid": pmid, **shape}


def _annotation(span: Span) -> dict[str, Any]:
    plain = "".join(letter for letter in span.type.lower() if letter not in " _-")
    return {
        "id": list(span.concepts) or [_NO_CONCEPT],
        "is_neural_normalized": False,
        "mention": span.text,
        "obj": _NAMES.get(plain, span.type),
        "prob": span.score,
        "span": {"begin": span.start, "end": span.end},
    }
