"""Hypothesis strategies: documents over full Unicode whose spans, relations and answers are all in place."""

from collections.abc import Callable

from hypothesis import strategies as st

from lexome import Argument, Document, Passage, Relation, Span

# Text that breaks offset arithmetic elsewhere: combining marks, NFD, emoji with joiners, Greek, CJK,
# every kind of line end and space, right-to-left marks, a BOM inside the text.
TRICKY = [
    "é", "e\u0301", "Å", "A\u030a", "κ", "β-catenin", "µ", "♂", "♀", "👩\u200d🔬", "🧬", "測試", "ﬁ", "ß", "İ",
    "\u0085", "\u2028", "\u2029", "\u00a0", "\u200b", "\u202e", "\ufeff", "\n", "\r", "\r\n", "\t", "\x0b", "\x0c",
    "\x1c", "\x00", "\ufffe", "|", "<", ">", "&", "]]>", '"', "'", "\\", "&amp;", "-DOCSTART-",
    "한국어", " ", "  ", "gene", "p53",
]  # fmt: skip

TYPES = ["Gene", "Disease", "Chemical", "CellLine", "Species"]
CONCEPTS = ["mesh:D001943", "NCBIGene:672", "NCBITaxon:9606", "omim:114480", "cellosaurus:CVCL_0030"]


def anything(character: str) -> bool:
    """Keep every character."""
    return True


def texts(keep: Callable[[str], bool] = anything, *, min_size: int = 0) -> st.SearchStrategy[str]:
    """Text of tricky pieces and random characters, those that `keep` refuses left out."""
    piece = st.one_of(st.sampled_from(TRICKY), st.text(min_size=1, max_size=8))
    joined = st.lists(piece, max_size=12).map(lambda pieces: "".join(c for c in "".join(pieces) if keep(c)))
    return joined.filter(lambda text: len(text) >= min_size)


@st.composite
def spans_of(draw: st.DrawFn, doc_passages: tuple[Passage, ...], *, discontinuous: bool = True) -> tuple[Span, ...]:
    """Spans anywhere in these passages: nested, overlapping, and discontinuous unless that is refused."""
    filled = [passage for passage in doc_passages if passage.text]
    if not filled:
        return ()
    spans = []
    for number in range(draw(st.integers(0, 4))):
        passage = draw(st.sampled_from(filled))
        size = len(passage.text)
        cuts = draw(st.lists(st.integers(0, size), min_size=2, max_size=4 if discontinuous else 2, unique=True))
        cuts = sorted(cuts)[: len(cuts) // 2 * 2]
        parts = tuple(
            (passage.offset + start, passage.offset + end) for start, end in zip(cuts[::2], cuts[1::2], strict=True)
        )
        text = " ".join(passage.text[start - passage.offset : end - passage.offset] for start, end in parts)
        concepts = tuple(draw(st.lists(st.sampled_from(CONCEPTS), max_size=2, unique=True)))
        spans.append(Span(f"T{number + 1}", draw(st.sampled_from(TYPES)), parts, text, concepts))
    return tuple(spans)


@st.composite
def relations_of(draw: st.DrawFn, spans: tuple[Span, ...]) -> tuple[Relation, ...]:
    """Relations between spans and concepts."""
    relations = []
    for number in range(draw(st.integers(0, 2))):
        arguments = []
        for role in ("Subject", "Object"):
            if spans and draw(st.booleans()):
                arguments.append(Argument(role, target=draw(st.sampled_from(spans)).id))
            else:
                arguments.append(Argument(role, concept=draw(st.sampled_from(CONCEPTS))))
        relations.append(Relation(f"R{number + 1}", draw(st.sampled_from(["binds", "treats"])), tuple(arguments)))
    return tuple(relations)


@st.composite
def documents(
    draw: st.DrawFn,
    *,
    keep: Callable[[str], bool] = anything,
    max_passages: int = 3,
    gaps: bool = True,
    discontinuous: bool = True,
    relations: bool = True,
) -> Document:
    """A document of up to `max_passages` passages with spans and relations."""
    passages = []
    offset = 0
    for number in range(draw(st.integers(0, max_passages))):
        text = draw(texts(keep))
        passages.append(Passage(offset, text, "title" if number == 0 else "paragraph"))
        offset += len(text) + (draw(st.integers(0, 3)) if gaps else 1)
    placed = tuple(passages)
    spans = draw(spans_of(placed, discontinuous=discontinuous))
    related = draw(relations_of(spans)) if relations else ()
    return Document(draw(st.from_regex(r"[A-Za-z0-9]{1,8}", fullmatch=True)), placed, spans, related)
