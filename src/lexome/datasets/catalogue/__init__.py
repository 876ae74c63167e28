"""The cards of all sets that Lexome knows."""

from lexome.datasets.catalogue import asking, biobert_ner, classification, clinical, ner, relations
from lexome.datasets.dataset import Card

CARDS: dict[str, Card] = {
    card.name: card for part in (biobert_ner, ner, relations, classification, asking, clinical) for card in part.CARDS
}
