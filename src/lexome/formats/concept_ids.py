"""Conversion between the concept ids of BioC and PubTator files and CURIEs.

| CURIE | in files |
| --- | --- |
| mesh:D001943 | MESH:D001943, or D001943 alone |
| omim:114480 | OMIM:114480 |
| NCBIGene:672 | 672 with the type Gene or a similar one; NCBIGene:672 elsewhere; 672(Tax:9606) is read too |
| NCBITaxon:9606 | 9606 with the type Species or a similar one; NCBITaxon:9606 elsewhere |
| cellosaurus:CVCL_0030 | CVCL_0030; CVCL:0030 is read too |
| dbsnp:rs113488022 | rs113488022; RS#:113488022 is read too |
| tmvar:p\\|SUB\\|V\\|600\\|E | p\\|SUB\\|V\\|600\\|E; tmVar:p\\|SUB\\|V\\|600\\|E is read too |
| hgvs:p.V600E | p.V600E; HGVS:p.V600E is read too |
| clingen:CA123643 | CA#:123643, the ClinGen allele |
| homologene:532 | homologene:532, or the infon "NCBI Homologene" |
| any other, such as GO:0005515 | unchanged |
| local:LAB-17 | LAB-17: an id of an unknown vocabulary |

Several ids are separated by ; or | or , or + and are written with ;. A list with a part that cannot be parsed is
one local id, because names of chemicals contain these characters too. "-1", "-" and an empty field mean no concept.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from urllib.parse import quote

from lexome.document import Argument, Relation, Span
from lexome.formats.tally import Tally

Ids = tuple[str, ...]
Types = Mapping[str, set[str]]
Side = tuple[str, Ids]
LOCAL = "local"
NO_CONCEPT = frozenset(("", "-", "-1", "None", "null"))
NOVELTY = {True: "Novel", False: "No"}
NOVELTY_VALUES = {"novel": True, "yes": True, "true": True, "no": False, "false": False}

# Prefixes in files, in lower case, and the CURIE prefix of each.
_PREFIXES = {
    name: prefix
    for prefix, names in {
        "mesh": ("mesh", "msh", "medic"),
        "omim": ("omim", "mim"),
        "NCBIGene": ("ncbigene", "ncbi gene", "ncbi_gene", "entrezgene", "entrez", "geneid"),
        "NCBITaxon": ("ncbitaxon", "ncbitaxonomy", "ncbi taxonomy", "ncbi_taxonomy", "taxonomy", "tax", "txid"),
        "cellosaurus": ("cellosaurus", "cvcl"),
        "dbsnp": ("dbsnp", "rs#", "rs"),
        "clingen": ("clingen", "ca#"),
        "homologene": ("homologene", "ncbi homologene"),
        "tmvar": ("tmvar",),
        "hgvs": ("hgvs",),
        "CHEBI": ("chebi",),
        LOCAL: (LOCAL,),
    }.items()
    for name in names
}

# The form of ids without prefix, by vocabulary.
_BARE = {
    **dict.fromkeys(("NCBIGene", "NCBITaxon", "homologene", "CHEBI", "dbsnp", "clingen"), re.compile(r"[0-9]+")),
    "omim": re.compile(r"[0-9]+(?:\.[0-9]+)?"),
    "cellosaurus": re.compile(r"[0-9A-Z]+"),
    "mesh": re.compile(r"[A-Z][0-9]+"),
    "umls": re.compile(r"C[0-9]+"),
}

# Infons with concept ids, in lower case without spaces and punctuation, and their vocabulary.
_INFONS: dict[str, str | None] = {
    infon: vocabulary
    for vocabulary, infons in {
        None: "identifier medic",
        "tmvar": "tmvar",
        "hgvs": "hgvs",
        "mesh": "mesh",
        "omim": "omim",
        "NCBIGene": "ncbigene entrezgene",
        "NCBITaxon": "ncbispecies ncbitaxonomy ncbitaxon taxonomy",
        "homologene": "ncbihomologene homologene",
        "cellosaurus": "cvcl cellosaurus",
        "dbsnp": "rs rsid dbsnp",
        "CHEBI": "chebi",
        "umls": "umls",
    }.items()
    for infon in infons.split()
}
# Ids whose form shows their vocabulary.
_FORMS = {
    "mesh": re.compile(r"[DC][0-9]{6,9}"),
    "dbsnp": re.compile(r"rs[0-9]+"),
    "cellosaurus": re.compile(r"CVCL_[0-9A-Z]+"),
    "tmvar": re.compile(r"[cgmnpr]?\|[A-Za-z]+[0-9]*\|[^;\s]*"),
    "hgvs": re.compile(r"[cgmnpr]\.[^;\s]+"),
}
_GENE_OF = re.compile(r"([0-9]+)\([Tt]ax:[0-9]+\)")
_PREFIXED = re.compile(r"([A-Za-z][\w.# -]*):(.*)", re.DOTALL)
_PLAIN = re.compile(r"[^\s;|,+]+")
_LIST = re.compile(r"[|,+]")

# tmVar's fields about a variant other than its id.
_CONTEXT = re.compile(r"(VariantGroup|CorrespondingGene|CorrespondingSpecies|OriginalGene):.*")
_TYPED = re.compile(r"([A-Z][A-Za-z_]+)\|(.+)", re.DOTALL)
_GENES = ("gene", "protein", "familyname", "domainmotif", "ggp")
_TAXA = ("species", "organism", "taxon", "strain", "genus")


def read_ids(raw: str, type: str, tally: Tally) -> Ids:
    """The CURIEs in an id field, for a mention of this type."""
    return _note_ignored(parse_ids(raw, vocabulary_of(type)), tally)


def is_concept_infon(key: str) -> bool:
    """True for infons that contain concept ids."""
    return _normalize(key) in _INFONS


def read_infon(key: str, raw: str, type: str, tally: Tally) -> Ids:
    """The CURIEs in an infon such as MESH, NCBI Gene or identifier."""
    return _note_ignored(parse_ids(raw, _INFONS[_normalize(key)] or vocabulary_of(type)), tally)


def _note_ignored(parsed: tuple[Ids, Ids], tally: Tally) -> Ids:
    concepts, notes = parsed
    for note in notes:
        tally.note(note)
    return concepts


@lru_cache(maxsize=1 << 15)
def write_ids(concepts: Ids, type: str) -> str | None:
    """The id field that read_ids parses as these concepts for this type, or None if there is none."""
    vocabulary = vocabulary_of(type)
    usual = ";".join(_pubtator_id(concept, vocabulary) for concept in concepts)
    for field in (usual, ";".join(concepts)):
        if parse_ids(field, vocabulary)[0] == concepts:
            return field
    return None


def _pubtator_id(concept: str, vocabulary: str | None) -> str:
    """The id in PubTator's form."""
    prefix, _, local = concept.partition(":")
    if prefix in ("mesh", "omim"):
        return f"{prefix.upper()}:{local}"
    if prefix == vocabulary or prefix in ("cellosaurus", "dbsnp", "tmvar", "hgvs", LOCAL):
        return local
    return concept


@lru_cache(maxsize=1 << 10)
def vocabulary_of(type: str) -> str | None:
    """The vocabulary of bare numbers in mentions of this type."""
    lower = type.lower()
    if any(word in lower for word in _GENES):
        return "NCBIGene"
    return "NCBITaxon" if any(word in lower for word in _TAXA) else None


@lru_cache(maxsize=1 << 10)
def _normalize(key: str) -> str:
    return "".join(character for character in key.lower() if character.isalnum())


@lru_cache(maxsize=1 << 16)
def parse_ids(raw: str, vocabulary: str | None) -> tuple[Ids, Ids]:
    """The CURIEs in a field, and notes on what was ignored."""
    text = raw.strip()
    if text in NO_CONCEPT:
        return (), ()
    notes: list[str] = []
    concepts: list[str] = []
    for piece in [text] if _parse_id(text, vocabulary) else text.split(";"):
        curies = _parse_list(piece.strip(), vocabulary, notes)
        if curies is None:
            return (f"{LOCAL}:{text}",), ()
        concepts += curies
    return (tuple(concepts), tuple(notes)) if concepts or notes else ((f"{LOCAL}:{text}",), ())


def _parse_list(piece: str, vocabulary: str | None, notes: list[str]) -> list[str] | None:
    """The CURIEs in a list without semicolons, or None if one cannot be parsed."""
    curie = _parse_id(piece, vocabulary)
    if curie is not None:
        if _GENE_OF.fullmatch(piece):
            notes.append("taxon of a gene id ignored")
        return [curie]
    if (context := _CONTEXT.fullmatch(piece)) is not None:
        notes.append(f"field {context[1]} of a variant ignored")
        return []
    prefix, _, rest = piece.partition(":")
    if _PREFIXES.get(prefix.lower()) == "dbsnp":
        vocabulary, piece = "dbsnp", rest
    concepts: list[str] = []
    for part in map(str.strip, _LIST.split(piece)):
        if part in NO_CONCEPT:
            notes.append("part without an id in a list of ids")
        elif (curies := _parse_list(part, vocabulary, notes) if part != piece else None) is not None:
            concepts += curies
        else:
            return None
    return concepts


def _parse_id(token: str, vocabulary: str | None) -> str | None:
    """The CURIE of a single id, or None if it cannot be parsed."""
    if vocabulary is not None and vocabulary in _BARE and _BARE[vocabulary].fullmatch(token):
        return f"{vocabulary}:{_local(vocabulary, token)}"
    for prefix, pattern in _FORMS.items():
        if pattern.fullmatch(token):
            return f"{prefix}:{token}"
    if (gene := _GENE_OF.fullmatch(token)) is not None:
        return f"NCBIGene:{gene[1]}"
    return _parse_prefixed(token)


def _parse_prefixed(token: str) -> str | None:
    """The CURIE of an id with prefix; unknown prefixes are unchanged."""
    match = _PREFIXED.fullmatch(token)
    if match is None or not match[2] or _CONTEXT.fullmatch(token):
        return None
    prefix, local = _PREFIXES.get(match[1].lower()), match[2]
    if prefix in ("tmvar", "hgvs", LOCAL):
        return f"{prefix}:{local}" if ";" not in local else None
    if not _PLAIN.fullmatch(local):
        return None
    if prefix is None:
        return token if " " not in match[1] else None
    return f"{prefix}:{_local(prefix, local)}"


def _local(prefix: str, local: str) -> str:
    if prefix == "cellosaurus" and not local.startswith("CVCL_"):
        return f"CVCL_{local}"
    return {"dbsnp": "rs", "clingen": "CA"}.get(prefix, "") + local if local.isdecimal() else local


def types_by_concept(spans: Iterable[Span]) -> Types:
    """The types of the mentions of each concept."""
    types: dict[str, set[str]] = {}
    for span in spans:
        for concept in span.concepts:
            types.setdefault(concept, set()).add(span.type)
    return types


def parse_sides(first: str, second: str, types: Types) -> tuple[Side, Side]:
    """The roles and concepts in the two id fields of a relation, in a document whose concepts have these types."""
    return _with_roles(_side(first, types), _side(second, types))


def sides_from_concepts(left: Ids, right: Ids, types: Types) -> tuple[Side, Side]:
    """The roles for two lists of concepts."""
    return _with_roles((_common_type(left, types), left), (_common_type(right, types), right))


def arguments_from_sides(sides: Sequence[Side]) -> tuple[Argument, ...]:
    """An argument for each concept, in its side's role."""
    return tuple(Argument(role, concept=concept) for role, concepts in sides for concept in concepts)


def relation_fields(relation: Relation, concepts: Mapping[str, Ids], types: Types) -> tuple[str, str] | None:
    """The two id fields of a relation, or None if it does not have two sides that ids can express.

    An argument that is a mention stands for its concepts in the mapping.
    """
    sides: list[Side] = [
        (argument.role, (argument.concept,) if argument.concept else concepts.get(str(argument.target), ()))
        for argument in relation.arguments
    ]
    if len(sides) != 2:
        # Consecutive arguments with the same role are one side.
        sides = [
            (role, tuple(concept for _, ids in group for concept in ids))
            for role, group in groupby(sides, lambda side: side[0])
        ]
    fields = [field for _, ids in sides if (field := _field(ids, types)) is not None]
    return (fields[0], fields[1]) if len(sides) == len(fields) == 2 else None


def _field(concepts: Ids, types: Types) -> str | None:
    """The id field that is parsed as these concepts in a document with these types."""
    if not concepts:
        return None
    known = sorted(set[str]().union(*(types.get(concept, ()) for concept in concepts)))
    for field in (*(write_ids(concepts, type) for type in (*known, "")), ";".join(concepts)):
        if field and _side(field, types)[1] == concepts:
            return field
    return None


def _side(field: str, types: Types) -> tuple[str | None, Ids]:
    """The concepts of an id field, and their type if it is the same for all."""
    if (typed := _TYPED.fullmatch(field)) is not None:
        return typed[1], parse_ids(typed[2], vocabulary_of(typed[1]))[0]
    # A bare number belongs to the vocabulary in which the document's mentions have it.
    readings = [parse_ids(field, vocabulary)[0] for vocabulary in (None, "NCBIGene", "NCBITaxon")]
    concepts = next((reading for reading in readings if all(concept in types for concept in reading)), readings[0])
    return _common_type(concepts, types), concepts


def _common_type(concepts: Ids, types: Types) -> str | None:
    distinct = set[str]().union(*(types.get(concept, ()) for concept in concepts))
    return distinct.pop() if len(distinct) == 1 else None


def _with_roles(left: tuple[str | None, Ids], right: tuple[str | None, Ids]) -> tuple[Side, Side]:
    if left[0] is not None and right[0] is not None and left[0] != right[0]:
        return (left[0], left[1]), (right[0], right[1])
    return ("Arg1", left[1]), ("Arg2", right[1])


# Links from concept ids to the pages of the databases that own them, for HTML pages and the service
#
# A CURIE whose prefix is in `ADDRESSES` and whose local part has the form of that database's ids has a link; any other
# has none. Nothing else of an id gets into an address, and what gets there is percent-encoded.


_IDENTIFIERS = "https://identifiers.org/"
_NUMBER = "[0-9]+"
_PLAIN_ID = "[A-Za-z0-9][A-Za-z0-9_.-]*"

# By the CURIE's prefix in lower case: the form of ids, and the address of the page, {} being the id. Also sent to the
# web page, so patterns have the same meaning in Python and JavaScript.
ADDRESSES = {
    "ncbigene": (_NUMBER, "https://www.ncbi.nlm.nih.gov/gene/{}"),
    "ncbitaxon": (_NUMBER, "https://www.ncbi.nlm.nih.gov/Taxonomy/Browser/wwwtax.cgi?id={}"),
    "mesh": ("[A-Z][0-9]+", "https://meshb.nlm.nih.gov/record/ui?ui={}"),
    "omim": ("[0-9]+(?:\\.[0-9]+)?", "https://omim.org/entry/{}"),
    "chebi": (_NUMBER, "https://www.ebi.ac.uk/chebi/searchId.do?chebiId=CHEBI:{}"),
    "cellosaurus": ("CVCL_[0-9A-Z]+", "https://www.cellosaurus.org/{}"),
    "mondo": (_NUMBER, "https://monarchinitiative.org/MONDO:{}"),
    "doid": (_NUMBER, "https://disease-ontology.org/?id=DOID:{}"),
    "dbsnp": ("rs[0-9]+", "https://www.ncbi.nlm.nih.gov/snp/{}"),
    "mgi": (_NUMBER, "https://www.informatics.jax.org/accession/MGI:{}"),
    "rgd": (_NUMBER, "https://rgd.mcw.edu/rgdweb/report/gene/main.html?id={}"),
    "hgnc": (_NUMBER, "https://www.genenames.org/data/gene-symbol-report/#!/hgnc_id/HGNC:{}"),
    "pubchem.compound": (_NUMBER, "https://pubchem.ncbi.nlm.nih.gov/compound/{}"),
    "uniprot": (_PLAIN_ID, "https://www.uniprot.org/uniprotkb/{}"),
    # What identifiers.org resolves, under its own prefixes; ontologies of the OBO Foundry are in capitals there.
    **{
        name: (_PLAIN_ID, f"{_IDENTIFIERS}{name}:{{}}")
        for name in ("drugbank", "ensembl", "umls", "interpro", "orphanet")
    },
    **{name: (_PLAIN_ID, f"{_IDENTIFIERS}{name.upper()}:{{}}") for name in ("go", "hp", "cl", "uberon", "so", "efo")},
}


def concept_url(concept: str) -> str | None:
    """The address of a concept's page, or None if its database is not known or the id is not one of its own.

    >>> concept_url("NCBIGene:672")
    'https://www.ncbi.nlm.nih.gov/gene/672'
    """
    prefix, _, local = concept.partition(":")
    known = ADDRESSES.get(prefix.lower())
    if known is None or re.fullmatch(known[0], local) is None:
        return None
    return known[1].replace("{}", quote(local))
