"""The linker: which concept each mention of a document refers to, how sure that is, and why.

    linker = Linker([TermIndex.open("terms.lexterms")])
    doc = linker.link(doc)
    for candidate in linker.explain(doc.spans[0], doc).candidates:
        print(candidate.concept, candidate.preferred, round(candidate.score, 2), candidate.reasons)

Each mention is looked up in several forms: as it is, by its long form, without modifiers, with synonymous words, and,
if no name agrees, by similar trigrams. Candidates are ranked by how well their name agrees, by the species and the
other mentions of the document, and by training mentions, if given. A mention gets no concept if its best candidate is
too improbable. Results are deterministic: they depend only on the document, the dictionaries and the weights.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Self

from lexome.concepts.abbreviations import find_abbreviations, long_forms
from lexome.concepts.index import Concept, NameMatch, TermIndex, default_index, displayed_name
from lexome.concepts.names import (
    EXPANDED,
    LONG,
    MENTION,
    REDUCED,
    SUBSTITUTED,
    Agreement,
    MentionForm,
    composite_parts,
    fold_name,
    is_plural,
    mention_forms,
    name_key,
    substituted_forms,
)
from lexome.concepts.ranking import (
    CELL_LINE_WEIGHT,
    GENE_PREFIX,
    HUMAN,
    MOUSE,
    PLACE,
    POPULAR_SPECIES,
    POPULAR_TAXA,
    RAT,
    SAME_SPECIES,
    KnownGenes,
    SpeciesContext,
    TrainingMentions,
    Weights,
    agreement_feature,
    default_weights,
    is_misspelling,
    is_popular_name,
    match_genes,
    word_overlap,
)
from lexome.concepts.variants import dbsnp_beside, variant_concepts
from lexome.document import Attribute, Document, Span, as_names
from lexome.frozen import fast_dataclass

GENE, DISEASE, CHEMICAL, SPECIES, CELL_LINE, VARIANT = "Gene", "Disease", "Chemical", "Species", "CellLine", "Variant"
# The attribute that has the probability of a span's concepts, if they are asked for.
CONCEPT_SCORE = "concept_score"

# The end of a mention type, in lower case without punctuation, and the type whose dictionary has its concepts.
_TYPE_ENDS = {
    "gene": GENE,
    "protein": GENE,
    "geneorgeneproduct": GENE,
    "disease": DISEASE,
    "diseaseorphenotypicfeature": DISEASE,
    "chemical": CHEMICAL,
    "chemicalentity": CHEMICAL,
    "drug": CHEMICAL,
    "species": SPECIES,
    "organism": SPECIES,
    "organismtaxon": SPECIES,
    "cellline": CELL_LINE,
    "variant": VARIANT,
    "sequencevariant": VARIANT,
    "mutation": VARIANT,
    "snp": VARIANT,
}
# If a name has concepts in several vocabularies, ids of these are the ones that corpora are annotated with.
_MAIN_VOCABULARY = ("mesh:D",)
_VOCABULARY = "mesh:"
# Metals that are not separate chemicals in the name of a salt.
_CATIONS = frozenset({"barium", "calcium", "iron", "lithium", "magnesium", "potassium", "sodium", "zinc"})
# If a concept has the mention's name, it is usually right; a concept with a similar name often is not. So candidates
# whose name agrees need only this fraction of the threshold: one third.
_NAMED = 3
# Thresholds of guesses, if not the type's own. On training and development data, 43 of 176 guesses of chemicals below
# this are right: names of codes, brands and compounds resemble each other.
_SURE_GUESS = {CHEMICAL: 0.9}
# "pERK" and "p-S6" are phosphorylated; what a receptor binds is another gene.
_PHOSPHORYLATED = re.compile(r"p(?:-(?=[A-Z]|p\d)|hospho-?(?=[A-Z])|(?=[A-Z]\w\w))(\S+)$")
_RECEPTOR = re.compile(r"((?=\S*[A-Z0-9])\S{2,8}) receptors?$")
# "p27 (KIP1)", "p27, also known as KIP1".
_OPENED = re.compile(
    r"\s?[(\[]\s?(?:also (?:known as|called|termed|named)|formerly|previously|or|alias)?\s?"
    r"|,? also (?:known as|called)\s"
)
_CLOSED = re.compile(r"\s?[)\],;/]|\s(?:and|or)\b|\.?$")
# Similar names of so few letters are no evidence, and symbols of elements no longer than this have their own case.
_MAX_SHORT, _MAX_ELEMENT = 4, 2
_RUN = re.compile(r"\d+|[^\W\d_]+")
_PUNCTUATION = re.compile(r"[\W_]+")
_SIMILAR_NAMES = 8
_LEAST_SIMILAR = 0.2
# No name of a dictionary is longer, and the forms of a mention of a whole page would take minutes.
_MAX_MENTION = 250
_EXPLAINED = 10
_ORTHOLOGS = 4
_TAXA = (HUMAN, MOUSE, RAT)
_MIN_FAMILY = 3
# Value of the feature "preferred" for a chemical whose preferred name is the plural of the mention, or its singular.
_OTHER_NUMBER = 0.3
# Dictionaries have fewer names for genes of mouse and rat than for human ones; this is added to the logarithm.
_FEWER_NAMES = 0.3
_CACHED_MENTIONS = 1 << 15
_FORM_FEATURE = {LONG: "long form", EXPANDED: "expanded", REDUCED: "reduced", SUBSTITUTED: "substituted"}


@fast_dataclass
class Candidate:
    """A concept that a mention may refer to: the probability that it does, and the reasons for it."""

    concept: str
    name: str
    preferred: str
    taxon: str | None
    score: float
    reasons: tuple[str, ...]


@fast_dataclass
class Explanation:
    """The result for a mention with the reasons: concepts, their probability and all candidates, the best first.

    `concepts` is empty if the best candidate is too improbable. `parts` are the mentions that a coordinated one was
    split into; the candidates are then those of its parts.
    """

    span: Span
    concepts: tuple[str, ...]
    score: float
    candidates: tuple[Candidate, ...]
    parts: tuple[str, ...] = ()


@fast_dataclass
class _ScoredConcept:
    """A concept with the features of its best name, without those that depend on the document."""

    concept: Concept
    name: str
    form: MentionForm
    agreement: Agreement | None
    features: Mapping[str, float]
    score: float


@fast_dataclass
class _Ranked:
    found: _ScoredConcept
    score: float
    features: Mapping[str, float]


@fast_dataclass
class _Context:
    """Evidence from a whole document; `concepts` counts those whose names agree with a mention in full."""

    long_form_of: Mapping[str, str]
    species: SpeciesContext
    concepts: Counter[str]
    # The symbols of the genes that mentions in "p27 (KIP1)" both name, by the text of either.
    bracketed: Mapping[str, Set[str]]
    # The dbSNP ids that the document gives for variants, by their text and normal form.
    dbsnp: Mapping[str, str]
    # The species of genes whose mention directly follows one of it, by the gene's offset, and the texts of these genes.
    taxon_before: Mapping[int, str]
    after_species: Mapping[str, Set[str]]

    def is_of_other_species(self, gene: Span, taxon: str) -> bool:
        """Whether a gene is that of another species than `taxon`, by the species named before it: "zebrafish sox10".

        Elsewhere in the document the same name is taken for the same gene, unless its sentence names `taxon`.
        """
        own = self.taxon_before.get(gene.start)
        if own is not None:
            return own != taxon
        others = self.after_species.get(gene.text, ())
        return bool(others) and taxon not in others and taxon not in self.species.nearby(gene.start, gene.end)

    def suggests_human_by_case(self, gene: Span, taxon: str) -> bool:
        """Whether a symbol is written as of human genes, not of `taxon`, in a document that implies no species.

        Dictionaries have genes of mice under new symbols that human genes have there under old ones only: SEPTIN1.
        """
        return not self.species.taxa and taxon != HUMAN and _symbol_case(gene.text, taxon) < 0


class Linker:
    """Links the mentions of documents to concepts; a Step when called."""

    def __init__(
        self,
        indexes: Sequence[TermIndex],
        *,
        mentions: TrainingMentions | None = None,
        weights: Mapping[str, Weights] | None = None,
        threshold: float | None = None,
    ) -> None:
        """`indexes` are searched in this order: a name that an earlier one has is not looked up in later ones.

        `threshold` replaces the probabilities below which mentions of each type get no concept.
        """
        self.indexes = tuple(indexes)
        self.mentions = mentions
        self.genes = KnownGenes({}, {}) if mentions is None else match_genes(mentions, self.indexes)
        self._dictionary_ids = {annotated: own for own, annotated in self.genes.same.items()}
        self.trained_concepts: Counter[str] = Counter()
        for id_, count in mentions.concepts.items() if mentions is not None else ():
            self.trained_concepts[self.ortholog_group(id_) if id_.startswith(GENE_PREFIX) else id_] += count
        self.weights = weights if weights is not None else default_weights()
        self.threshold = threshold
        self.types = frozenset(chain.from_iterable(index.types for index in self.indexes))
        self._look_up = lru_cache(maxsize=_CACHED_MENTIONS)(self._look_up_mention)

    @classmethod
    def load(cls, terms: Iterable[str | Path] = (), *, default: bool = True) -> Self:
        """A linker with these indexes, then the bundled one; `default=False` omits the bundled one."""
        indexes = [TermIndex.open(path) for path in terms]
        if default:
            indexes.append(default_index())
        return cls(indexes)

    def __call__(self, docs: Iterable[Document]) -> Iterator[Document]:
        """The documents with the concepts of their mentions."""
        return map(self.link, docs)

    def link(
        self, doc: Document, *, types: str | Collection[str] | None = None, relink: bool = False, scores: bool = False
    ) -> Document:
        """The document with concepts for its mentions, or for those of some `types`.

        Mentions that already have concepts keep them, unless `relink` finds others. With `scores`, each linked mention
        gets an attribute "concept_score" with the probability.
        """
        types = None if types is None else as_names(types)
        wanted = [
            span
            for span in doc.spans
            if (relink or not span.concepts) and (types is None or span.type in types) and self.linked_type(span.type)
        ]
        if not wanted:
            return doc
        explained = self._explain(doc, wanted, reasons=False)
        spans = tuple(
            Span(span.id, span.type, span.parts, span.text, explained[span.id].concepts, span.score)
            if span.id in explained and explained[span.id].concepts
            else span
            for span in doc.spans
        )
        attributes = doc.attributes
        if scores:
            used = {attribute.id for attribute in attributes}
            attributes += tuple(
                Attribute(_unused_id(f"{id_}.score", used), id_, CONCEPT_SCORE, f"{one.score:.3f}")
                for id_, one in explained.items()
                if one.concepts
            )
        return replace(doc, spans=spans, attributes=attributes)

    def explain(self, span: Span, doc: Document) -> Explanation:
        """Why a mention of a document is linked to its concepts, and which other concepts were considered."""
        return self._explain(doc, [span], reasons=True)[span.id]

    def explain_all(self, doc: Document) -> dict[str, Explanation]:
        """The explanations of all mentions that can be linked, by span id."""
        return self._explain(doc, [span for span in doc.spans if self.linked_type(span.type)], reasons=True)

    def linked_type(self, type: str) -> str | None:
        """The type whose dictionary has the concepts of mentions of this type, or None."""
        return self._type_of(type)

    @lru_cache(maxsize=1 << 10)  # noqa: B019 (linkers live as long as the process)
    def _type_of(self, type: str) -> str | None:
        if type in self.types:
            return type
        plain = _PUNCTUATION.sub("", type.lower())
        for end in sorted(_TYPE_ENDS, key=len, reverse=True):
            if plain.endswith(end):
                own = _TYPE_ENDS[end]
                return own if own in self.types or own == VARIANT else None
        return None

    def _explain(self, doc: Document, spans: Sequence[Span], *, reasons: bool) -> dict[str, Explanation]:
        context = self._context(doc)
        explained: dict[str, Explanation] = {}
        same: dict[tuple[str, str], Explanation] = {}
        for span in spans:
            type = self.linked_type(span.type) or span.type
            # The species of a gene depends on the place, everything else on the document alone.
            key = (span.text, type)
            if type != GENE and key in same:
                one = same[key]
                explained[span.id] = Explanation(span, one.concepts, one.score, one.candidates, one.parts)
                continue
            one = self._explain_span(span, type, context, reasons=reasons)
            explained[span.id] = same[key] = one
        return explained

    def _context(self, doc: Document) -> _Context:
        forms = _short_binomials(doc) | long_forms(find_abbreviations(doc))
        concepts: Counter[str] = Counter()
        places: list[tuple[int, str, float]] = []
        species_ends: dict[int, str] = {}
        seen: set[tuple[str, str]] = set()
        for span in doc.spans:
            type = self.linked_type(span.type)
            if type is None or type == VARIANT or len(span.text) > _MAX_MENTION:
                continue
            if type in (SPECIES, CELL_LINE):
                taxon, weight = self._taxon(span, type, forms)
                if taxon is not None:
                    places.append((span.start, taxon, weight))
                    if type == SPECIES:
                        species_ends[span.end] = SAME_SPECIES.get(taxon, taxon)
            if (span.text, type) not in seen:
                seen.add((span.text, type))
                found = self._look_up(span.text, type, forms.get(span.text), "")
                concepts.update(one.concept.id for one in found[:1] if _is_faithful(one))
        genes = [span for span in doc.spans if self.linked_type(span.type) == GENE]
        bracketed = self._bracketed_symbols(doc, genes, forms)
        before = _taxa_before(doc, genes, species_ends)
        after: dict[str, set[str]] = {}
        for gene in genes:
            if gene.start in before:
                after.setdefault(gene.text, set()).add(before[gene.start])
        species = SpeciesContext(doc, places, genes)
        return _Context(forms, species, concepts, bracketed, self._dbsnp_ids(doc), before, after)

    def _dbsnp_ids(self, doc: Document) -> dict[str, str]:
        """The dbSNP ids written beside variants, by text and normal form; without variants that have several ids."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for span in doc.spans:
            passage = doc.passage_at(span.start) if self.linked_type(span.type) == VARIANT else None
            if passage is None or len(span.text) > _MAX_MENTION:
                continue
            id_ = dbsnp_beside(passage.text, span.start - passage.offset, span.end - passage.offset)
            if id_ is not None:
                for name in (span.text, *variant_concepts(span.text)):
                    found[name].add(id_)
        return {name: ids.pop() for name, ids in found.items() if len(ids) == 1}

    def _bracketed_symbols(self, doc: Document, genes: Sequence[Span], forms: Mapping[str, str]) -> dict[str, set[str]]:
        """The symbols of genes that are named by both a mention and one in brackets after it, by the text of either."""
        bracketed: dict[str, set[str]] = {}
        ordered = sorted(genes, key=lambda span: (span.start, span.end))
        for first, second in pairwise(ordered):
            passage = doc.passage_at(first.start)
            if passage is None or second.end > passage.end or first.text == second.text:
                continue
            if max(len(first.text), len(second.text)) > _MAX_MENTION:
                continue
            between = passage.text[first.end - passage.offset : second.start - passage.offset]
            if _OPENED.fullmatch(between) and _CLOSED.match(passage.text, second.end - passage.offset):
                shared = self._symbols(first.text, forms) & self._symbols(second.text, forms)
                for text in (first.text, second.text) if shared else ():
                    bracketed.setdefault(text, set()).update(shared)
        return bracketed

    def _symbols(self, text: str, forms: Mapping[str, str]) -> set[str]:
        found = self._look_up(text, GENE, forms.get(text), "")
        return {one.concept.preferred.upper() for one in found if one.agreement is not None}

    def _taxon(self, span: Span, type: str, forms: Mapping[str, str]) -> tuple[str | None, float]:
        """The species that a mention implies, and its weight."""
        if type == SPECIES and span.concepts:
            return span.concepts[0], 1.0
        found = self._look_up(span.text, type, forms.get(span.text), "")
        if not found or found[0].agreement is None:
            return None, 0.0
        concept = found[0].concept
        return (concept.id, 1.0) if type == SPECIES else (concept.taxon, CELL_LINE_WEIGHT)

    def _explain_span(self, span: Span, type: str, context: _Context, *, reasons: bool) -> Explanation:
        if len(span.text) > _MAX_MENTION:
            return Explanation(span, (), 0.0, ())
        if type == VARIANT:
            concepts = variant_concepts(span.text)
            if not any(concept.startswith("dbsnp:") for concept in concepts):
                known = (context.dbsnp.get(name) for name in (span.text, *concepts))
                concepts = next(((id_,) for id_ in known if id_ is not None), concepts)
            return Explanation(span, concepts, float(bool(concepts)), _variants(concepts, span.text))
        weights = self.weights.get(type) or self.weights[""]
        threshold = self.threshold if self.threshold is not None else weights.threshold / _NAMED
        ranked = self._rank(span.text, type, span, context)
        # "CDK1/2" agrees loosely with CDK12.
        if not ranked or _is_guess(ranked[0].found) or _may_be_list(span.text, type, ranked[0].found):
            composite = self._explain_composite(span, type, context, weights, threshold, reasons=reasons)
            if composite is not None:
                return composite
        if not ranked:
            return Explanation(span, (), 0.0, ())
        probability = _probability(ranked, weights)
        shown = tuple(
            _candidate(one, share, context, reasons=reasons)
            for one, share in zip(ranked[:_EXPLAINED], _shares(ranked, probability), strict=False)
        )
        if self.threshold is None and _is_guess(ranked[0].found):
            threshold = _SURE_GUESS.get(type, weights.threshold)
        best = ranked[0].found
        taxon = best.concept.taxon
        if (
            type == GENE
            and taxon
            and (context.is_of_other_species(span, taxon) or context.suggests_human_by_case(span, taxon))
        ):
            return Explanation(span, (), 0.0, shown)
        if probability < threshold or _is_doubtful(best, context.long_form_of.get(span.text)):
            return Explanation(span, (), probability, shown)
        concepts = (ranked[0].found.concept.id,)
        return Explanation(span, concepts, probability, shown)

    def _explain_composite(
        self, span: Span, type: str, context: _Context, weights: Weights, threshold: float, *, reasons: bool
    ) -> Explanation | None:
        """The explanation of a coordinated mention, if each of its parts has a name that agrees."""
        parts = composite_parts(span.text, type)
        named = [
            [one for one in self._rank(part, type, span, context) if one.found.agreement is not None] for part in parts
        ]
        if not all(named):
            return None
        if type == GENE:
            named = _of_one_species(named)
            taxa = {ranked[0].found.concept.taxon for ranked in named}
            if any(taxon and context.is_of_other_species(span, taxon) for taxon in taxa):
                return None
        probabilities = [_probability(ranked, weights) for ranked in named]
        lowest = min(probabilities, default=0.0)
        candidates = [
            _candidate(ranked[0], probability, context, reasons=reasons)
            for ranked, probability in zip(named, probabilities, strict=True)
        ]
        concepts = tuple(dict.fromkeys(candidate.concept for candidate in candidates))
        # "CtIP/RBBP8" is one gene; "cancers and tumors" may be any.
        if len(concepts) < 2 - (type == GENE and bool(parts)) or lowest < threshold:
            return None
        return Explanation(span, concepts, lowest, tuple(candidates), tuple(parts))

    def _rank(self, text: str, type: str, span: Span, context: _Context) -> list[_Ranked]:
        """The candidates of a text with their scores in this document, the best first."""
        long = context.long_form_of.get(text)
        found = self._look_up(text, type, long, _expand_short_forms(text, context.long_form_of))
        if not found:
            return []
        weights = self.weights.get(type) or self.weights[""]
        near: Mapping[str, float] = {}
        constant: dict[str, float] = {}
        if type == GENE:
            near = context.species.nearby(span.start, span.end)
            taxa = {one.concept.taxon for one in found}
            constant["other species"] = sum(share for taxon, share in context.species.taxa.items() if taxon not in taxa)
            constant["other species nearby"] = max(
                (value for taxon, value in near.items() if taxon not in taxa), default=0.0
            )
        ranked: list[_Ranked] = []
        for one in found:
            extra = _document_features(one, type, text, context, near, is_first=one is found[0]) | constant
            score = one.score + sum(weights.features[PLACE[name]] * value for name, value in extra.items())
            ranked.append(_Ranked(one, score, extra))
        ranked.sort(key=lambda one: (-one.score, one.found.concept.id))
        # "human FABP1" in a study of mice.
        own = context.taxon_before.get(span.start)
        named = [one for one in ranked if one.found.concept.taxon == own and one.found.agreement is not None]
        return named if own is not None and named else ranked

    def _look_up_mention(self, text: str, type: str, long: str | None, embedded: str) -> tuple[_ScoredConcept, ...]:
        """The concepts of all forms of a mention, each with its best name.

        `embedded` is the mention with the short forms in it expanded, if it has some.
        """
        return _Lookup(self, text, type, long).concepts(embedded)

    def concept_of(self, curie: str, type: str, name: str) -> Concept:
        """The concept with this id; if no dictionary has it, a new one with this type and name."""
        for id_ in (curie, self._dictionary_ids.get(curie, "")):
            for index in self.indexes:
                concept = index.concept_of(id_)
                if concept is not None:
                    return concept
        return Concept(-1, curie, type, name, (name,), self.genes.taxa.get(curie), (), "")

    def ortholog_group(self, gene: str) -> str:
        """The symbol that the human, mouse and rat gene share, in capitals; for genes of no dictionary, their id."""
        concept = self.concept_of(gene, GENE, "")
        return gene if concept.number < 0 else concept.preferred.upper()


class _Lookup:
    """Looks up the forms of one mention: their concepts, each with its best name, independently of the document."""

    def __init__(self, linker: Linker, text: str, type: str, long: str | None) -> None:
        self.linker, self.text, self.type, self.long = linker, text, type, long
        self.weights = linker.weights.get(type) or linker.weights[""]
        self.best: dict[str, _ScoredConcept] = {}

    def concepts(self, embedded: str) -> tuple[_ScoredConcept, ...]:
        """The best first; `embedded` is the mention with the short forms in it expanded, if it has some."""
        text, type = self.text, self.type
        forms = mention_forms(text, type, {text: self.long} if self.long is not None else {})
        if not forms:  # a mention of nothing but spaces
            return ()
        if embedded:
            forms.insert(1, MentionForm(embedded, EXPANDED))
        if type == GENE:
            forms = self._without_notation(forms)
        self._add_agreeing(forms)
        if not any(map(_is_settled, self.best.values())):
            self._add_agreeing(chain.from_iterable(substituted_forms(form, type) for form in forms[:3]))
        if type == SPECIES and (taxon := POPULAR_SPECIES.get(name_key(text).replace(" ", ""))) is not None:
            concept = self.linker.concept_of(taxon, type, text)
            self._keep(self._score(concept, text, MentionForm(text, MENTION), Agreement.FOLDED))
        if self.linker.mentions is not None:
            self._add_trained(forms, self.linker.mentions)
        if type == GENE:
            self._demote_needless_forms()
            self._add_orthologs()
            self._compare_long_form()
        if type == SPECIES:
            self._demote_subspecies()
        if not self.best:
            self._add_similar(forms[0])
        self._demote_needless_forms()
        if type == CHEMICAL:
            self._keep_salts()
        return tuple(sorted(self.best.values(), key=lambda one: (-one.score, one.concept.id)))

    def _without_notation(self, forms: list[MentionForm]) -> list[MentionForm]:
        """The forms as dictionaries write genes: ERK, and not PERK, for "pERK"; IL6R for "IL-6 receptor"."""
        if (match := _PHOSPHORYLATED.match(self.text)) is not None and self._is_symbol(match[1]):
            return [MentionForm(match[1], EXPANDED), *forms[1:]]
        if (match := _RECEPTOR.match(self.text)) is not None and self._is_symbol(f"{match[1]}R", Agreement.LOOSE):
            forms.insert(1, MentionForm(f"{match[1]}R", EXPANDED))
        return forms

    def _is_symbol(self, text: str, least: Agreement = Agreement.FOLDED) -> bool:
        matches = chain.from_iterable(index.find(text, GENE)[:1] for index in self.linker.indexes)
        return any(match.agreement <= least for match in matches if match.agreement is not None)

    def _add_agreeing(self, forms: Iterable[MentionForm]) -> None:
        for form in forms:
            if self.type == GENE and self._is_family(form.text):
                continue
            for index in self.linker.indexes:
                matches = index.find(form.text, self.type)
                if not matches:
                    continue
                closest = matches[0].agreement
                rivals = math.log(sum(match.agreement == closest for match in matches))
                for match in matches:
                    concept = index.concept(match.concept)
                    if not _is_member(concept, match, form.text, self.type) and not self._is_other(
                        concept, match, form.text
                    ):
                        self._keep(self._score(concept, match.name, form, match.agreement, rivals=rivals))
                break

    def _is_other(self, concept: Concept, match: NameMatch, text: str) -> bool:
        """Whether a name that agrees loosely means something else: "protein kinase A" for "protein kinase".

        So does a synonym of a gene that agrees loosely with the exact name of a chemical: "LDL-C" is not LDLC.
        """
        if match.agreement is Agreement.LOOSE and _has_letter_a(text) != _has_letter_a(match.name):
            return True
        if self.type != GENE or match.agreement is not Agreement.LOOSE or name_key(text) == name_key(concept.preferred):
            return False
        exact = (index.find(text, CHEMICAL)[:1] for index in self.linker.indexes)
        return any(one.agreement is Agreement.EXACT for one in chain.from_iterable(exact))

    def _is_family(self, text: str) -> bool:
        """Whether a symbol without a number names a family of human genes: "Wnt", and "HDAC", a synonym of HDAC9.

        "Akt" does not, since texts mean AKT1 by it, and neither does a name that another dictionary gives to a gene.
        """
        if len(text) < _MIN_FAMILY or not text.isalpha():
            return False
        symbol = text.upper()
        for match, concept in self._genes(text):
            known = concept.preferred.upper() in (symbol, f"{symbol}1") or _is_popular(concept, text, GENE)
            if match.agreement is not Agreement.LOOSE and (concept.taxon is None or (known and concept.taxon == HUMAN)):
                return False
        return all(
            any(one.taxon == HUMAN and one.preferred == member for _, one in self._genes(member))
            for member in _members(symbol)
        )

    def _genes(self, name: str) -> Iterator[tuple[NameMatch, Concept]]:
        for index in self.linker.indexes:
            for match in index.find(name, GENE):
                yield match, index.concept(match.concept)

    def _demote_needless_forms(self) -> None:
        """Lower the scores of forms with words left out or replaced, if a form without changes agrees."""
        if any(map(_is_settled, self.best.values())):
            for one in list(self.best.values()):
                if not _is_faithful(one) and "needless form" not in one.features:
                    self.best[one.concept.id] = self._with_feature(one, "needless form")

    def _add_orthologs(self) -> None:
        """Add genes of other species with the same symbol: dictionaries have most long names for human genes only."""
        named = sorted(
            (
                one
                for one in self.best.values()
                if one.concept.taxon in _TAXA and one.name != one.concept.preferred and len(one.name) >= _MIN_FAMILY
            ),
            key=lambda one: (-one.score, one.concept.id),
        )
        best: dict[str, _ScoredConcept] = {}
        for one in named:
            best.setdefault(one.concept.preferred.upper(), one)
        for one in list(best.values())[:_ORTHOLOGS]:
            for concept in self._orthologs(one.concept):
                scored = self._score(concept, one.name, one.form, one.agreement)
                self._keep(self._with_feature(scored, "ortholog"))

    def _orthologs(self, gene: Concept) -> Iterator[Concept]:
        """The genes of other species with its symbol, or else the only one that has it as a synonym: Ccn2."""
        symbol = gene.preferred.upper()
        named = list(self._genes(symbol))
        for taxon in _TAXA if named else ():
            if taxon == gene.taxon:
                continue
            own = [(match, one) for match, one in named if one.taxon == taxon]
            same = [one for _, one in own if one.preferred.upper() == symbol]
            spelled = [one for match, one in own if match.agreement in (Agreement.EXACT, Agreement.CASE)]
            yield from same or (spelled if len(spelled) == 1 else ())

    def _compare_long_form(self) -> None:
        """Add the overlap of the long form with the names of each gene, or of its human ortholog."""
        if self.long is None:
            return
        words: defaultdict[str, float] = defaultdict(float)
        for one in self.best.values():
            overlap = max((word_overlap(self.long, name)[0] for name in one.concept.names), default=0.0)
            words[one.concept.preferred.upper()] = max(words[one.concept.preferred.upper()], overlap)
        for one in list(self.best.values()):
            if one.form.kind != LONG and (share := words[one.concept.preferred.upper()]):
                self.best[one.concept.id] = self._with_feature(one, "words of the long form", share)

    def _keep_salts(self) -> None:
        """Drop the acid of a salt that MeSH has ("pregnenolone sulfate"), and the metal of any other salt."""
        named = [
            one
            for one in self.best.values()
            if _is_faithful(one) and one.agreement != Agreement.LOOSE and (self.long is None or one.form.kind == LONG)
        ]
        in_mesh = any(one.concept.id.startswith(_VOCABULARY) for one in named)
        for one in list(self.best.values()) if named else ():
            if one.form.kind == REDUCED and (in_mesh or fold_name(one.form.text) in _CATIONS):
                del self.best[one.concept.id]

    def _demote_subspecies(self) -> None:
        """Prefer a species to its subspecies if both have the name: "maize" is Zea mays."""
        for species in list(self.best.values()):
            binomial = f"{species.concept.preferred} "
            for one in list(self.best.values()):
                if (
                    any(name.startswith(binomial) for name in one.concept.names)
                    and one.concept.id != species.concept.id
                ):
                    self.best[one.concept.id] = self._with_feature(one, "needless form")

    def _add_similar(self, form: MentionForm) -> None:
        for index in self.linker.indexes:
            for match in index.near(form.text, self.type, _SIMILAR_NAMES):
                concept = index.concept(match.concept)
                if match.similarity >= _LEAST_SIMILAR and not _is_member(concept, match, form.text, self.type):
                    self._keep(self._score(concept, match.name, form, match.agreement, similarity=match.similarity))

    def _add_trained(self, forms: Iterable[MentionForm], mentions: TrainingMentions) -> None:
        """Add the concepts that training mentions of a form have, including those that no dictionary has."""
        for form in forms:
            for id_ in mentions.shares(form.text, self.type):
                concept = self.linker.concept_of(id_, self.type, form.text)
                self._keep(self._score(concept, form.text, form, Agreement.FOLDED))

    def _keep(self, scored: _ScoredConcept) -> None:
        """Add a candidate, unless the same concept has a better name already."""
        other = self.best.get(scored.concept.id)
        if other is None or scored.score > other.score:
            self.best[scored.concept.id] = scored

    def _with_feature(self, scored: _ScoredConcept, name: str, value: float = 1.0) -> _ScoredConcept:
        features = {**scored.features, name: value}
        return replace(scored, features=features, score=self.weights.score(features))

    def _score(
        self,
        concept: Concept,
        name: str,
        form: MentionForm,
        agreement: Agreement | None,
        *,
        rivals: float = 0.0,
        similarity: float = 1.0,
    ) -> _ScoredConcept:
        text, type, long, linker = self.text, self.type, self.long, self.linker
        if (annotated := linker.genes.same.get(concept.id)) is not None:
            concept = replace(concept, id=annotated)
        features: dict[str, float] = {agreement_feature(agreement): 1.0}
        if agreement is None:
            features["similarity"] = similarity
            features["misspelling"] = float(is_misspelling(form.text, name))
            features["mention words in name"], features["name words in mention"] = word_overlap(form.text, name)
        elif rivals:
            features["rivals"] = rivals
        if agreement is Agreement.LOOSE and is_plural(form.text) != is_plural(name):
            features["plural of the name" if is_plural(form.text) else "singular of the name"] = 1.0
        if form.kind in _FORM_FEATURE:
            features[_FORM_FEATURE[form.kind]] = 1.0
        elif long is not None and form.kind == MENTION:
            features["mention of an abbreviation"] = 1.0
        if form.words:
            features["words changed"] = float(form.words)
        if form.kind == MENTION and len(text) <= 4:
            features["short"] = 1.0
        if name_key(name) == name_key(concept.preferred):
            # Alcohols are another concept than alcohol; plurals of diseases are not.
            other_number = type == CHEMICAL and is_plural(form.text) != is_plural(concept.preferred)
            features["preferred"] = _OTHER_NUMBER if other_number else 1.0
        elif agreement is not None and type == DISEASE:
            features["words in preferred"] = word_overlap(form.text, concept.preferred)[0]
        features["names"] = math.log(len(concept.names))
        if type == GENE and concept.taxon != HUMAN:
            features["names"] += _FEWER_NAMES
        if concept.id.startswith(_MAIN_VOCABULARY):
            features["main vocabulary"] = 1.0
        # The meaning of an abbreviation in this document counts, not its usual meaning elsewhere.
        if _is_popular(concept, form.text if type == GENE else text, type) and (type != GENE or long is None):
            features["popular"] = 1.0
        if linker.mentions is not None:
            # Training mentions tell which gene a name means, and the document tells its species.
            key = linker.ortholog_group if type == GENE else None
            shares = linker.mentions.shares(form.text, type, key)
            own = concept.id if key is None else key(concept.id)
            if share := shares.get(own, 0.0):
                features["trained in part" if form.kind in (REDUCED, SUBSTITUTED) else "trained"] = share
            elif shares:
                features["trained otherwise"] = 1.0
            if count := linker.trained_concepts[own]:
                features["trained concept"] = math.log1p(count)
        return _ScoredConcept(concept, name, form, agreement, features, self.weights.score(features))


def _members(symbol: str) -> Iterator[str]:
    """The symbols of the first members of a gene family: WNT1, WNT2, WNT3."""
    return (f"{symbol}{number}" for number in "123")


def _is_popular(concept: Concept, text: str, type: str) -> bool:
    """Whether texts that use a name of several species, cell lines or genes usually mean this one.

    In Cellosaurus, well-known cell lines have the lowest numbers.
    """
    if type == GENE:
        return is_popular_name(text, concept.preferred)
    if type == CELL_LINE:
        return concept.id.startswith("cellosaurus:CVCL_0")
    if type == SPECIES:
        return POPULAR_SPECIES.get(name_key(text).replace(" ", "")) == concept.id or concept.id in POPULAR_TAXA
    return False


def _variants(concepts: tuple[str, ...], text: str) -> tuple[Candidate, ...]:
    """The normal forms of a variant as candidates: they are read off the text, not looked up."""
    return tuple(Candidate(one, text, one.partition(":")[2], None, 1.0, ("read off the mention",)) for one in concepts)


def _is_guess(found: _ScoredConcept) -> bool:
    """Whether a candidate is a guess: its name merely resembles the mention, or words were replaced to match it."""
    if found.agreement is None:
        return not found.features.get("misspelling")
    return found.form.kind == SUBSTITUTED


def _has_letter_a(name: str) -> bool:
    """Whether a name has the word "a", which loose agreement ignores as an article."""
    return "a" in fold_name(name).split()


def _letters(name: str) -> str:
    return "".join(filter(str.isalpha, name))


def _designator(name: str) -> str:
    """The number or single letter at the end of a name; compounds that differ in it are different compounds."""
    last = (_RUN.findall(fold_name(name)) or [""])[-1]
    return last if len(last) == 1 or last.isdigit() else ""


def _taxa_before(doc: Document, genes: Iterable[Span], species_ends: Mapping[int, str]) -> dict[int, str]:
    """The taxon of the species mention that ends directly before each gene, by the gene's offset."""
    taxa: dict[int, str] = {}
    for gene in genes:
        passage = doc.passage_at(gene.start)
        taxon = species_ends.get(gene.start - 1)
        if taxon is None or passage is None or gene.start == passage.offset:
            continue
        if passage.text[gene.start - passage.offset - 1] in " \u00a0-":
            taxa[gene.start] = taxon
    return taxa


def _is_doubtful(found: _ScoredConcept, long: str | None) -> bool:
    """Whether to reject a candidate regardless of its score.

    A short form of a disease means something else if its long form shares no word with the concept's names. A similar
    name is rejected if a short mention is not one of its words, or for chemicals if it ends in another number. Symbols
    of elements are case-sensitive: AR is not argon.
    """
    mention, name, type = found.form.text, found.name, found.concept.type
    if type == CHEMICAL and len(letters := _letters(mention)) <= _MAX_ELEMENT and letters != _letters(name):
        return True
    if found.agreement is None:
        is_short = len(name_key(mention)) <= _MAX_SHORT and fold_name(mention) not in fold_name(name).split()
        return is_short or (type == CHEMICAL and _designator(name) != _designator(mention))
    if long is None or found.form.kind != MENTION or type != DISEASE:
        return False  # of other types also right concepts have names that share no word with the long form
    return all(word_overlap(long, other)[0] == 0 for other in found.concept.names)


def _may_be_list(text: str, type: str, found: _ScoredConcept) -> bool:
    """Whether a mention that agrees loosely may be a list: CDK1 and CDK2 in "CDK1/2", which agrees with CDK12."""
    return type == GENE and "/" in text and found.agreement is Agreement.LOOSE


def _is_member(concept: Concept, match: NameMatch, text: str, type: str) -> bool:
    """Whether a plural names a class and the concept is a member of it: simvastatin for "statins", HDAC4 for "HDACs".

    Dictionaries list classes as synonyms of their members. A preferred name is never that of a class, except if it is a
    plural itself; a mention with a number means one gene of a family.
    """
    if match.agreement is not Agreement.LOOSE or type not in (CHEMICAL, GENE):
        return False
    if not is_plural(text) or is_plural(match.name) or name_key(match.name) == name_key(concept.preferred):
        return False
    if type == GENE:
        return not any(map(str.isdigit, text))
    return not is_plural(concept.preferred.partition(",")[0])


def _is_settled(found: _ScoredConcept) -> bool:
    """Whether a name agrees without changes, and the concept is in the vocabulary that corpora are annotated with."""
    type, id_ = found.concept.type, found.concept.id
    main = type not in (DISEASE, CHEMICAL) or id_.startswith(_MAIN_VOCABULARY)
    return main and _is_faithful(found)


def _is_faithful(found: _ScoredConcept) -> bool:
    """Whether a name agrees with the mention or its long form, with no word left out or replaced."""
    return found.agreement is not None and found.form.kind not in (REDUCED, SUBSTITUTED)


def _short_binomials(doc: Document) -> dict[str, str]:
    """The full name of each abbreviated binomial, such as "C. elegans", that the document also has in full."""
    names = (span.text.split() for span in doc.spans if span.type.lower().endswith("species"))
    return {
        f"{genus[0]}. {epithet}": f"{genus} {epithet}"
        for genus, epithet in (name[:2] for name in names if len(name) >= 2)
        if len(genus) > 2 and genus[0].isupper() and epithet.islower()
    }


def _expand_short_forms(text: str, long_form_of: Mapping[str, str]) -> str:
    """The mention with the short forms in it expanded; empty if it has none, or is one itself."""
    if not long_form_of or " " not in text or text in long_form_of:
        return ""
    words = text.split()
    return " ".join(long_form_of.get(word, word) for word in words) if any(map(long_form_of.get, words)) else ""


def _document_features(
    found: _ScoredConcept, type: str, text: str, context: _Context, near: Mapping[str, float], *, is_first: bool
) -> dict[str, float]:
    """The features of a candidate that depend on the document; `is_first` if it is the best one without them."""
    features: dict[str, float] = {}
    concept = found.concept
    if context.concepts[concept.id] > (is_first and _is_faithful(found)):
        features["document"] = 1.0
    if type == GENE and concept.taxon is not None:
        features["taxon"] = math.log(context.species.share(concept.taxon))
        if near:
            own = near.get(concept.taxon, 0.0)
            features["taxon nearby"] = own
            features["other taxon nearby"] = max(
                (value for taxon, value in near.items() if taxon != concept.taxon), default=0.0
            )
        features["symbol case"] = _symbol_case(text, concept.taxon)
    if type == GENE and concept.preferred.upper() in context.bracketed.get(text, ()):
        features["bracketed"] = 1.0
    return features


def _symbol_case(text: str, taxon: str) -> float:
    """1 if a symbol is capitalized as the species' genes are (BRCA1 human, Brca1 mouse), -1 if as others, else 0."""
    if len(text) < 3 or not text[0].isalpha() or " " in text or not text.isascii():
        return 0.0
    letters = [character for character in text if character.isalpha()]
    if len(letters) < 2:
        return 0.0
    upper = all(map(str.isupper, letters))
    title = letters[0].isupper() and not any(map(str.isupper, letters[1:]))
    if taxon == HUMAN:
        return 1.0 if upper else -1.0 if title else 0.0
    if taxon in (MOUSE, RAT):
        return 1.0 if title else -1.0 if upper else 0.0
    return 0.0


def _of_one_species(parts: Sequence[list[_Ranked]]) -> list[list[_Ranked]]:
    """Candidates of a list of genes, those of the most likely species first that all of the genes exist in."""
    best: list[dict[str | None, float]] = [{} for _ in parts]
    for scores, ranked in zip(best, parts, strict=True):
        for one in ranked:
            scores.setdefault(one.found.concept.taxon, one.score)
    shared = set(best[0]).intersection(*best[1:]) if best else set()
    if not shared:
        return list(parts)
    chosen = max(shared, key=lambda taxon: (sum(scores[taxon] for scores in best), taxon or ""))
    return [sorted(ranked, key=lambda one: one.found.concept.taxon != chosen) for ranked in parts]


def _probability(ranked: Sequence[_Ranked], weights: Weights) -> float:
    margin = ranked[0].score - ranked[1].score if len(ranked) > 1 else 8.0
    return weights.probability(ranked[0].score, margin)


def _shares(ranked: Sequence[_Ranked], probability: float) -> list[float]:
    """The best candidate's probability, and the remainder distributed over the others by their scores."""
    top = ranked[0].score
    others = [math.exp(one.score - top) for one in ranked[1:]]
    rest = (1 - probability) / (1 + sum(others)) if others else 0.0
    return [probability, *(min(probability, rest * other) for other in others)]


def _candidate(one: _Ranked, score: float, context: _Context, *, reasons: bool) -> Candidate:
    concept = one.found.concept
    told = _reasons(one, context) if reasons else ()
    preferred = displayed_name(concept) if reasons else concept.preferred
    return Candidate(concept.id, one.found.name, preferred, concept.taxon, score, told)


def _reasons(one: _Ranked, context: _Context) -> tuple[str, ...]:
    """The evidence for a candidate, for --explain."""
    found = one.found
    level = {
        Agreement.EXACT: "equals",
        Agreement.CASE: "equals, except in case,",
        Agreement.FOLDED: "equals, except in punctuation,",
        Agreement.LOOSE: "equals, except in word forms,",
        None: "resembles",
    }[found.agreement]
    what = "the mention" if found.form.kind == MENTION else f"its {found.form.kind} form {found.form.text!r}"
    what = f"its long form {found.form.text!r}" if found.form.kind == LONG else what
    reasons = [f"{what} {level} the name {found.name!r}"]
    if "trained" in found.features:
        reasons.append(f"{found.features['trained']:.0%} of the training mentions of this name have it")
    if "document" in one.features:
        reasons.append("other mentions of the document may refer to it")
    if "bracketed" in one.features:
        reasons.append("it also has the name in brackets beside the mention")
    if found.concept.taxon is not None and "taxon" in one.features:
        taxa = context.species.taxa
        share = f"{taxa.get(found.concept.taxon, 0.0):.0%} of the species mentions are of {found.concept.taxon}"
        reasons.append(share if taxa else "the document mentions no species")
        if one.features.get("taxon nearby"):
            reasons.append("its species is mentioned in the sentence")
    return tuple(reasons)


def _unused_id(id_: str, used: set[str]) -> str:
    while id_ in used:
        id_ += "'"
    used.add(id_)
    return id_
