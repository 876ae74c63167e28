"""What was found in documents, counted while they pass."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lexome.document import Document


@dataclass(slots=True)
class Counts:
    """Documents, characters of their text, and what was found in them, by type.

    `found` are the names that models can give; whatever else a document had before is not counted. None counts all.
    """

    documents: int = 0
    characters: int = 0
    tokens: int = 0
    mentions: Counter[str] = field(default_factory=Counter)
    relations: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    answers: int = 0
    found: frozenset[str] | None = None

    def watched(self, docs: Iterable[Document]) -> Iterator[Document]:
        """The documents, each counted as it passes."""
        for doc in docs:
            self.documents += 1
            self.characters += sum(len(passage.text) for passage in doc.passages)
            self.mentions.update(self._found(span.type for span in doc.spans))
            self.relations.update(self._found(relation.type for relation in doc.relations))
            self.labels.update(self._found(doc.labels))
            self.answers += sum(answer.score is not None for question in doc.questions for answer in question.answers)
            yield doc

    def _found(self, names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if self.found is None or name in self.found)

    def as_dict(self) -> dict[str, Any]:
        """The counts as JSON has them, the most frequent types first."""
        return {
            "documents": self.documents,
            "characters": self.characters,
            "tokens": self.tokens,
            "mentions": dict(_ordered(self.mentions)),
            "relations": dict(_ordered(self.relations)),
            "labels": dict(_ordered(self.labels)),
            "answers": self.answers,
        }

    def add(self, held: Mapping[str, Any]) -> None:
        """Add what `as_dict` gave of other documents."""
        for name in ("documents", "characters", "tokens", "answers"):
            setattr(self, name, getattr(self, name) + held[name])
        for name in ("mentions", "relations", "labels"):
            getattr(self, name).update(held[name])


def _ordered(counter: Counter[str]) -> list[tuple[str, int]]:
    """By number, and by name where numbers are equal: the same documents in any order give the same."""
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))
