"""`nlp.add_pipe("lexome")`: Lexome's annotator as a component of a spaCy pipeline.

Registered by the entry point spacy_factories, so that spaCy finds it if Lexome is installed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import tee
from typing import TYPE_CHECKING

from spacy.language import Language

from lexome.document import Document
from lexome.formats.spacy_docs import add_mentions, from_spacy
from lexome.formats.tally import Tally
from lexome.infer.annotator import Annotator, load
from lexome.infer.named_models import resolve_model

if TYPE_CHECKING:
    from spacy.tokens import Doc

NAME = "lexome"


class LexomeComponent:
    """Annotates spaCy Docs: mentions are spans of doc.spans["lexome"], and entities unless they overlap.

    Their scores are in doc.spans["lexome"].attrs["scores"], in order, as those of spaCy's span categorizer.
    The tokens stay those of the pipeline: a mention that begins or ends inside a token covers all of it. The Document
    with exact offsets, and with relations and labels, is JSON in doc.user_data["lexome"].
    """

    def __init__(
        self,
        annotator: Annotator,
        *,
        types: Sequence[str] | None = None,
        min_score: float | Mapping[str, float] | None = None,
        entities: bool = True,
    ) -> None:
        # An unknown type is reported when the pipeline is built.
        self.annotator, self.entities = annotator, entities
        self.selection = annotator.select(types=types, min_score=min_score)

    def __call__(self, spacy_doc: "Doc") -> "Doc":
        """The Doc with mentions."""
        return next(self.pipe([spacy_doc]))

    def pipe(self, stream: Iterable["Doc"], *, batch_size: int = 128) -> Iterator["Doc"]:
        """The Docs with mentions, in order; several are annotated at a time."""
        waiting, read = tee(stream)
        annotated = self.annotator.annotate_selected(map(_document, read), self.selection)
        for spacy_doc, doc in zip(waiting, annotated, strict=True):
            add_mentions(spacy_doc, doc, entities=self.entities)
            yield spacy_doc


def _document(spacy_doc: "Doc") -> Document:
    return from_spacy(spacy_doc, tally=Tally())


@Language.factory(
    NAME,
    assigns=["doc.ents", "doc.spans"],
    default_config={"models": [], "types": None, "min_score": None, "entities": True, "threads": None},
)
def create_component(
    nlp: Language,
    name: str,
    models: list[str],
    types: list[str] | None,
    min_score: float | dict[str, float] | None,
    entities: bool,
    threads: int | None,
) -> LexomeComponent:
    """The component, with models by name or folder, or the default model."""
    annotator = load(*map(resolve_model, models), threads=threads)
    return LexomeComponent(annotator, types=types, min_score=min_score, entities=entities)
