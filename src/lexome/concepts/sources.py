"""Readers of dictionaries in the forms in which their owners publish them; each streams Terms.

| format | file |
| --- | --- |
| mesh-xml | MeSH descriptors (desc2026.xml) and supplementary records (supp2026.xml) |
| mesh-ascii | the same in ASCII (d2026.bin, c2026.bin) |
| gene-info | NCBI's gene_info |
| taxdump | NCBI's names.dmp, or taxdump.tar.gz |
| chebi | ChEBI's compounds.tsv and names.tsv |
| cellosaurus | cellosaurus.txt |
| obo | any OBO file: MONDO, the Disease Ontology, ChEBI, Cellosaurus, the Cell Ontology |
| ctd | the Comparative Toxicogenomics Database: CTD_diseases.tsv (MEDIC), CTD_chemicals.tsv |
| biosyn | a line per concept: id, or several separated by one bar, two bars, and names separated by bars |
| tsv | any table with tabs between columns: id, name, names, type, taxon, xrefs |

Files may be compressed (.gz, .xz, .zst) or inside archives.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

from lexome.concepts.terms import Term
from lexome.errors import BadDocument, FormatError
from lexome.formats import Tally
from lexome.formats.concept_ids import parse_ids
from lexome.formats.name_table import unquote_cell
from lexome.formats.streams import Source, open_sources, truncated
from lexome.formats.xml import records

Column = int | str

# MeSH's trees by type of mention. F03 is mental disorders; C and F03 is what MEDIC has of MeSH.
TREES = {"Disease": ("C", "F03"), "Chemical": ("D",), "Species": ("B",)}
# Classes of supplementary records in XML; protocols (2) and population groups (5) are of no type.
_RECORD_CLASSES = {"1": "Chemical", "3": "Disease", "4": "Species"}
_SYNONYM = re.compile(r'"((?:[^"\\]|\\.)*)"\s*([A-Z]*)')
_ESCAPE = re.compile(r"\\(.)")
_QUOTE = re.compile(r'(?<!\\)"')
_TAXON = re.compile(r"NCBITaxon:[0-9]+")
_BINOMIAL = re.compile(r"([A-Z])[a-z]+ ([a-z-]{3,})")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to read a dictionary.

    type      the type of all terms; formats of one type have it as default, MeSH's trees decide for each term
    prefix    of ids that have none, such as mesh for D001943
    taxon     the species of all genes, as a CURIE
    taxa      gene-info, taxdump: only these, as CURIEs
    columns   tsv: where id, name, names, type, taxon and xrefs are, by number from 0 or by the name in the first row
    rows      tsv: column and the beginnings of its values in rows to read
    synonyms  obo: scopes of synonyms to read
    split     tsv: what separates several names or cross-references in one column
    """

    type: str | None = None
    prefix: str | None = None
    taxon: str | None = None
    taxa: frozenset[str] = frozenset()
    columns: Mapping[str, Column] = field(default_factory=lambda: {"id": 0, "name": 1})
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    synonyms: tuple[str, ...] = ("EXACT", "RELATED")
    split: str = "|"

    def types(self, found: Iterable[str]) -> str | None:
        """The type to read a term as, of those it may have; None to leave it out."""
        if self.type is None:
            return next(iter(found), None)
        return self.type if self.type in found else None


Reader = Callable[[Source, SourceOptions, Counter[str]], Iterator[Term]]


def read_terms(
    path: Path, format: str, options: SourceOptions, *, tally: Tally, dropped: Counter[str]
) -> Iterator[Term]:
    """The terms of a dictionary file, or of the files in an archive; `dropped` counts what is left out, by reason."""
    reader = READERS[format]
    for source in open_sources(path, tally):
        yield from reader(source, options, dropped)


def to_curie(raw: str, prefix: str | None = None) -> str:
    """An id as CURIE: MESH:D001943, or D001943 with the prefix mesh, is mesh:D001943; unchanged where it is none."""
    raw = raw.strip()
    if prefix is not None and ":" not in raw:
        return f"{prefix}:{raw}"
    concepts = parse_ids(raw, None)[0] if raw else ()
    return concepts[0] if len(concepts) == 1 and not concepts[0].startswith("local:") else raw


def taxon_curie(cell: str, dropped: Counter[str]) -> str | None:
    """The species in a cell, such as 9606, as a CURIE; None, which is counted, where it is no number."""
    taxon = to_curie(cell, "NCBITaxon")
    if _TAXON.fullmatch(taxon) is not None:
        return taxon
    dropped["taxon is not a number of NCBI Taxonomy"] += 1
    return None


def _curies(raw: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(to_curie(part) for part in raw if part.strip()))


def _text_lines(source: Source) -> Iterator[tuple[int, str]]:
    for number, line in source.lines():
        try:
            yield number, line.decode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{source.name}, line {number}: byte {error.start} is not UTF-8. Convert the file to UTF-8.",
                code="invalid-encoding",
                value=number,
            ) from None


# MeSH


def _read_mesh_xml(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    for record in records(source, ("DescriptorRecord", "SupplementalRecord")):
        try:
            element = record.parse()
        except BadDocument as error:
            dropped[f"record that cannot be read ({error.reason})"] += 1
            continue
        tag = "Descriptor" if element.tag == "DescriptorRecord" else "SupplementalRecord"
        found = (
            _types_of_trees(node.text or "" for node in element.iterfind("TreeNumberList/TreeNumber"))
            if tag == "Descriptor"
            else _types_of_class(element)
        )
        type = options.types(found)
        if type is None:
            dropped["record of another type"] += 1
            continue
        names = tuple(node.text or "" for node in element.iterfind("ConceptList/Concept/TermList/Term/String"))
        preferred = (element.findtext(f"{tag}Name/String") or "").strip()
        yield Term(f"mesh:{(element.findtext(f'{tag}UI') or '').strip()}", type, preferred, names)


def _types_of_class(element: etree._Element) -> list[str]:
    type = _RECORD_CLASSES.get(element.get("SCRClass", "1"))
    return [] if type is None else [type]


def _types_of_trees(trees: Iterable[str]) -> list[str]:
    numbers = tuple(trees)
    return [type for type, roots in TREES.items() if any(number.strip().startswith(roots) for number in numbers)]


def _read_mesh_ascii(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    record: dict[str, list[str]] = {}

    def term() -> Iterator[Term]:
        if not record:
            return
        supplementary = "NM" in record
        type = options.types(["Chemical"] if supplementary else _types_of_trees(record.get("MN", ())))
        if type is None:
            dropped["record of another type"] += 1
            return
        entries = (*record.get("PRINT ENTRY", ()), *record.get("ENTRY", ()), *record.get("SY", ()))
        names = tuple(entry.partition("|")[0] for entry in entries)
        preferred = record.get("NM" if supplementary else "MH", [""])[0]
        yield Term(f"mesh:{record.get('UI', [''])[0]}", type, preferred, names)

    started = False
    last = 0
    for number, line in _text_lines(source):
        last = number
        if line.startswith("*NEWRECORD"):
            yield from term()
            record, started = {}, True
        elif started and (match := line.partition(" = "))[1]:
            record.setdefault(match[0], []).append(match[2].strip())
    if not started:
        raise _not_this_form(source, "mesh-ascii", "*NEWRECORD")
    if "UI" not in record:
        # UI is the last field of a record, but for dates in supplementary ones.
        raise truncated(source.name, f"the last record, before line {last:,}, has no UI", value=last)
    yield from term()


# NCBI


def _read_gene_info(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    for number, line in _text_lines(source):
        if line.startswith("#") or not line:
            continue
        fields = line.split("\t")
        if len(fields) < 14:
            raise _not_this_form(source, "gene-info", "14 columns or more", line=number)
        taxon = f"NCBITaxon:{fields[0]}"
        if options.taxa and taxon not in options.taxa:
            dropped["gene of another species"] += 1
            continue
        if fields[2] == "NEWENTRY":
            dropped["placeholder NEWENTRY"] += 1
            continue
        synonyms = [part for place in (10, 11, 8, 4, 13) for part in _parts(fields[place])]
        xrefs = _curies(part.replace("HGNC:HGNC:", "HGNC:") for part in _parts(fields[5]))
        yield Term(f"NCBIGene:{fields[1]}", options.type or "Gene", fields[2], tuple(synonyms), taxon, xrefs)


def _parts(raw: str) -> list[str]:
    return [] if raw == "-" else raw.split("|")


def _read_taxdump(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    """Names by taxon: consecutive rows of names.dmp; other files of the archive are left out."""
    if not source.location.endswith("names.dmp"):
        return
    current, preferred, names = "", "", list[str]()

    def term() -> Iterator[Term]:
        if current and options.taxa and f"NCBITaxon:{current}" not in options.taxa:
            dropped["another taxon"] += 1
        elif current:
            binomial = _BINOMIAL.fullmatch(preferred)
            short = [f"{binomial[1]}. {binomial[2]}"] if binomial else []
            yield Term(f"NCBITaxon:{current}", options.type or "Species", preferred, (*names, *short))

    for number, line in _text_lines(source):
        fields = line.removesuffix("\t|").split("\t|\t")
        if len(fields) != 4:
            raise _not_this_form(source, "taxdump", "4 columns separated by a bar between tabs", line=number)
        taxon, name, _, kind = fields
        if taxon != current:
            yield from term()
            current, preferred, names = taxon, "", []
        if kind == "scientific name":
            preferred = name
        elif kind in ("authority", "type material"):
            dropped["taxonomic authority or type material"] += 1
        else:
            names.append(name)
    yield from term()


# ChEBI and Cellosaurus


def _read_chebi(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    """Rows of compounds.tsv, or names of names.tsv, which belong to compounds."""
    lines = _text_lines(source)
    header = [name.strip().lower() for name in next(lines, (0, ""))[1].split("\t")]
    key = "compound_id" if "compound_id" in header else "id"
    if key not in header or "name" not in header:
        raise _not_this_form(source, "chebi", "columns ID or COMPOUND_ID, and NAME")
    language = header.index("language") if "language" in header else None
    for _, line in lines:
        fields = line.split("\t")
        if len(fields) < len(header) - 1:
            dropped["row with too few columns"] += 1
            continue
        name = fields[header.index("name")]
        if language is not None and language < len(fields) and fields[language] not in ("en", "la", ""):
            dropped["name in another language"] += 1
        elif name in ("", "null"):
            dropped["empty name"] += 1
        else:
            curie = f"CHEBI:{fields[header.index(key)].removeprefix('CHEBI:')}"
            is_synonym = key == "compound_id"
            yield Term(curie, options.type or "Chemical", "" if is_synonym else name, (name,) if is_synonym else ())


def _read_cellosaurus(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    entry: dict[str, str] = {}
    seen = False
    for _, line in _text_lines(source):
        code, text = line[:2], line[5:].strip()
        if line.startswith("//"):
            seen = True
            if "AC" in entry and "ID" in entry:
                taxon = re.match(r"NCBI_TaxID=(\d+)", entry.get("OX", ""))
                names = tuple(name.strip() for name in entry.get("SY", "").split(";") if name.strip())
                species = f"NCBITaxon:{taxon[1]}" if taxon else None
                yield Term(f"cellosaurus:{entry['AC']}", options.type or "CellLine", entry["ID"], names, species)
            entry = {}
        elif code in ("ID", "AC", "SY"):
            entry[code] = f"{entry[code]} {text}" if code in entry else text
        elif code == "OX":
            entry.setdefault(code, text)  # hybrids have several species; the first one counts
    if "ID" in entry and "AC" in entry:
        raise truncated(source.name, f"the last entry, {entry['AC']}, does not end with //", value=entry["AC"])
    if not seen:
        raise _not_this_form(source, "cellosaurus", "entries that end with //")


# OBO


def _read_obo(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    stanza: dict[str, list[str]] = {}
    kind = ""
    number, last = 0, ""

    def term() -> Iterator[Term]:
        if kind != "[Term]":
            return
        if not stanza.get("id") or not stanza.get("name"):
            dropped["stanza without id or name"] += 1
        elif stanza.get("is_obsolete", [""])[0].startswith("true"):
            dropped["obsolete term"] += 1
        else:
            yield _obo_term(stanza, options, dropped)

    for number, line in _text_lines(source):
        line = line.strip()
        if line.startswith("["):
            yield from term()
            kind, stanza = line, {}
        elif line and not line.startswith("!"):
            tag, colon, value = line.partition(":")
            if not colon and number == 1:
                raise _not_this_form(source, "obo", "lines of tag: value")
            stanza.setdefault(tag, []).append(value.strip())
        last = line or last
    # Complete files end with a complete line of a complete stanza.
    cut = kind == "[Term]" and not (stanza.get("id") and stanza.get("name"))
    if cut or (kind and not last.startswith(("[", "!")) and ":" not in last) or len(_QUOTE.findall(last)) % 2:
        raise truncated(source.name, f"the last stanza, at line {number:,}, is incomplete", value=number)
    yield from term()


def _obo_term(stanza: Mapping[str, list[str]], options: SourceOptions, dropped: Counter[str]) -> Term:
    names = []
    for synonym in stanza.get("synonym", ()):
        match = _SYNONYM.match(synonym)
        if match is None:
            dropped["synonym without quotes around it"] += 1
        elif not match[2] or match[2] in options.synonyms:
            names.append(_ESCAPE.sub(r"\1", match[1]))
    # "xref: MSH:D001943 {source="..."}" and "xref: MSH:D001943 ! name"
    xrefs = (xref.split(" ")[0] for xref in stanza.get("xref", ()))
    alternatives = stanza.get("alt_id", ())
    curie = to_curie(stanza["id"][0].split(" ")[0], options.prefix)
    usable = tuple(xref for xref in _curies((*alternatives, *xrefs)) if re.fullmatch(r"[\w.-]+:[^\s:]+", xref))
    return Term(curie, options.type or "Term", _ESCAPE.sub(r"\1", stanza["name"][0]), tuple(names), None, usable)


# Tables


def _read_ctd(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    header: list[str] = []
    for number, line in _text_lines(source):
        if line.startswith("#"):
            fields = line.lstrip("# ").split("\t")
            header = fields if len(fields) > 2 else header
            continue
        row = dict(zip(header, line.split("\t"), strict=False))
        kind = "Disease" if "DiseaseID" in row else "Chemical"
        if f"{kind}ID" not in row or f"{kind}Name" not in row:
            raise _not_this_form(source, "ctd", "a line of fields, such as # DiseaseName DiseaseID", line=number)
        names = tuple(filter(None, row.get("Synonyms", "").split("|")))
        xrefs = _curies(row.get("AltDiseaseIDs", "").split("|"))
        curie = to_curie(row[f"{kind}ID"], None if ":" in row[f"{kind}ID"] else "mesh")
        yield Term(curie, options.type or kind, row[f"{kind}Name"], names, None, xrefs)


def _read_biosyn(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    for number, line in _text_lines(source):
        if not line.strip():
            continue
        raw, bars, names = line.partition("||")
        if not bars:
            raise _not_this_form(source, "biosyn", "id||name|name", line=number)
        ids = [
            to_curie(part, "omim" if part.isdecimal() else options.prefix or "mesh") for part in raw.split("|") if part
        ]
        if not ids:
            dropped["row without an id"] += 1
            continue
        preferred, *others = names.split("|")
        yield Term(ids[0], options.type or "Disease", preferred, tuple(others), None, tuple(ids[1:]))


def _read_tsv(source: Source, options: SourceOptions, dropped: Counter[str]) -> Iterator[Term]:
    lines = _text_lines(source)
    wanted = [*options.columns.values(), *options.rows]
    named = any(isinstance(column, str) and not column.isdecimal() for column in wanted)
    header = _header_row(lines) if named else []
    place = {key: _place(column, header, source) for key, column in options.columns.items()}
    filters = [(_place(column, header, source), starts) for column, starts in options.rows.items()]
    # The other cells may be empty, and many programs do not write the tabs before empty cells at the end of a row.
    required = (place["id"], place["name"] if "name" in place else place["names"])
    least = max((*required, *(at for at, _ in filters))) + 1
    for _, line in lines:
        if not line or line.startswith("#\t"):
            continue
        fields = _split_row(line)
        if len(fields) < least:
            dropped["row with too few columns"] += 1
            continue
        if not all(fields[at].startswith(starts) for at, starts in filters):
            dropped["row of another kind"] += 1
            continue
        cells = {key: fields[at].strip() if at < len(fields) else "" for key, at in place.items()}
        type = cells.get("type") or options.type
        if not cells["id"] or not type:
            dropped["row without an id" if type else "row without a type"] += 1
            continue
        taxon = (taxon_curie(cells["taxon"], dropped) if cells.get("taxon") else None) or options.taxon
        names = tuple(filter(None, cells.get("names", "").split(options.split)))
        xrefs = _curies(cells.get("xrefs", "").split(options.split))
        yield Term(to_curie(cells["id"], options.prefix), type, cells.get("name", ""), names, taxon, xrefs)


def _split_row(line: str) -> list[str]:
    cells = line.split("\t")
    return list(map(unquote_cell, cells)) if '"' in line else cells


def _header_row(lines: Iterator[tuple[int, str]]) -> list[str]:
    """The names of columns: the first row that is not a comment, or the comment that names them."""
    for _, line in lines:
        if not line.startswith(("# ", "##")) and "\t" in line:
            return [name.strip() for name in _split_row(line.lstrip("#"))]
    return []


def _place(column: Column, header: list[str], source: Source) -> int:
    if isinstance(column, int) or column.isdecimal():
        return int(column)
    if column not in header:
        expected = ", ".join(header) or "none"
        raise FormatError(
            f"{source.name}: no column {column!r}; its columns are: {expected}.", code="missing-column", value=column
        )
    return header.index(column)


def _not_this_form(source: Source, format: str, expected: str, *, line: int = 1) -> FormatError:
    return FormatError(
        f"{source.name}, line {line:,}: not the format {format}; expected {expected}. Check the dictionary's format.",
        code="wrong-format",
        value=source.name,
    )


READERS: Mapping[str, Reader] = {
    "mesh-xml": _read_mesh_xml,
    "mesh-ascii": _read_mesh_ascii,
    "gene-info": _read_gene_info,
    "taxdump": _read_taxdump,
    "chebi": _read_chebi,
    "cellosaurus": _read_cellosaurus,
    "obo": _read_obo,
    "ctd": _read_ctd,
    "biosyn": _read_biosyn,
    "tsv": _read_tsv,
}
"""Readers by the name of their format."""
