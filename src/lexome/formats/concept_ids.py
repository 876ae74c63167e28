"""The concept ids of BioC and PubTator files as CURIEs, and back.

| CURIE | in files |
| --- | --- |
| mesh:D001943 | MESH:D001943, or D001943 alone |
| omim:114480 | OMIM:114480 |
| NCBIGene:672 | 672 with the type Gene or a like one; NCBIGene:672 elsewhere; 672(Tax:9606) is read too |
| NCBITaxon:9606 | 9606 with the type Species or a like one; NCBITaxon:9606 elsewhere |
| cellosaurus:CVCL_0030 | CVCL_0030; CVCL:0030 is read too |
| dbsnp:rs113488022 | rs113488022; RS#:113488022 is read too |
| tmvar:p\\|SUB\\|V\\|600\\|E | p\\|SUB\\|V\\|600\\|E; tmVar:p\\|SUB\\|V\\|600\\|E is read too |
| hgvs:p.V600E | p.V600E; HGVS:p.V600E is read too |
| clingen:CA123643 | CA#:123643, the ClinGen allele |
| homologene:532 | homologene:532, or the infon "NCBI Homologene" |
| any other, such as GO:0005515 | as it is |
| local:LAB-17 | LAB-17: an id that says nothing of where it comes from |

Several ids stand apart by ; or | or , or + and are written with ;. A list of which a part is not
understood is one local id, since the names of chemicals hold these characters too. "-1", "-" and
nothing at all mean that there is no concept.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from urllib.parse import quote, unquote

from lexome.document import Argument, Relation, Span, shorten
from lexome.errors import BadDocument
from lexome.formats.tally import Tally

_UNFIT = re.compile(r"[\s%\x00-\x1f\x7f]")
_NUMBERED = re.compile(r"(.*)%_[0-9]+", re.DOTALL)

# File systems take 255 bytes; an ending, a number and the temporary name's parts need room too.
LONGEST_STEM = 200


def escape_name(name: str) -> str:
    """The name without white space and control characters, as one field of a line."""
    return _UNFIT.sub(lambda match: quote(match[0], safe=""), name)


def unescape_name(field: str) -> str:
    """The name that `escaped` made this field of, or the field itself where it did not."""
    if "%" not in field:
        return field
    name = unquote(field)
    return name if escape_name(name) == field else field


def file_stem(id: str) -> str:
    """The id as a file name without ending: one part of a path, never hidden, never above its folder."""
    try:
        stem = quote(id, safe="")
    except UnicodeEncodeError:
        raise BadDocument("not_unicode", f"the id {id!r} has half a surrogate pair; expected whole text.") from None
    if len(stem) > LONGEST_STEM:
        raise BadDocument(
            "id_too_long",
            f"the id {shorten(id)!r} makes a file name of {len(stem)} bytes; expected at most {LONGEST_STEM}. "
            "Give the document a shorter id.",
        )
    return f"%2E{stem[1:]}" if stem.startswith(".") else stem


def id_from_stem(stem: str) -> str:
    """The id that a file name was made of, or the name itself where it was made otherwise."""
    numbered = _NUMBERED.fullmatch(stem)
    base = numbered[1] if numbered is not None else stem
    id = unquote(base)
    try:
        return id if file_stem(id) == base else stem
    except BadDocument:
        return stem


class FileStems:
    """File names for ids, apart even where ids are the same or differ in case alone."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def take(self, id: str) -> str:
        """The id's file name; a second one of the same name gets a number that `id_of` takes off again."""
        stem = file_stem(id)
        number = self._used[stem.lower()] = self._used.get(stem.lower(), 0) + 1
        return stem if stem and number == 1 else f"{stem}%_{number}"


UNKNOWN = "local"

NOTHING = frozenset(("", "-", "-1", "None", "null"))

# The prefixes that files use, without case, by ours.
_PREFIXES = {
    name: ours
    for ours, names in {
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
        UNKNOWN: (UNKNOWN,),
    }.items()
    for name in names
}

# What an id without prefix must look like to be one of a vocabulary that its place names.
_BARE = {
    "NCBIGene": re.compile(r"[0-9]+"),
    "NCBITaxon": re.compile(r"[0-9]+"),
    "omim": re.compile(r"[0-9]+(?:\.[0-9]+)?"),
    "homologene": re.compile(r"[0-9]+"),
    "CHEBI": re.compile(r"[0-9]+"),
    "cellosaurus": re.compile(r"[0-9A-Z]+"),
    "dbsnp": re.compile(r"[0-9]+"),
    "clingen": re.compile(r"[0-9]+"),
    "mesh": re.compile(r"[A-Z][0-9]+"),
    "umls": re.compile(r"C[0-9]+"),
}

# Infons that hold concept ids, their names in small letters without spaces and signs, and the vocabulary.
_INFONS = {
    "identifier": None,
    "medic": None,
    "tmvar": "tmvar",
    "hgvs": "hgvs",
    "mesh": "mesh",
    "omim": "omim",
    "ncbigene": "NCBIGene",
    "entrezgene": "NCBIGene",
    "ncbispecies": "NCBITaxon",
    "ncbitaxonomy": "NCBITaxon",
    "ncbitaxon": "NCBITaxon",
    "taxonomy": "NCBITaxon",
    "ncbihomologene": "homologene",
    "homologene": "homologene",
    "cvcl": "cellosaurus",
    "cellosaurus": "cellosaurus",
    "rs": "dbsnp",
    "rsid": "dbsnp",
    "dbsnp": "dbsnp",
    "chebi": "CHEBI",
    "umls": "umls",
}

_MESH = re.compile(r"[DC][0-9]{6,9}")
_SNP = re.compile(r"rs[0-9]+")
_CELL = re.compile(r"CVCL_[0-9A-Z]+")
_GENE_OF = re.compile(r"([0-9]+)\([Tt]ax:[0-9]+\)")
_TMVAR = re.compile(r"[cgmnpr]?\|[A-Za-z]+[0-9]*\|[^;\s]*")
_HGVS = re.compile(r"[cgmnpr]\.[^;\s]+")
_PREFIXED = re.compile(r"([A-Za-z][\w.# -]*):(.*)", re.DOTALL)
_PLAIN = re.compile(r"[^\s;|,+]+")
_LIST = re.compile(r"[|,+]")
# What tmVar says about a variant besides naming it.
_CONTEXT = re.compile(r"(VariantGroup|CorrespondingGene|CorrespondingSpecies|OriginalGene):.*")

_GENES = ("gene", "protein", "familyname", "domainmotif", "ggp")
_TAXA = ("species", "organism", "taxon", "strain", "genus")

Ids = tuple[str, ...]


def read_ids(raw: str, type: str, tally: Tally) -> Ids:
    """The CURIEs in a file's id field, for a mention of this type."""
    return _noted(parse_ids(raw, vocabulary_of(type)), tally)


def is_concept_infon(key: str) -> bool:
    """True for the infons whose value is an id."""
    return _folded(key) in _INFONS


def read_infon(key: str, raw: str, type: str, tally: Tally) -> Ids:
    """The CURIEs in an infon that holds ids, such as MESH, NCBI Gene or identifier."""
    return _noted(parse_ids(raw, _INFONS[_folded(key)] or vocabulary_of(type)), tally)


@lru_cache(maxsize=1 << 15)
def write_ids(concepts: Ids, type: str) -> str | None:
    """The id field that read_ids turns into these concepts for this type, or None where there is none."""
    vocabulary = vocabulary_of(type)
    usual = ";".join(_usual(concept, vocabulary) for concept in concepts)
    for field in (usual, ";".join(concepts)):
        if parse_ids(field, vocabulary)[0] == concepts:
            return field
    return None


@lru_cache(maxsize=1 << 10)
def vocabulary_of(type: str) -> str | None:
    """The vocabulary that bare numbers belong to on a mention of this type."""
    lower = type.lower()
    if any(word in lower for word in _GENES):
        return "NCBIGene"
    return "NCBITaxon" if any(word in lower for word in _TAXA) else None


@lru_cache(maxsize=1 << 10)
def _folded(key: str) -> str:
    return "".join(character for character in key.lower() if character.isalnum())


def _noted(parsed: tuple[Ids, Ids], tally: Tally) -> Ids:
    concepts, notes = parsed
    for note in notes:
        tally.note(note)
    return concepts


@lru_cache(maxsize=1 << 16)
def parse_ids(raw: str, vocabulary: str | None) -> tuple[Ids, Ids]:
    """The CURIEs in a field and the notes on what was left out of them."""
    text = raw.strip()
    if text in NOTHING:
        return (), ()
    notes: list[str] = []
    concepts: list[str] = []
    for piece in [text] if _one(text, vocabulary) else text.split(";"):
        found = _several(piece.strip(), vocabulary, notes)
        if found is None:
            return (f"{UNKNOWN}:{text}",), ()
        concepts += found
    return (tuple(concepts), tuple(notes)) if concepts or notes else ((f"{UNKNOWN}:{text}",), ())


def _several(piece: str, vocabulary: str | None, notes: list[str]) -> list[str] | None:
    """The CURIEs in a list without semicolons, or None where one is not understood."""
    one = _one(piece, vocabulary)
    if one is not None:
        if _GENE_OF.fullmatch(piece):
            notes.append("taxon of a gene id ignored")
        return [one]
    context = _CONTEXT.fullmatch(piece)
    if context is not None:
        notes.append(f"field {context[1]} of a variant ignored")
        return []
    prefix, _, rest = piece.partition(":")
    if _PREFIXES.get(prefix.lower()) == "dbsnp":
        vocabulary, piece = "dbsnp", rest
    concepts: list[str] = []
    for part in map(str.strip, _LIST.split(piece)):
        if part in NOTHING:
            notes.append("part without an id in a list of ids")
        elif (found := _several(part, vocabulary, notes) if part != piece else None) is not None:
            concepts += found
        else:
            return None
    return concepts


def _one(token: str, vocabulary: str | None) -> str | None:
    """The CURIE of a single id, or None where it is not understood."""
    if vocabulary is not None and vocabulary in _BARE and _BARE[vocabulary].fullmatch(token):
        return f"{vocabulary}:{_local(vocabulary, token)}"
    if _MESH.fullmatch(token):
        return f"mesh:{token}"
    if _SNP.fullmatch(token):
        return f"dbsnp:{token}"
    if _CELL.fullmatch(token):
        return f"cellosaurus:{token}"
    if _TMVAR.fullmatch(token):
        return f"tmvar:{token}"
    if _HGVS.fullmatch(token):
        return f"hgvs:{token}"
    gene = _GENE_OF.fullmatch(token)
    if gene is not None:
        return f"NCBIGene:{gene[1]}"
    return _prefixed(token)


def _prefixed(token: str) -> str | None:
    """The CURIE of an id that names its vocabulary, ours by our name and others as they are."""
    found = _PREFIXED.fullmatch(token)
    if found is None or not found[2] or _CONTEXT.fullmatch(token):
        return None
    prefix, local = _PREFIXES.get(found[1].lower()), found[2]
    if prefix in ("tmvar", "hgvs", UNKNOWN):
        return f"{prefix}:{local}" if ";" not in local else None
    if not _PLAIN.fullmatch(local):
        return None
    if prefix is None:
        return token if " " not in found[1] else None
    return f"{prefix}:{_local(prefix, local)}"


def _local(prefix: str, local: str) -> str:
    if prefix == "cellosaurus" and not local.startswith("CVCL_"):
        return f"CVCL_{local}"
    if prefix == "dbsnp" and local.isdecimal():
        return f"rs{local}"
    if prefix == "clingen" and local.isdecimal():
        return f"CA{local}"
    return local


def _usual(concept: str, vocabulary: str | None) -> str:
    """The id as PubTator writes it."""
    prefix, _, local = concept.partition(":")
    if prefix in ("mesh", "omim"):
        return f"{prefix.upper()}:{local}"
    if prefix == vocabulary or prefix in ("cellosaurus", "dbsnp", "tmvar", "hgvs", UNKNOWN):
        return local
    return concept


NOVELTY = {True: "Novel", False: "No"}
NOVELTY_VALUES = {"novel": True, "yes": True, "true": True, "no": False, "false": False}

_TYPED = re.compile(r"([A-Z][A-Za-z_]+)\|(.+)", re.DOTALL)

Types = Mapping[str, set[str]]
Side = tuple[str, Ids]


def types_by_concept(spans: Iterable[Span]) -> Types:
    """For each concept the types of the mentions that refer to it."""
    types: dict[str, set[str]] = {}
    for span in spans:
        for concept in span.concepts:
            types.setdefault(concept, set()).add(span.type)
    return types


def parse_sides(first: str, second: str, types: Types) -> tuple[Side, Side]:
    """The roles and concepts of a relation's two id fields, in a document whose concepts have these types."""
    return _with_roles(_side(first, types), _side(second, types))


def sides_from_concepts(left: Ids, right: Ids, types: Types) -> tuple[Side, Side]:
    """The same for concepts that are known already."""
    return _with_roles((_only_type(left, types), left), (_only_type(right, types), right))


def arguments_from_sides(sides: Sequence[Side]) -> tuple[Argument, ...]:
    """An argument for each concept, in its side's role."""
    return tuple(Argument(role, concept=concept) for role, concepts in sides for concept in concepts)


def relation_fields(relation: Relation, concepts: Mapping[str, Ids], types: Types) -> tuple[str, str] | None:
    """The two id fields of a relation, or None where it has no two sides that ids can name.

    An argument that is a mention counts as the concepts that the mapping has for it.
    """
    pairs = [(argument.role, _concepts_of(argument, concepts)) for argument in relation.arguments]
    # Arguments that follow one another in the same role are one side.
    sides = (
        pairs if len(pairs) == 2 else [(role, _joined(group)) for role, group in groupby(pairs, lambda pair: pair[0])]
    )
    fields = [field for _, ids in sides if (field := _field(ids, types)) is not None]
    return (fields[0], fields[1]) if len(sides) == len(fields) == 2 else None


def _concepts_of(argument: Argument, concepts: Mapping[str, Ids]) -> Ids:
    return (argument.concept,) if argument.concept is not None else concepts.get(str(argument.target), ())


def _joined(pairs: Iterable[Side]) -> Ids:
    return tuple(concept for _, concepts in pairs for concept in concepts)


def _field(concepts: Ids, types: Types) -> str | None:
    """The id field that is read as these concepts in a document with these types."""
    if not concepts:
        return None
    known = sorted(set[str]().union(*(types.get(concept, ()) for concept in concepts)))
    for field in (*(write_ids(concepts, type) for type in (*known, "")), ";".join(concepts)):
        if field and _side(field, types)[1] == concepts:
            return field
    return None


def _side(field: str, types: Types) -> tuple[str | None, Ids]:
    """The concepts of an id field, and their type where they all have the same."""
    typed = _TYPED.fullmatch(field)
    if typed is not None:
        return typed[1], parse_ids(typed[2], vocabulary_of(typed[1]))[0]
    # A bare number is of the vocabulary that the document's mentions have it in.
    readings = [parse_ids(field, vocabulary)[0] for vocabulary in (None, "NCBIGene", "NCBITaxon")]
    concepts = next((reading for reading in readings if all(concept in types for concept in reading)), readings[0])
    return _only_type(concepts, types), concepts


def _only_type(concepts: Ids, types: Types) -> str | None:
    found = set[str]().union(*(types.get(concept, ()) for concept in concepts))
    return found.pop() if len(found) == 1 else None


def _with_roles(left: tuple[str | None, Ids], right: tuple[str | None, Ids]) -> tuple[Side, Side]:
    if left[0] is not None and right[0] is not None and left[0] != right[0]:
        return (left[0], left[1]), (right[0], right[1])
    return ("Arg1", left[1]), ("Arg2", right[1])
