"""The linker on a small dictionary: forms of mentions, species, documents, abstaining, explanations."""

from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from small_terms import HUMAN, MOUSE, RAT, marked, small_index

from lexome.concepts.linker import CONCEPT_SCORE, Linker
from lexome.concepts.ranking import SpeciesContext, TrainingMentions, is_misspelling
from lexome.concepts.terms import Term
from lexome.document import Document


@pytest.fixture(scope="module")
def linker(tmp_path_factory) -> Linker:
    return Linker([small_index(tmp_path_factory.mktemp("terms"))])


def _ids(linker: Linker, text: str) -> list[tuple[str, ...]]:
    return [span.concepts for span in linker.link(marked(text)).spans]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{breast cancer}", [("mesh:D001943",)]),
        ("{Breast cancers} and {cancer of the breast}", [("mesh:D001943",), ("mesh:D001943",)]),
        ("{Sjögren’s syndrome}", [("mesh:D012859",)]),
        ("{inherited breast cancer} in {breast cancer patients}", [("mesh:D001943",), ("mesh:D001943",)]),
        ("{ribavirin-induced hemolytic anemia}", [("mesh:D000743",)]),
        ("{breast and ovarian cancer}", [("mesh:D001943", "mesh:D010051")]),
        ("{breast, ovarian and prostate cancer}", [("mesh:D001943", "mesh:D010051", "mesh:D011471")]),
        ("Amyotrophic lateral sclerosis (ALS): {ALS}", [("mesh:D000690",)]),
        # The long form decides, not what the letters stand for elsewhere.
        ("anemia, later sclerosis (ALS); cytosine arabinoside (CA) {CA|Chemical}", [("mesh:D003561",)]),
        ("{Na+|Chemical} and {Ara-C|Chemical}", [("mesh:D012964",), ("mesh:D003561",)]),
        ("{Mcm3/4/6|Gene} in humans", [("NCBIGene:4172", "NCBIGene:4173", "NCBIGene:4175")]),
        ("{HeLa cells|CellLine} and {E. coli|Species}", [("cellosaurus:CVCL_0030",), ("NCBITaxon:562",)]),
        ("{a rare thing}", [()]),
        ("{ }and{ \u00a0|Gene}", [(), ()]),  # of nothing but spaces
    ],
)
def test_forms_of_mentions(linker: Linker, text: str, expected: list[tuple[str, ...]]) -> None:
    assert _ids(linker, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In patients, {p53|Gene} is mutated.", "NCBIGene:7157"),
        ("In {mice|Species}, {p53|Gene} is mutated.", "MGI:98834"),
        ("{p53|Gene} is mutated.", "NCBIGene:7157"),
        ("{3T3-L1|CellLine} cells express {p53|Gene}.", "MGI:98834"),
        ("In rats, {p53|Gene} is mutated.", "RGD:3889"),
        # Capitals are human symbols; mice beside a human cell line do not make them genes of mice.
        ("{KRAS|Gene} was silenced in {HeLa|CellLine} cells, then injected into {mice|Species}.", "NCBIGene:3845"),
        ("{BRCA1|Gene} in {HeLa|CellLine} cells. Tumors of {mice|Species} grew.", "NCBIGene:672"),
        ("{Kras|Gene} of the {mouse|Species}", "MGI:96680"),
        # A knockout is of a mouse, if nothing tells otherwise.
        ("{Kras|Gene}(-/-) embryos", "MGI:96680"),
        ("{Kras|Gene} null embryos", "MGI:96680"),
    ],
)
def test_species_of_genes(linker: Linker, text: str, expected: str) -> None:
    doc = linker.link(marked(text))
    assert [span.concepts for span in doc.spans if span.type == "Gene"] == [(expected,)]


def test_a_species_in_a_mention_or_right_before_it_decides(linker: Linker) -> None:
    genes = [("NCBIGene:7157",), ("MGI:98834",)]
    assert _ids(linker, "{human p53|Gene} and {mouse p53|Gene}") == genes
    # The last one before the mention, however near the others are.
    assert _ids(linker, "human {p53|Gene} and mouse {p53|Gene}") == genes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{E. coli|Species} {p53|Gene} was low.", [()]),
        # The same name elsewhere is the same gene, unless its sentence is about a species that the dictionary has.
        ("{E. coli|Species} {p53|Gene} was low. {p53|Gene} is small.", [(), ()]),
        ("{E. coli|Species} {p53|Gene} was low. In patients, {p53|Gene} was high.", [(), ("NCBIGene:7157",)]),
        # The species before a name decides in a document about another one.
        ("{Mice|Species}, {mice|Species}, {mice|Species}: {human|Species} {p53|Gene}.", [("NCBIGene:7157",)]),
        ("{E. coli|Species} {Mcm3/4/6|Gene}", [()]),
    ],
)
def test_a_gene_directly_after_a_species_is_of_that_species(
    linker: Linker, text: str, expected: list[tuple[str, ...]]
) -> None:
    doc = linker.link(marked(text))
    assert [span.concepts for span in doc.spans if span.type == "Gene"] == expected
    explained = linker.explain_all(doc)
    assert all(explained[span.id].candidates for span in doc.spans if span.text == "p53")


def test_explanation_has_candidates_scores_and_reasons(linker: Linker) -> None:
    doc = marked("In {mice|Species}, {p53|Gene} is mutated.")
    explanation = linker.explain(doc.spans[1], doc)
    assert explanation.concepts == ("MGI:98834",)
    assert explanation.candidates[0].concept == "MGI:98834"
    assert {one.taxon for one in explanation.candidates} >= {HUMAN, MOUSE}
    scores = [one.score for one in explanation.candidates]
    assert scores == sorted(scores, reverse=True)
    assert 0 < sum(scores) <= 1.0001
    assert any(MOUSE in reason for reason in explanation.candidates[0].reasons)


def test_scores_are_attributes_on_request_and_concepts_are_kept(linker: Linker) -> None:
    doc = marked("{breast cancer} and {a rare thing}")
    linked = linker.link(doc, scores=True)
    (attribute,) = linked.attributes
    assert (attribute.target, attribute.name) == ("T1", CONCEPT_SCORE)
    assert 0 < float(attribute.value or "") <= 1
    assert linker.link(linked, scores=True) == linked
    other = _with_concepts(doc, "mesh:D010051")
    assert linker.link(other) == other
    assert linker.link(other, relink=True).spans[0].concepts == ("mesh:D001943",)


def test_threshold_abstains(linker: Linker, tmp_path) -> None:
    strict = Linker([small_index(tmp_path)], threshold=1.0)
    assert _ids(strict, "{breast cancer}") == [()]
    assert strict.explain(*_first(marked("{breast cancer}"))).candidates[0].concept == "mesh:D001943"


def test_one_type_may_be_plain_text(linker: Linker) -> None:
    doc = marked("{breast cancer} in {mice|Species}")
    assert linker.link(doc, types="Disease") == linker.link(doc, types=["Disease"])
    assert [bool(span.concepts) for span in linker.link(doc, types="Disease").spans] == [True, False]


def _first(doc: Document):
    return doc.spans[0], doc


def test_a_users_dictionary_comes_first(tmp_path, linker: Linker) -> None:
    own = small_index(tmp_path, [Term("lab:17", "Disease", "breast cancer")], name="own")
    assert _ids(Linker([own, *linker.indexes]), "{breast cancer} {ovarian cancer}") == [("lab:17",), ("mesh:D010051",)]


def test_training_mentions(tmp_path, linker: Linker) -> None:
    annotated = linker.link(marked("{breast cancer}"))
    mentions = TrainingMentions([annotated, _renamed(annotated, "qualms of Xanthe")])
    trained = Linker(linker.indexes, mentions=mentions)
    assert _ids(trained, "{qualms of Xanthe}") == [("mesh:D001943",)]
    assert _ids(linker, "{qualms of Xanthe}") == [()]


def _renamed(doc: Document, text: str) -> Document:
    return _with_concepts(marked("{" + text + "}"), *doc.spans[0].concepts)


def _with_concepts(doc: Document, *concepts: str) -> Document:
    return replace(doc, spans=tuple(replace(span, concepts=concepts) for span in doc.spans))


def test_linking_is_deterministic_and_a_step(linker: Linker) -> None:
    docs = [marked("{breast cancer} in {mice|Species} with {p53|Gene}")] * 2
    first, second = linker(iter(docs))
    assert first == second == Linker(linker.indexes).link(docs[0])


@pytest.mark.parametrize(
    ("text", "taxa"),
    [
        ("Patients and mice.", {"NCBITaxon:9606", "NCBITaxon:10090"}),
        # A cue before a hyphen counts, one behind it or inside a word does not.
        ("mouse-derived, non-human, humane, women_s", {"NCBITaxon:10090"}),
        ("MCF-7-derived clones; 3T3-L1 and 3T3", {"NCBITaxon:9606", "NCBITaxon:10090"}),
        ("İ: rats", {"NCBITaxon:10116"}),
        # Of human tumors, whatever carries them.
        ("KRAS-mutant xenografts", {"NCBITaxon:9606"}),
        ("nothing of that kind", set()),
    ],
)
def test_words_tell_the_species(text: str, taxa: set[str]) -> None:
    assert SpeciesContext(marked(text)).taxa.keys() == taxa


SIMVASTATIN = Term("mesh:D019821", "Chemical", "Simvastatin", ("Statin",))
CLASS_OF_STATINS = Term("mesh:D019161", "Chemical", "Reductase Inhibitors", ("statins",))
GENES = [
    Term("NCBIGene:9759", "Gene", "HDAC4", ("histone deacetylase", "HDAC"), taxon=HUMAN),
    *(Term(f"NCBIGene:747{number}", "Gene", f"WNT{number}", taxon=HUMAN) for number in "123"),
    Term("RGD:621346", "Gene", "Wnt2", ("Wnt",), taxon=RAT),
    *(
        Term(f"NCBIGene:20{number}", "Gene", f"AKT{number}", ("AKT",) * (number == "1"), taxon=HUMAN)
        for number in "123"
    ),
    *(Term(f"NCBIGene:678{number}", "Gene", f"STAT{number}", taxon=HUMAN) for number in "12"),
    Term("NCBIGene:6646", "Gene", "SOAT1", ("STAT",), taxon=HUMAN),
    Term("NCBIGene:22796", "Gene", "COG2", ("LDLC",), taxon=HUMAN),
    Term("mesh:D008078", "Chemical", "Cholesterol, LDL", ("LDL-C",)),
    Term("NCBIGene:488", "Gene", "ATP2A2", ("SERCA2",), taxon=HUMAN),
    Term("NCBIGene:6774", "Gene", "STAT3", ("signal transducer 3",), taxon=HUMAN),
    Term("MGI:103038", "Gene", "Stat3", taxon=MOUSE),
    Term("NCBIGene:406907", "Gene", "MIR124-1", taxon=HUMAN),
]


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        # A class gets the id of the class, or none; never that of a member whose synonym it is in a dictionary.
        ([SIMVASTATIN], "{statins|Chemical}", ()),
        ([SIMVASTATIN, CLASS_OF_STATINS], "{statins|Chemical}", ("mesh:D019161",)),
        ([SIMVASTATIN], "{simvastatin|Chemical}", ("mesh:D019821",)),
        (GENES, "{histone deacetylases|Gene}", ()),
        (GENES, "{HDACs|Gene}", ()),
        (GENES, "{HDAC4|Gene}", ("NCBIGene:9759",)),
        (GENES, "{Wnt|Gene}", ()),
        (GENES, "{WNT2|Gene}", ("NCBIGene:7472",)),
        # Also where one gene has the family's name as a synonym, but not of a dictionary that says nothing of species.
        (GENES, "{STAT|Gene}", ()),
        ([*GENES, Term("LAB:1", "Gene", "STAT")], "{STAT|Gene}", ("LAB:1",)),
        (GENES, "{Akt|Gene}", ("NCBIGene:201",)),
        (GENES, "{LDL-C|Gene}", ()),
        (GENES, "{COG-2|Gene}", ("NCBIGene:22796",)),
        # Isoforms, knock-outs, microRNAs and abbreviations inside a name.
        (GENES, "{SERCA2b|Gene}", ("NCBIGene:488",)),
        (GENES, "{STAT3KO|Gene}", ("NCBIGene:6774",)),
        (GENES, "{STAT3+|Gene} cells", ("NCBIGene:6774",)),
        (GENES, "The {lncRNA STAT3|Gene} and the {STAT3 inflammasome|Gene}", ("NCBIGene:6774",)),
        (GENES, "{STAT3(+)|Gene} cells", ("NCBIGene:6774",)),
        (GENES, "{miR-124|Gene}", ("NCBIGene:406907",)),
        (GENES, "{signal transducer (ST) 3|Gene}", ("NCBIGene:6774",)),
        # Long names are of human genes in dictionaries; a text about mice means the gene with the same symbol.
        (GENES, "In {mice|Species}, {signal transducer 3|Gene}", ("MGI:103038",)),
    ],
)
def test_classes_families_and_symbols(
    tmp_path, linker: Linker, terms: list[Term], text: str, expected: tuple[str, ...]
) -> None:
    own = Linker([small_index(tmp_path, terms, name="own"), *linker.indexes])
    assert own.link(marked(text)).spans[-1].concepts == expected


def test_a_name_of_a_species_and_its_subspecies_means_the_species(tmp_path) -> None:
    terms = [
        Term("NCBITaxon:381124", "Species", "Indian corn", ("maize", "Zea mays subsp. mays", "corn", "corns")),
        Term("NCBITaxon:4577", "Species", "Zea mays", ("maize",)),
    ]
    linker = Linker([small_index(tmp_path, terms)])
    linked = [linker.link(marked(text)).spans[0].concepts for text in ("{maize|Species}", "{Indian corn|Species}")]
    assert linked == [("NCBITaxon:4577",), ("NCBITaxon:381124",)]


# What other things are called nearly the same.
NEARLY_THE_SAME = [
    Term("NCBIGene:5594", "Gene", "MAPK1", ("ERK",), taxon=HUMAN),
    Term("NCBIGene:9451", "Gene", "EIF2AK3", ("PERK",), taxon=HUMAN),
    Term("NCBIGene:3569", "Gene", "IL6", ("IL-6",), taxon=HUMAN),
    Term("NCBIGene:3570", "Gene", "IL6R", taxon=HUMAN),
    *(
        Term(f"NCBIGene:{id_}", "Gene", f"CDK{number}", taxon=HUMAN)
        for id_, number in ((983, 1), (1017, 2), (51755, 12))
    ),
    Term("NCBIGene:1022", "Gene", "CDK7", ("protein kinase",), taxon=HUMAN),
    Term("mesh:D006816", "Disease", "Huntington Disease", ("HD",)),
    Term("mesh:D001128", "Chemical", "Argon", ("[Ar]",)),
    Term("CHEBI:142258", "Chemical", "Ganoderic acid F"),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A phosphorylated protein, a receptor and its ligand, two genes with one number each.
        ("{pERK|Gene}", ("NCBIGene:5594",)),
        ("{p-ERK|Gene}", ("NCBIGene:5594",)),
        ("{PERK|Gene}", ("NCBIGene:9451",)),
        ("{IL-6 receptor|Gene}", ("NCBIGene:3570",)),
        ("{IL-6|Gene}", ("NCBIGene:3569",)),
        ("{CDK1/2|Gene}", ("NCBIGene:983", "NCBIGene:1017")),
        ("{CDK-12|Gene}", ("NCBIGene:51755",)),
        # An "A" is no article at the end of a name, and the letter or number of a compound is a part of its name.
        ("{protein kinase A|Gene}", ()),
        ("{Ganoderic acid A|Chemical}", ()),
        ("{AR|Chemical} and {Ar|Chemical}", ("mesh:D001128",)),
        # A short form that stands for something else.
        ("Hemodialysis (HD) for {HD|Disease}", ()),
        ("{HD|Disease}", ("mesh:D006816",)),
    ],
)
def test_other_things_with_nearly_the_same_name(tmp_path, text: str, expected: tuple[str, ...]) -> None:
    doc = Linker([small_index(tmp_path, NEARLY_THE_SAME, name="own")]).link(marked(text))
    assert tuple(chain.from_iterable(span.concepts for span in doc.spans)) == expected


# Of genes with the same synonym, the one with the most names would be taken.
NAMED_P21 = [
    Term("NCBIGene:9338", "Gene", "TCEAL1", ("p21", "pp21", "SIIR", "WEX9", "wild-type p53 dependent 21"), taxon=HUMAN),
    Term("NCBIGene:1026", "Gene", "CDKN1A", ("P21",), taxon=HUMAN),
    Term("MGI:104556", "Gene", "Cdkn1a", ("P21",), taxon=MOUSE),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{p21|Gene} is induced.", "NCBIGene:1026"),
        ("The {p21 gene|Gene} is induced.", "NCBIGene:1026"),
        ("In {mice|Species}, {p21|Gene} is induced.", "MGI:104556"),
        ("The wild-type p53 dependent 21 (p21) binds; {p21|Gene} is induced.", "NCBIGene:9338"),
    ],
)
def test_a_popular_name_means_one_gene_unless_the_document_defines_it(
    tmp_path, linker: Linker, text: str, expected: str
) -> None:
    own = Linker([small_index(tmp_path, NAMED_P21, name="own"), *linker.indexes])
    assert own.link(marked(text)).spans[-1].concepts == (expected,)


def test_training_mentions_tell_the_ncbi_ids_of_mouse_genes(linker: Linker) -> None:
    doc = linker.link(marked("In {mice|Species}, {p53|Gene} and {Kras2|Gene}"))
    annotated = {"p53": "NCBIGene:22059", "Kras2": "NCBIGene:16653"}
    spans = tuple(replace(span, concepts=(annotated.get(span.text, span.concepts[0]),)) for span in doc.spans)
    trained = Linker(linker.indexes, mentions=TrainingMentions([replace(doc, spans=spans)]))
    assert trained.genes.same == {"MGI:98834": "NCBIGene:22059", "MGI:96680": "NCBIGene:16653"}
    # Also by names that no training mention has, and not in texts about humans.
    assert _ids(trained, "In {mice|Species}, {Trp53|Gene}")[1] == ("NCBIGene:22059",)
    assert _ids(trained, "In patients, {p53|Gene}") == [("NCBIGene:7157",)]


def test_training_mentions_tell_the_gene_and_the_document_its_species(tmp_path, linker: Linker) -> None:
    genes = [Term("NCBIGene:3091", "Gene", "HIF1A", taxon=HUMAN), Term("MGI:106918", "Gene", "Hif1a", taxon=MOUSE)]
    indexes = [small_index(tmp_path, genes, name="own"), *linker.indexes]
    doc = marked("In patients, {qualmase|Gene}")
    mentions = TrainingMentions([_with_concepts(doc, "NCBIGene:3091")])
    trained = Linker(indexes, mentions=mentions)
    assert _ids(trained, "In patients, {qualmase|Gene}") == [("NCBIGene:3091",)]
    assert mentions.shares("qualmase", "Gene", str.lower) == {"ncbigene:3091": 1.0}


def test_names_of_annotated_genes_are_counted_in_one_order() -> None:
    letters = "BCDFGHJKLMNPQRSTVWXZ"
    doc = marked(" ".join(f"The {letter}olu beta kinase ({letter}BK) and {{{letter}BK|Gene}}." for letter in letters))
    spans = tuple(replace(span, concepts=(f"NCBIGene:{number}",)) for number, span in enumerate(doc.spans))
    counted = TrainingMentions([replace(doc, spans=spans)]).gene_names
    names = [list(counted[f"NCBIGene:{number}"]) for number in range(len(letters))]
    # Sums over them depend on it in the last digits, and a set has another one in each process.
    assert names == [[f"{letter}olu beta kinase", f"{letter}BK"] for letter in letters]


def test_a_name_that_the_dictionary_of_one_species_has_is_one_of_its_orthologs(tmp_path, linker: Linker) -> None:
    genes = [
        Term("NCBIGene:3566", "Gene", "IL4R", taxon=HUMAN),
        Term("MGI:1", "Gene", "Il4r", taxon=MOUSE),
        Term("RGD:2899", "Gene", "Il4r", ("Quelb9",), taxon=RAT),
    ]
    own = Linker([small_index(tmp_path, genes, name="own"), *linker.indexes])
    assert _ids(own, "In patients, {Quelb9|Gene}") == [("NCBIGene:3566",)]
    assert _ids(own, "In {mice|Species}, {Quelb9|Gene}")[1] == ("MGI:1",)
    assert _ids(own, "In {rats|Species}, {Quelb9|Gene}")[1] == ("RGD:2899",)


def test_misspellings_differ_by_few_letters() -> None:
    assert is_misspelling("ibuprophen", "Ibuprofen")
    assert is_misspelling("schizophenia", "Schizophrenia")
    assert not is_misspelling("stool", "loose stools")
    assert not is_misspelling("acne", "ache")
    assert not is_misspelling("Acetophen", "acetominophen")


def test_a_list_of_genes_is_of_one_species(tmp_path: Path) -> None:
    # Only mouse Mcm3 and Mcm4 have names here that agree exactly; the text is about humans.
    terms = [
        Term("NCBIGene:4172", "Gene", "MCM3", taxon=HUMAN),
        Term("NCBIGene:4173", "Gene", "MCM4", taxon=HUMAN),
        Term("MGI:101845", "Gene", "Mcm3", taxon=MOUSE),
        Term("MGI:103199", "Gene", "Mcm4", ("Mcmd4", "mcm4", "Cdc21"), taxon=MOUSE),
    ]
    own = Linker([small_index(tmp_path, terms)])
    assert _ids(own, "In patients, {Mcm3/4|Gene} grew.") == [("NCBIGene:4172", "NCBIGene:4173")]
    assert _ids(own, "In mice, {MCM3/4|Gene} grew.") == [("MGI:101845", "MGI:103199")]


def test_a_symbol_in_capitals_is_no_mouse_gene_unless_the_text_says_so(tmp_path: Path) -> None:
    terms = [
        Term("NCBIGene:1731", "Gene", "SEPT1", taxon=HUMAN),
        Term("MGI:1858916", "Gene", "Septin1", taxon=MOUSE),
    ]
    own = Linker([small_index(tmp_path, terms)])
    assert _ids(own, "{SEPTIN1|Gene} fell.") == [()]
    assert _ids(own, "{Septin1|Gene} fell.") == _ids(own, "In mice, {SEPTIN1|Gene} fell.") == [("MGI:1858916",)]


def test_a_synonym_in_brackets_is_of_the_gene_before_it(tmp_path: Path) -> None:
    terms = [
        Term("LAB:1", "Gene", "CDKN1B", ("p27", "KIP1"), taxon=HUMAN),
        Term("LAB:2", "Gene", "KIP1", ("CIB1", "SNK", "CIB"), taxon=HUMAN),
    ]
    own = Linker([small_index(tmp_path, terms)])
    assert _ids(own, "{p27|Gene} rose, {KIP1|Gene} fell.") == [("LAB:1",), ("LAB:2",)]
    assert _ids(own, "{p27|Gene} ({KIP1|Gene}) rose, {KIP1|Gene} fell.") == [("LAB:1",), ("LAB:1",), ("LAB:1",)]


def test_names_of_mouse_genes_find_the_human_gene_with_their_symbol(tmp_path: Path) -> None:
    terms = [
        Term("NCBIGene:3593", "Gene", "IL12B", ("NKSF2",), taxon=HUMAN),
        Term("MGI:96540", "Gene", "Il12b", ("IL-12p40",), taxon=MOUSE),
        Term("NCBIGene:1490", "Gene", "CTGF", ("connective tissue growth factor",), taxon=HUMAN),
        Term("MGI:95537", "Gene", "Ccn2", ("Ctgf",), taxon=MOUSE),
    ]
    own = Linker([small_index(tmp_path, terms)])
    assert _ids(own, "In patients, {IL-12p40|Gene} rose.") == [("NCBIGene:3593",)]
    assert _ids(own, "In mice, {connective tissue growth factor|Gene} rose.") == [("MGI:95537",)]


def test_a_salt_with_a_concept_is_not_its_acid_or_metal(tmp_path: Path) -> None:
    terms = [
        Term("mesh:D011284", "Chemical", "Pregnenolone", ("P5",)),
        Term("mesh:C018370", "Chemical", "pregnenolone sulfate"),
        Term("mesh:D012964", "Chemical", "Sodium", ("Na+",)),
        Term("CHEBI:53258", "Chemical", "sodium citrate"),
        Term("mesh:D014147", "Chemical", "Tramadol"),
        Term("CHEBI:75722", "Chemical", "tramadol hydrochloride"),
        Term("mesh:D011188", "Chemical", "Potassium"),
    ]
    own = Linker([small_index(tmp_path, terms)])
    salts = "{pregnenolone sulfate|Chemical}, {sodium citrate|Chemical}, {tramadol hydrochloride|Chemical}"
    assert _ids(own, salts) == [("mesh:C018370",), ("CHEBI:53258",), ("mesh:D014147",)]
    assert _ids(own, "{K|Chemical} and {Na+|Chemical}") == [("mesh:D011188",), ("mesh:D012964",)]


def test_a_variant_has_the_dbsnp_id_that_its_document_gives(linker: Linker) -> None:
    text = "{Ile105Val|Variant} (rs1695) and {V600E|Variant}; {I105V|Variant}"
    assert _ids(linker, text) == [("dbsnp:rs1695",), ("tmvar:p|SUB|V|600|E",), ("dbsnp:rs1695",)]


def test_one_wrong_annotation_does_not_take_the_gene_of_another(tmp_path: Path) -> None:
    names = "In mice, {Kras|Gene} and {K-ras|Gene} and {NS3|Gene} grew."
    gold = ("NCBIGene:16653", "NCBIGene:16653", "NCBIGene:5130010")
    terms = [Term("MGI:96680", "Gene", "Kras", ("K-ras", "NS3"), taxon=MOUSE)]
    doc = marked(names)
    spans = tuple(replace(span, concepts=(id_,)) for span, id_ in zip(doc.spans, gold, strict=True))
    trained = Linker([small_index(tmp_path, terms)], mentions=TrainingMentions([replace(doc, spans=spans)]))
    assert trained.genes.same == {"MGI:96680": "NCBIGene:16653"}
