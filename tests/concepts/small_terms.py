"""A small dictionary of six types, written by hand, for tests of the linker."""

from pathlib import Path

from lexome.concepts.index import TermIndex
from lexome.concepts.index_writer import write_index
from lexome.concepts.terms import Term, TermTable
from lexome.document import Document, Span, lay_out

HUMAN, MOUSE, RAT = "NCBITaxon:9606", "NCBITaxon:10090", "NCBITaxon:10116"

TERMS = [
    Term("mesh:D001943", "Disease", "Breast Neoplasms", ("Breast Cancer", "Cancer of the Breast", "Mammary Carcinoma")),
    Term("mesh:D010051", "Disease", "Ovarian Neoplasms", ("Ovarian Cancer", "Cancer of Ovary")),
    Term("mesh:D011471", "Disease", "Prostatic Neoplasms", ("Prostate Cancer",)),
    Term("mesh:D000690", "Disease", "Amyotrophic Lateral Sclerosis", ("Lou Gehrig Disease", "ALS")),
    Term("mesh:D007674", "Disease", "Kidney Diseases", ("Disease, Kidney",)),
    Term("mesh:D012859", "Disease", "Sjogren's Syndrome", ("Sicca Syndrome",)),
    Term("mesh:D006461", "Disease", "Hemolysis", ()),
    Term("mesh:D000743", "Disease", "Anemia, Hemolytic", ("Hemolytic Anemia",)),
    Term("mesh:D007511", "Disease", "Ischemia", ()),
    Term("mesh:D001241", "Chemical", "Aspirin", ("Acetylsalicylic Acid",)),
    Term("mesh:D012964", "Chemical", "Sodium", ("Na+",)),
    Term("mesh:D003561", "Chemical", "Cytarabine", ("Cytosine Arabinoside", "Ara-C")),
    Term("NCBIGene:672", "Gene", "BRCA1", ("breast cancer 1", "RNF53"), taxon=HUMAN),
    Term("MGI:104537", "Gene", "Brca1", ("breast cancer 1",), taxon=MOUSE),
    Term("NCBIGene:3845", "Gene", "KRAS", ("KRAS2", "K-Ras"), taxon=HUMAN),
    Term("MGI:96680", "Gene", "Kras", ("Kras2", "K-ras"), taxon=MOUSE),
    Term("NCBIGene:4172", "Gene", "MCM3", (), taxon=HUMAN),
    Term("NCBIGene:4173", "Gene", "MCM4", (), taxon=HUMAN),
    Term("NCBIGene:4175", "Gene", "MCM6", (), taxon=HUMAN),
    Term("NCBIGene:7157", "Gene", "TP53", ("p53",), taxon=HUMAN),
    Term("MGI:98834", "Gene", "Trp53", ("p53",), taxon=MOUSE),
    Term("RGD:3889", "Gene", "Tp53", ("p53",), taxon=RAT),
    Term(HUMAN, "Species", "Homo sapiens", ("human", "man")),
    Term(MOUSE, "Species", "Mus musculus", ("mouse", "mice", "house mouse")),
    Term("NCBITaxon:562", "Species", "Escherichia coli", ("E. coli",)),
    Term("cellosaurus:CVCL_0030", "CellLine", "HeLa", (), taxon=HUMAN),
    Term("cellosaurus:CVCL_0188", "CellLine", "3T3-L1", ("3T3 L1",), taxon=MOUSE),
]


def small_index(folder: Path, terms: list[Term] = TERMS, name: str = "small") -> TermIndex:
    """The index of these terms, in a file of the folder."""
    table = TermTable()
    for term in terms:
        table.add(term)
    path = folder / f"{name}.lexterms"
    write_index(path, table, [{"name": name}], near=("Disease", "Chemical"))
    return TermIndex.open(path)


def marked(text: str, **types: str) -> Document:
    """A document of one passage; {ALS} marks a mention of type Disease, {BRCA1|Gene} one of type Gene."""
    plain = ""
    places: list[tuple[int, int, str]] = []
    for piece in text.split("{"):
        mention, brace, rest = piece.partition("}")
        if not brace:
            plain += piece
            continue
        name, _, type = mention.partition("|")
        places.append((len(plain), len(plain) + len(name), types.get(type, type) or "Disease"))
        plain += name + rest
    doc = Document("1", lay_out([("paragraph", plain)]))
    spans = (
        Span(f"T{number}", type, ((start, end),), plain[start:end])
        for number, (start, end, type) in enumerate(places, 1)
    )
    return Document(doc.id, doc.passages, tuple(spans))
