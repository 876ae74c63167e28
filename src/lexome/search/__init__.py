"""Search over documents: an index of passages by words, vectors and concepts, and answers to questions from it.

import lexome.search

with lexome.search.open("papers-index") as index:
    for hit in index.search("palbociclib resistance", concepts=["NCBIGene:5925"]).hits:
        print(hit.document, hit.start, hit.end, hit.text)
"""

from lexome.search.ask import AskResult, Evidence, FoundAnswer, ask, open_readers, open_source
from lexome.search.build import IndexResult, index
from lexome.search.engine import Hit, Index, SearchResult

open = Index.open

__all__ = [
    "AskResult",
    "Evidence",
    "FoundAnswer",
    "Hit",
    "Index",
    "IndexResult",
    "SearchResult",
    "ask",
    "index",
    "open",
    "open_readers",
    "open_source",
]
