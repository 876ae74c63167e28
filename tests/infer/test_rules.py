"""Rules after the model: each on mentions given by hand, so that none depends on weights."""

import random
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexome.document import Document, Passage, Span, lay_out
from lexome.errors import CheckpointError, UsageError
from lexome.infer import boundary_rules, name_rules
from lexome.infer.annotator import default_model
from lexome.infer.predictor import read_settings, write_settings
from lexome.infer.rules import (
    AMBIGUOUS_SCORE,
    RULES,
    WORD,
    Drop,
    Mention,
    NameIndex,
    RareForm,
    find_names,
    is_cell_type,
    is_clinical,
    lexicon,
    line_name,
    resolve_overlaps,
)
from lexome.infer.selection import (
    EVERYTHING,
    Layout,
    Refinement,
    Selection,
    SelectionRequest,
    apply_rules,
    made_by_rule,
    refine_document,
    select,
)
from lexome.infer.variant_rules import CERTAIN, EXON, EXON_SCORE, SCORE, SIGN
from lexome.tasks.task import PredictedMention

TYPES = ("Gene", "Disease", "Chemical", "Species", "CellLine", "Variant")


def found(text: str, *predicted: tuple[str, str, float], rules: tuple[str, ...] = RULES, resolve: bool = True) -> set:
    """Texts and types after the rules, from texts, types and scores that a model predicted, each at its first place."""
    mentions = [
        Mention(text.index(name), text.index(name) + len(name), type_, score) for name, type_, score in predicted
    ]
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=rules, resolve=resolve)
    return {(text[mention.start : mention.end], mention.type) for mention in refined}


@pytest.mark.parametrize(
    ("text", "predicted", "expected"),
    [
        ("BRAF V600E was seen.", [("BRAF", "Gene", 0.9)], {("BRAF", "Gene"), ("V600E", "Variant")}),
        ("KRAS G12D mutation", [("KRAS G12D mutation", "Gene", 0.9)], {("KRAS", "Gene"), ("G12D", "Variant")}),
        ("a KrasG12D mouse", [], {("Kras", "Gene"), ("G12D", "Variant")}),
        ("c.76A>T and p.(Val600Glu)", [], {("c.76A>T", "Variant"), ("p.(Val600Glu)", "Variant")}),
        ("the SNP rs1799971-A", [("rs1799971-A", "Variant", 0.5)], {("rs1799971", "Variant")}),
        ("Val66Met and Pro75 Ala", [], {("Val66Met", "Variant"), ("Pro75 Ala", "Variant")}),
        ("EGFR exon 19 deletion", [("EGFR", "Gene", 0.9)], {("EGFR", "Gene"), ("exon 19 deletion", "Variant")}),
        ("(185delAG) and IVS10+1G>A", [], {("185delAG", "Variant"), ("IVS10+1G>A", "Variant")}),
        ("markers D13S263 here", [("D13S263", "Variant", 0.7)], set()),
        ("the mutation was new", [("mutation", "Variant", 0.6)], set()),
        ("prothrombin G20210A carriers", [], {("G20210A", "Variant")}),
        # A residue where a protein is phosphorylated, and an allele.
        ("phosphorylated at S473", [("S473", "Variant", 0.7)], set()),
        ("the allele Arg16", [("Arg16", "Variant", 0.7)], {("Arg16", "Variant")}),
        # Not variants: a cell line and a protein, and a word with no gene or mutation near it.
        ("T47D cells and S100B in mutants", [("T47D", "CellLine", 0.9)], {("T47D", "CellLine")}),
        ("room A12B on floor 3", [], set()),
        # Well-known substitutions need neither; strains are no variants.
        ("T315I was tested", [], {("T315I", "Variant")}),
        ("TERT promoter C228T", [], {("C228T", "Variant")}),
        ("strain 14028s grew", [("14028s", "Variant", 0.9)], set()),
        # Proteins of viruses are cues as well; a letter and a number may be the end of a name.
        ("Omicron spike N501Y", [], {("N501Y", "Variant")}),
        ("tp53M214K mutants", [("tp53M214K", "Gene", 0.5)], {("tp53", "Gene"), ("M214K", "Variant")}),
        ("TMEM16A mutants", [("TMEM16A", "Gene", 0.5)], {("TMEM16A", "Gene")}),
        # What happens to RNA, but of MET, where reports name the variant so.
        ("exon 6 skipping", [], set()),
        ("exon 14 skipping", [], {("exon 14 skipping", "Variant")}),
    ],
)
def test_variants(text: str, predicted: list[tuple[str, str, float]], expected: set[tuple[str, str]]) -> None:
    assert found(text, *predicted, rules=("variants",)) == expected


def test_a_notation_has_the_precision_of_its_kind() -> None:
    """Whoever found it: the model's score is kept where it is higher, and that of other mentions always."""
    text = "c.76A>T, a 30-bp deletion, exon 19 deletion and A to G"
    names = (("c.76A>T", 0.6), ("30-bp deletion", 0.9), ("A to G", 0.7))
    mentions = [Mention(text.index(name), text.index(name) + len(name), "Variant", score) for name, score in names]
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=("variants",))
    scores = {text[slice(*mention.place)]: (mention.score, mention.rule) for mention in refined}
    assert scores == {
        "c.76A>T": (SCORE, None),
        "30-bp deletion": (0.9, None),
        "exon 19 deletion": (EXON_SCORE, "variants"),
        "A to G": (0.7, None),
    }


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("HEK293 cells", "HEK293"),
        ("human neuroblastoma SH-SY5Y cell lines", "SH-SY5Y"),
        ("hypothalamic GT1-1 cells", "GT1-1"),
        ("HSC cell line LX-2", "LX-2"),
        ("(MCF-7)", "MCF-7"),
        ("WT HEK", "HEK"),
        ("Huh7 EMC1 KO", "Huh7"),
    ],
)
def test_a_cell_line_is_its_name(text: str, name: str) -> None:
    start, end = line_name(text, 0, len(text))
    assert text[start:end] == name
    assert not is_cell_type(name)


def test_the_rest_of_a_cut_name_is_added() -> None:
    assert found("COS-7 cells", ("COS", "CellLine", 0.6), rules=("cell-lines",)) == {("COS-7", "CellLine")}


@pytest.mark.parametrize(
    "name",
    ["NGFR-expressing", "Continuous", "BALB/c", "CD4+ T", "PBMCs", "hESC", "fibroblasts", "HUVEC", "E. coli DHM1"],
)
def test_cell_types_are_not_lines(name: str) -> None:
    assert is_cell_type(name)


def test_two_lines_in_one_mention_are_two() -> None:
    expected = {("SH-SY5Y", "CellLine"), ("HeLa", "CellLine")}
    assert found("in SH-SY5Y, HeLa cells", ("SH-SY5Y, HeLa", "CellLine", 0.6), rules=("cell-lines",)) == expected


@pytest.mark.parametrize(
    ("text", "predicted", "expected"),
    [
        ("SirT1ko mice", ("SirT1ko", "Gene"), "SirT1"),
        ("p53-/- cells", ("p53-/-", "Gene"), "p53"),
        ("deletion (nt) here", ("deletion (nt", "Variant"), "deletion (nt)"),
        ("prostaglandin (PG) E2", ("prostaglandin (", "Chemical"), "prostaglandin"),
        ("Gs, Gi", ("Gs,", "Gene"), "Gs"),
        ("in human ERBB3 mRNA", ("human ERBB3 mRNA", "Gene"), "ERBB3"),
        ("anti-CD20 antibodies", ("anti-CD20 antibodies", "Gene"), "CD20"),
        ("PTEN exon 5", ("PTEN exon 5", "Gene"), "PTEN"),
        ("FOXP3 protein", ("FOXP3 protein", "Gene"), "FOXP3"),
        ("treats HAT. Amiodarone", ("HAT. Amiodarone", "Chemical"), "Amiodarone"),
        ("budesonide-formoterol", ("budesonide-", "Chemical"), "budesonide"),
        ("Cl- and H+", ("Cl-", "Chemical"), "Cl-"),
        ("high Lp(a) levels", ("Lp", "Gene"), "Lp(a)"),
        ("KRAS MUTATIONS", ("KRAS MUTATIONS", "Gene"), "KRAS"),
        ("gene tb1", ("gene tb1", "Gene"), "tb1"),
        ("Brca1fl/fl; Brca1flox", ("Brca1fl/fl", "Gene"), "Brca1"),
        ("CD11b(+) cells", ("CD11b(+)", "Gene"), "CD11b"),
        ("CYP2C9*3 carriers", ("CYP2C9*3", "Gene"), "CYP2C9"),
        ("HLA-B*58:01", ("HLA-B*58", "Gene"), "HLA-B*58"),
        # Ions and acids are whole.
        ("Ca2+ influx", ("Ca2", "Chemical"), "Ca2+"),
        ("Ca(2+) influx", ("Ca(2", "Chemical"), "Ca(2+)"),
        ("abscisic acid rose", ("abscisic", "Chemical"), "abscisic acid"),
        # Words that are a part of the name.
        ("prion protein", ("prion protein", "Gene"), "prion protein"),
        ("a TNF-induced gene", ("TNF-induced gene", "Gene"), "TNF-induced gene"),
        ("human chorionic gonadotropin", ("human chorionic gonadotropin", "Gene"), "human chorionic gonadotropin"),
        ("Thiomonas intermedia DSM 18155", ("Thiomonas intermedia DSM 18155", "Species"), "Thiomonas intermedia"),
        ("Escherichia coli O157:H7", ("Escherichia coli O157:H7", "Species"), "Escherichia coli O157:H7"),
        ("\ufeffBRCA1\u200b in mice", ("\ufeffBRCA1\u200b", "Gene"), "BRCA1"),
    ],
)
def test_boundaries(text: str, predicted: tuple[str, str], expected: str) -> None:
    assert found(text, (*predicted, 0.9), rules=("boundaries",)) == {(expected, predicted[1])}


def test_alleles_glued_to_genes_before_mice() -> None:
    """Where the model has nothing, or is not sure; a knockout of everything is none."""
    text = "XpdTTD mice, SirT1ko mice, Il10KO mice and WTKO mice"
    predicted = (("SirT1ko", "Gene", 0.3), ("Il10KO", "Gene", 0.9))
    expected = {("Xpd", "Gene"), ("SirT1", "Gene"), ("Il10", "Gene")}
    assert found(text, *predicted, rules=("boundaries",)) == expected


def test_a_species_before_a_gene_is_none_of_it() -> None:
    text = "Danio rerio sox10"
    predicted = (("Danio rerio sox10", "Gene", 0.9), ("Danio rerio", "Species", 0.9))
    assert found(text, *predicted, rules=("boundaries",)) == {("sox10", "Gene"), ("Danio rerio", "Species")}


@pytest.mark.parametrize(
    ("mention", "type_", "parts"),
    [
        ("MLH1, MSH2 and EPCAM", "Gene", ["MLH1", "MSH2", "EPCAM"]),
        ("nausea and vomiting", "Disease", ["nausea", "vomiting"]),
        # What the last word completes is one mention, and so are numbers without a name.
        ("caspase-3 and -9", "Gene", ["caspase-3 and -9"]),
        ("breast, lung and colon cancer", "Disease", ["breast, lung and colon cancer"]),
        ("2, 8-dihydroxyadenine", "Chemical", ["2, 8-dihydroxyadenine"]),
    ],
)
def test_lists_of_names_are_split(mention: str, type_: str, parts: list[str]) -> None:
    assert found(mention, (mention, type_, 0.9), rules=("boundaries",)) == {(part, type_) for part in parts}


def test_mentions_without_letters_are_none() -> None:
    assert found("at -174 and 293", ("-174", "Variant", 0.9), ("293", "CellLine", 0.9), rules=("boundaries",)) == {
        ("293", "CellLine")
    }


@pytest.mark.parametrize(
    ("text", "predicted", "expected"),
    [
        # Stems of drugs, with what antibodies carry.
        ("Selpercatinib helped.", [], {("Selpercatinib", "Chemical")}),
        ("imiglucerase", [("imiglucerase", "Gene", 0.9)], {("imiglucerase", "Chemical")}),
        ("on trastuzumab deruxtecan", [("trastuzumab", "Chemical", 0.9)], {("trastuzumab deruxtecan", "Chemical")}),
        ("the concept, in April, of a carbapenem", [], set()),
        # Microbes by genus and species, with serotypes; words after a genus that are no epithets.
        (
            "Neisseria meningitidis",
            [("Neisseria meningitidis", "Disease", 0.6)],
            {("Neisseria meningitidis", "Species")},
        ),
        ("Listeria meningitis", [], {("Listeria", "Species")}),
        ("E. coli O157:H7 grew", [("E. coli O157", "Species", 0.7)], {("E. coli O157:H7", "Species")}),
        ("Proteus was a god", [], set()),
        (
            "Yersinia pestis; Y. pestis",
            [("Yersinia pestis", "Species", 0.9)],
            {("Yersinia pestis", "Species"), ("Y. pestis", "Species")},
        ),
        # Lead as a metal, and as a verb.
        ("Lead exposure is common.", [], {("Lead", "Chemical")}),
        ("Lead authors met.", [], set()),
        # No names.
        ("Humanized mice", [("Humanized", "Species", 0.9)], set()),
        ("CAR T cells", [("CAR", "Chemical", 0.8)], set()),
        ("the domain AmiC2-cat", [("cat", "Gene", 0.8)], set()),
        ("myc, myc-", [("myc", "Gene", 0.8)], {("myc", "Gene")}),
        ("eGFR of EGFR", [("eGFR", "Gene", 0.8), ("EGFR", "Gene", 0.9)], {("EGFR", "Gene")}),
        ("anti-HBc", [("anti-", "Gene", 0.6)], set()),
        ("Gene, TP53", [("Gene", "Gene", 0.6), ("TP53", "Gene", 0.9)], {("TP53", "Gene")}),
        ("sweat chloride", [("sweat", "Chemical", 0.5), ("chloride", "Chemical", 0.9)], {("chloride", "Chemical")}),
        ("median OS was 9 months", [("OS", "Disease", 0.7)], set()),
        ("osteosarcoma: median OS", [("OS", "Disease", 0.7)], {("OS", "Disease")}),
        ("vitamin D", [("vitamin D", "Species", 0.6)], set()),
    ],
)
def test_names_by_their_form(
    text: str, predicted: list[tuple[str, str, float]], expected: set[tuple[str, str]]
) -> None:
    assert found(text, *predicted, rules=("name-forms",)) == expected


def test_families_are_one_gene() -> None:
    text = "Mcm4/6/7 and ERK1/2 in Th1/2 cells, Fig1/2"
    predicted = (("Mcm4", "Gene", 0.8),)
    assert found(text, *predicted, rules=("coordination",)) == {("Mcm4/6/7", "Gene"), ("ERK1/2", "Gene")}


def test_ambiguous_abbreviations_need_a_clinical_text() -> None:
    note, article = "58 y/o with h/o CAD on Lipitor", "CAD software and Lipitor"
    assert is_clinical(note)
    assert found(note, rules=("lexicon",)) == {("CAD", "Disease"), ("Lipitor", "Chemical")}
    assert found(article, rules=("lexicon",)) == {("Lipitor", "Chemical")}
    defined = "58 y/o with h/o cold-pressor (CAD) pain"
    assert found(defined, rules=("lexicon",)) == set()


@pytest.mark.parametrize(
    ("text", "clinical"),
    [
        ("Pt with CAD.", True),
        ("HTN, T2DM, CAD on Lipitor.", True),
        ("A 60-year-old man with a history of AF presented with pain.", True),
        ("We enrolled 50 patients; MRI showed AS and MS signals.", False),
        ("Patients were presented with CAD software.", False),
        ("We studied patients admitted with a history of MI.", False),
        ("Pt nanoparticles with PD electrodes.", False),
    ],
)
def test_what_reads_like_a_clinical_note(text: str, clinical: bool) -> None:
    _, entries = lexicon()
    names = sum(name in entries and not entries[name].clinical for name in re.findall(r"\w+", text))
    assert is_clinical(text, names) is clinical


def test_ambiguous_abbreviations_in_their_other_meanings() -> None:
    note = "Pt with RA and PE, sat 98% on RA. PE: clear. ASA III, on ASA 81. GC-MS was sent."
    mentions, _ = apply_rules(note, [], types=TYPES, rules=("lexicon",))
    names = [note[mention.start : mention.end + 4] for mention in mentions]
    assert names == ["RA and", "PE, sa", "ASA 81."]
    assert {mention.score for mention in mentions} == {AMBIGUOUS_SCORE}
    assert found("PMH: AN MI AS A RESULT OF ALL THIS", rules=("lexicon",)) == {("MI", "Disease")}


def test_the_lexicon_corrects_parts_and_types_but_leaves_longer_mentions() -> None:
    text = "SARS-CoV-2 nsp12, HIV-1 Tat and COVID-19 pneumonia"
    predicted = [
        ("SARS-CoV-2 nsp12", "Gene", 0.9),
        ("HIV", "Disease", 0.6),
        ("COVID-19 pneumonia", "Disease", 0.9),
    ]
    assert found(text, *predicted, rules=("lexicon",)) == {
        ("SARS-CoV-2", "Species"),
        ("nsp12", "Gene"),
        ("HIV-1", "Species"),
        ("Tat", "Gene"),
        ("COVID-19 pneumonia", "Disease"),
    }
    assert found("COVID-19", ("COVID-19", "Species", 0.9), rules=("lexicon",)) == {("COVID-19", "Disease")}
    within = "Human papillomavirus type 16 E7 and dengue virus serotype 2 NS1"
    predicted = [("Human", "Species", 0.9), ("papillomavirus type 16 E7", "Gene", 0.9)]
    assert found(within, *predicted, rules=("lexicon",)) == {
        ("Human papillomavirus type 16", "Species"),
        ("E7", "Gene"),
        ("dengue virus", "Species"),
        ("NS1", "Gene"),
    }


def test_lexicon_entries_are_valid() -> None:
    _, entries = lexicon()
    assert {entry.type for entry in entries.values()} <= set(TYPES)
    assert len(entries) > 500


def test_one_type_per_place() -> None:
    text = "Candida auris in HIV infection"
    predicted = [
        ("Candida auris", "Species", 0.9),
        ("Candida auris", "Disease", 0.5),
        ("Candida", "CellLine", 0.4),
        ("HIV infection", "Disease", 0.9),
        ("HIV", "Species", 0.8),
        ("auris in", "Gene", 0.3),
    ]
    # A virus inside a disease is right in both.
    expected = {("Candida auris", "Species"), ("HIV infection", "Disease"), ("HIV", "Species")}
    assert found(text, *predicted, rules=()) == expected
    assert len(found(text, *predicted, rules=(), resolve=False)) == len(predicted)


def test_a_disease_in_a_gene_has_to_be_likely() -> None:
    text = "Tumor necrosis factor, von Hippel-Lindau protein"
    predicted = [
        ("Tumor necrosis factor", "Gene", 0.9),
        ("Tumor", "Disease", 0.5),
        ("von Hippel-Lindau protein", "Gene", 0.7),
        ("von Hippel-Lindau", "Disease", 0.65),
    ]
    assert found(text, *predicted, rules=()) == {(name, type_) for name, type_, _ in predicted} - {("Tumor", "Disease")}


def test_drops_say_why() -> None:
    drops: list[Drop] = []
    kept = resolve_overlaps([Mention(0, 5, "Gene", 0.9), Mention(0, 5, "Chemical", 0.8)], drops)
    assert [mention.type for mention in kept] == ["Gene"]
    assert [drop.mention.type for drop in drops] == ["Chemical"]


def test_abbreviations_agree_with_their_long_forms() -> None:
    text = "Zika virus (ZV) and cholera (CH). ZV spreads, CH too. CH is mutated."
    doc = Document("d", (Passage(0, text),))
    predicted = [
        PredictedMention(0, 10, "Species", 0.9),
        PredictedMention(12, 14, "Gene", 0.5),
        PredictedMention(20, 27, "Disease", 0.9),
        PredictedMention(29, 31, "Gene", 0.95),
        PredictedMention(54, 56, "Gene", 0.95),
    ]
    refinement = Refinement(TYPES, ("abbreviations",), True)
    result = refine_document(doc, predicted, Selection(TYPES, {}), refinement).doc
    assert [(span.text, span.type) for span in result.spans] == [
        ("Zika virus", "Species"),
        ("ZV", "Species"),
        ("cholera", "Disease"),
        # The definition says so, whatever the model is sure of.
        ("CH", "Disease"),
        ("ZV", "Species"),
        ("CH", "Disease"),
        # A gene may have the name of the disease that it is defined as.
        ("CH", "Gene"),
    ]


def test_names_found_before_are_found_again() -> None:
    text = "Metformin. Metformin. Metformin. Metformins"
    mentions = [Mention(0, 9, "Chemical", 0.9), Mention(11, 20, "Chemical", 0.9)]
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=("repeated-names",))
    assert [(mention.start, mention.rule) for mention in refined] == [(0, None), (11, None), (22, "repeated-names")]


def test_a_name_found_elsewhere_is_believed_here() -> None:
    """One sure mention of a long name is enough, whatever its first letter; not within a word with hyphens."""
    text = "Mucositis was graded. Severe mucositis is painful. Then mucositis, not mucositis-like, healed."
    starts = [place for place in range(len(text)) if text.lower().startswith("mucositis", place)]
    scores = (0.95, 0.95, 0.95, 0.3)
    mentions = [Mention(start, start + 9, "Disease", score) for start, score in zip(starts, scores, strict=True)]
    refined, _ = apply_rules(text, mentions[:1], types=TYPES, rules=("repeated-names",))
    assert [mention.start for mention in refined] == starts
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=("repeated-names",))
    assert refined[3].score == 0.3


def test_copies_of_a_sentence_have_the_same_mentions() -> None:
    sentence = "Aspirin lowers the risk."
    text = f"{sentence} Others do not. {sentence} {sentence}"
    starts = [place for place in range(len(text)) if text.startswith(sentence, place)]
    mentions = [Mention(start, start + 7, "Chemical", 0.8) for start in starts[:2]] + [Mention(0, 24, "Gene", 0.4)]
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=("repeated-sentences",), resolve=False)
    assert {(mention.start, mention.type) for mention in refined} == {(start, "Chemical") for start in starts}


def test_copies_of_a_sentence_have_the_same_scores_and_one_type_per_place() -> None:
    """Minimum scores apply after the rules: scores that differ would keep some of the copies. An initial ends none."""
    sentence = "Klotho of C. auris falls."
    text = " ".join([sentence] * 4)
    starts = [place for place in range(len(text)) if text.startswith(sentence, place)]
    predicted = zip(starts, ("Gene", "Gene", "Disease", "Disease"), (0.5, 0.3, 0.25, 0.25), strict=True)
    mentions = [Mention(start, start + 6, type_, score) for start, type_, score in predicted]
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=("repeated-sentences",))
    assert [(mention.start, mention.type, mention.score) for mention in refined] == [(s, "Gene", 0.4) for s in starts]


@given(
    st.lists(st.text("ab1-_é ", min_size=1, max_size=4), max_size=5),
    st.text("ab1-_é ", max_size=30),
)
def test_a_name_index_finds_what_a_search_at_every_word_finds(names: list[str], text: str) -> None:
    """Names begin with a word, end where no word goes on, and the longest one at each place counts."""
    usable = {name for name in names if WORD.match(name) and not name[-1].isspace()}
    expected: list[tuple[int, int]] = []
    for word in WORD.finditer(text):
        ends = [
            word.start() + len(name)
            for name in usable
            if WORD.match(name)[0] == word[0] and text.startswith(name, word.start())  # type: ignore[index]
        ]
        whole = [end for end in ends if not (text[end - 1].isalnum() and text[end : end + 1].isalnum())]
        if whole and (not expected or word.start() >= expected[-1][1]):
            expected.append((word.start(), max(whole)))
    assert list(NameIndex(names).find(text)) == expected
    assert list(find_names(text, names)) == expected


NOTATIONS = """
rs1799971|rs 123|Rs123|c.76A>T|c.(76_77delAT|g.123_124insACGT|n.-14C>T|c.*37dup|c.88+2T&gt;G|m.3243A→G|r.76del|p.V600E
p.(Val600Glu)|p.R97*|p.Arg97fs*12|p.Lys5_Glu7del|p.Gly12=|Val600Glu|Pro75 Ala|Gly(388)Arg|Ser-326-Cys|Arg16-->Gly|Gln5X
Trp26stop|1138G>A|-308 G > A|+5G→C|657del5|185delAG|12_13insA|5382dupC|IVS10+1G>A|IVS 4 -2, a->g|IVS3+5delG|-31T/C
1858 C/T|C-344T|A-12 G|30-bp deletion|3.5-kb gene deletion|12,5. Mb duplication|3 nucleotide in-frame insertion
9base pair deletion|CCR5-Delta32|Δ32|∆ 32|delta-32|F508del|Delta F508|ΔF508|DelF508|exon 19 deletion
Exons 5-7 duplications|exon 14 skipping|Exon14 skipping|Ex19del|ex3del|del 19|Del19|deletion 19|deletion19
"""


@pytest.mark.parametrize("notation", re.split(r"[|\n]", NOTATIONS.strip()))
def test_every_notation_has_the_sign_of_one(notation: str) -> None:
    assert CERTAIN.search(notation) or EXON.search(notation)
    assert SIGN.search(notation)


RARE = [form for module in (boundary_rules, name_rules) for form in vars(module).values() if isinstance(form, RareForm)]


@pytest.mark.parametrize("form", RARE)
@given(data=st.data())
def test_rare_forms_are_found_wherever_they_are(form: RareForm, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(form.pattern))
    assert [match.span() for match in form.finditer(text)] == [match.span() for match in form.pattern.finditer(text)]


def test_names_at_one_place_are_in_the_same_order_in_every_process() -> None:
    drugs = [f"{letter}MATINIB" for letter in "BCDFGHIK"]
    text = ", ".join(f"{drug} p.Asn215Ser" for drug in drugs)
    names = name_rules.apply_name_forms(text, [], [], types=TYPES)
    assert [mention.type for mention in names] == ["Chemical", "Gene"] * len(drugs)


def test_a_name_index_finds_the_longest_whole_words() -> None:
    index = NameIndex({"type 2 diabetes", "diabetes", "HIV-1", "x" * 200})
    text = "type 2 diabetes, HIV-12, HIV-1; diabetes_x"
    assert [text[start:end] for start, end in index.find(text)] == ["type 2 diabetes", "HIV-1", "diabetes"]


def test_rules_keep_to_the_text_of_passages() -> None:
    """Passages far apart, mentions of other types, attributes: all stay what and where they are."""
    passages = (Passage(0, "BRAF V600E", "title"), Passage(5000, "KRAS G12D mutation in mice", "abstract"))
    own = Span("X1", "Anatomy", ((5022, 5026),), "mice")
    doc = Document("d", passages, (own,))
    predicted = [PredictedMention(5000, 5018, "Gene", 0.9)]
    refinement = Refinement(TYPES, RULES, True)
    result = refine_document(doc, predicted, Selection(TYPES, {"Gene": 0.4}), refinement).doc
    assert [(span.text, span.type, span.start) for span in result.spans] == [
        ("mice", "Anatomy", 5022),
        ("BRAF", "Gene", 0),
        ("V600E", "Variant", 5),
        ("KRAS", "Gene", 5000),
        ("G12D", "Variant", 5005),
    ]
    assert {span.text: rule for span, rule in made_by_rule(result)} == {
        "V600E": "variants",
        "G12D": "variants",
        "BRAF": "lexicon",
    }


def test_layout_maps_both_ways() -> None:
    layout = Layout(Document("d", (Passage(7, "abc"), Passage(100, "def"))))
    assert layout.to_text(101, 103) == (5, 7)
    assert layout.to_document(5, 7) == (101, 103)
    same = Layout(Document("d", lay_out((("title", "abc"), ("abstract", "def")))))
    assert same.to_document(4, 7) == (4, 7) == same.to_text(4, 7)


def test_a_selection_has_the_models_floors_and_rules() -> None:
    floors = {"Gene": 0.4, "Disease": 0.4}
    assert select(EVERYTHING, default=TYPES, floors=floors).min_scores == floors
    assert select(SelectionRequest(min_score={"Gene": 0.9}), default=TYPES, floors=floors).min_scores == {
        "Gene": 0.9,
        "Disease": 0.4,
    }
    assert set(select(SelectionRequest(min_score=0.0), default=TYPES, floors=floors).min_scores.values()) == {0.0}
    assert not select(SelectionRequest(without_rules=("lexicon, variants",)), default=TYPES).enables("variants")
    with pytest.raises(UsageError) as error:
        select(SelectionRequest(without_rules=("brands",)), default=TYPES)
    assert error.value.code == "unknown-rule"
    with pytest.raises(UsageError) as error:
        select(SelectionRequest(overlaps="some"), default=TYPES)  # type: ignore[arg-type]
    assert error.value.code == "invalid-overlaps"


def test_models_without_rules_are_left_alone() -> None:
    assert Refinement.of(TYPES, None, Selection(TYPES, {})) is None
    assert Refinement.of(TYPES, RULES, Selection(("NCBI_Disease",), {})) is None
    assert Refinement.of(TYPES, RULES, Selection(TYPES, {}, "keep", frozenset(("all",)))) is None
    assert Refinement.of(TYPES, None, Selection(TYPES, {}, "resolve")) == Refinement(TYPES, (), True)


def test_model_json_names_only_known_rules(tmp_path: Path) -> None:
    settings = read_settings(default_model())
    assert settings.rules == RULES
    write_settings(tmp_path, replace(settings, rules=None, min_scores=None))
    assert '"rules"' not in (tmp_path / "model.json").read_text()
    assert read_settings(tmp_path).min_scores is None
    write_settings(tmp_path, replace(settings, rules=("magic",)))
    with pytest.raises(CheckpointError) as error:
        read_settings(tmp_path)
    assert error.value.code == "unknown-rule"


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs: what a rule costs, without a clock."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_hostile_texts_take_linear_work() -> None:
    """Four times the text runs about four times the lines; a quadratic rule would run sixteen times as many."""
    pieces = ["KRAS G12D (CAD) cells 1-bp", "V600E/", "Mcm4/6/7 ", "a a a", "((((", "HeLa cells, ", "rs123 ", "- - -"]

    def work(count: int) -> int:
        chosen = random.Random(0)
        text = " ".join(chosen.choice(pieces) for _ in range(count))
        starts = range(0, len(text) - 40, 40)
        # Of every type, long and short ones, nested and crossing, and one over all of them.
        mentions = [
            Mention(start + shift, start + shift + 36 - 3 * shift, type_, 0.5 + shift / 20)
            for start in starts
            for shift, type_ in enumerate(TYPES)
        ]
        mentions.append(Mention(0, len(text), "Disease", 0.4))
        return lines_run(lambda: apply_rules(text, mentions, types=TYPES, rules=RULES))

    assert work(800) < 6 * work(200)


@pytest.mark.parametrize(
    ("text", "predicted", "expected"),
    [
        # Charges, but not a hyphen.
        ("Na+ and Cl- currents", ["Na", "Cl"], {"Na+", "Cl-"}),
        ("Cl-free solutions", ["Cl"], {"Cl"}),
        ("Ca2+ waves", ["Ca2"], {"Ca2+"}),
        # The second word, salts and subscripts.
        ("nitric oxide and heparan sulfates", ["nitric", "heparan"], {"nitric oxide", "heparan sulfates"}),
        ("phenolic acids", ["phenolic"], {"phenolic acids"}),
        ("labetalol HCl tablets", ["labetalol"], {"labetalol HCl"}),
        ("the cofactor BH(4), and Ca(2 +)", ["BH"], {"BH(4)"}),
        ("As(2)O(3) and H(2)S", ["As", "H"], {"As(2)O(3)", "H(2)S"}),
        ("given erythromycin(1) twice", ["erythromycin"], {"erythromycin"}),
        ("Copper(II) and As(V)", ["Copper", "As"], {"Copper(II)", "As(V)"}),
        ("angiotensin II infusion", ["angiotensin"], {"angiotensin II"}),
        ("reactive oxygen species", ["oxygen species"], {"reactive oxygen species"}),
        # What a bracket cut off, and the parts of one name.
        ("took (Z)-endoxifen daily", ["Z)-endoxifen"], {"(Z)-endoxifen"}),
        ("on (18)F-AV-45 scans", ["F-AV-45"], {"(18)F-AV-45"}),
        ("of R-modafinil", ["R-", "modafinil"], {"R-modafinil"}),
        ("[14C]pyruvate uptake", ["[14C]", "pyruvate"], {"[14C]pyruvate"}),
        ("cyclic-di-GMP", ["cyclic", "di-GMP"], {"cyclic-di-GMP"}),
        ("levodopa-carbidopa", ["levodopa", "carbidopa"], {"levodopa", "carbidopa"}),
        ("poly(ethylene glycol) gels", ["ethylene glycol"], {"poly(ethylene glycol)"}),
        ("poly(ethylene glycol) gels", ["poly", "ethylene glycol"], {"poly(ethylene glycol)"}),
    ],
)
def test_chemicals_have_their_charges_and_all_their_words(text: str, predicted: list[str], expected: set[str]) -> None:
    mentions = [(name, "Chemical", 0.8) for name in predicted]
    assert found(text, *mentions, rules=("boundaries",)) == {(name, "Chemical") for name in expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("At5g10140, YDR434W and Rv3133c were induced", {"At5g10140", "YDR434W", "Rv3133c"}),
        ("loss of C9orf72 or KIAA0319", {"C9orf72", "KIAA0319"}),
        ("the ΔphoP and DeltavicK mutants", {"ΔphoP", "DeltavicK"}),
        ("currents through Nav1.7, Ca(V)2.1 and Kir6.2", {"Nav1.7", "Ca(V)2.1", "Kir6.2"}),
        ("K(ATP) and 5-HT(2A) channels", {"K(ATP)", "5-HT(2A)"}),
        # No genes: a deletion of amino acids, a journal's number, and a part of a word.
        ("ΔF508, PA1234-5 and aYDR434Wb", set()),
    ],
)
def test_systematic_names_of_genes(text: str, expected: set[str]) -> None:
    assert found(text, rules=("name-forms",)) == {(name, "Gene") for name in expected}


def test_a_systematic_name_is_not_a_variant() -> None:
    assert found("rv3614c is needed", ("rv3614c", "Variant", 0.8)) == {("rv3614c", "Gene")}


@pytest.mark.parametrize(
    ("text", "name", "type_"),
    [
        ("H37Rv grew", "H37Rv", "Gene"),
        ("encoded by SPI-2 in vivo", "SPI-2", "Gene"),
        ("C57BL/6J were used", "C57BL/6J", "CellLine"),
        ("n samples", "n", "Chemical"),
        ("with a K(D) of 2 nM", "K", "Chemical"),
        ("raised HDL-C", "HDL-C", "Gene"),
        ("H3K4me3 peaks", "H3K4me3", "Chemical"),
        ("the motif Gly-X-Ser-X-Gly", "Gly-X-Ser-X-Gly", "Variant"),
        ("phosphorylated on threonine 58", "threonine 58", "Variant"),
        ("10% FBS", "FBS", "Gene"),
        ("with ST depression", "ST depression", "Disease"),
    ],
)
def test_what_is_no_name_of_its_type_is_dropped(text: str, name: str, type_: str) -> None:
    assert found(text, (name, type_, 0.9)) == set()


@pytest.mark.parametrize(
    ("mention", "type_", "name"),
    [
        ("wild-type p53", "Gene", "p53"),
        ("phosphorylated human AKT1", "Gene", "AKT1"),
        ("Kv7.1 channels", "Gene", "Kv7.1"),
        ("P. aeruginosa strains", "Species", "P. aeruginosa"),
        ("Potato virus Y", "Species", "Potato virus Y"),
        ("anti-human CD3", "Gene", "CD3"),
        ("RET proto-oncogene", "Gene", "RET"),
        ("APOE ε3/ε4", "Gene", "APOE"),
        ("Apolipoprotein E ε4", "Gene", "Apolipoprotein E"),
    ],
)
def test_states_of_genes_and_strains_are_cut(mention: str, type_: str, name: str) -> None:
    assert found(mention, (mention, type_, 0.9), rules=("boundaries",)) == {(name, type_)}


def test_a_gene_therapy_is_one_chemical() -> None:
    names = ("Onasemnogene abeparvovec", "idecabtagene vicleucel", "sipuleucel-T")
    text, expected = ", ".join(names), {(name, "Chemical") for name in names}
    assert found(text, ("Onasemnogene", "Chemical", 0.6)) == expected


def test_a_text_defines_an_abbreviation_otherwise_than_the_lexicon() -> None:
    """RSV is a virus, unless the text says that it is resveratrol."""
    text = "Resveratrol (RSV) is stable; RSV was given."
    long = Mention(0, 11, "Chemical", 0.9)
    refined, _ = apply_rules(text, [long], types=TYPES, rules=RULES, definitions=[((0, 11), (13, 16))])
    assert [(text[slice(*one.place)], one.type) for one in refined] == [
        ("Resveratrol", "Chemical"),
        ("RSV", "Chemical"),
        ("RSV", "Chemical"),
    ]


def test_a_chemical_that_was_found_often_is_repeated_whatever_its_scores() -> None:
    text = "progestins, then progestins, then progestins, then progestins"
    places = [match.start() for match in re.finditer("progestins", text)]
    mentions = [Mention(start, start + 10, "Chemical", 0.35) for start in places[:3]]
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=("repeated-names",))
    assert [mention.start for mention in refined] == places
    assert len(apply_rules(text, mentions[:2], types=TYPES, rules=("repeated-names",))[0]) == 2


@pytest.mark.parametrize("hyphen", ["-", "\u2010", "\u2011", "\u2013"])
def test_hyphens_of_publishers_are_hyphens(hyphen: str) -> None:
    assert found(f"COVID{hyphen}19 and {hyphen}308G>A") == {
        (f"COVID{hyphen}19", "Disease"),
        (f"{hyphen}308G>A", "Variant"),
    }


def test_a_virus_is_a_species_and_an_infection_with_it_a_disease() -> None:
    rules = ("boundaries",)
    virus, infection = "lumpy skin disease virus", "infection with hepatitis C virus"
    assert found(virus, (virus, "Disease", 0.6), rules=rules) == {(virus, "Species")}
    assert found(infection, (infection, "Disease", 0.6), rules=rules) == {(infection, "Disease")}


def test_a_genus_is_completed_by_its_epithet() -> None:
    rules = ("boundaries",)
    assert found("Xenopus laevis eggs", ("Xenopus", "Species", 0.7), rules=rules) == {("Xenopus laevis", "Species")}
    assert found("Drosophila larvae", ("Drosophila", "Species", 0.7), rules=rules) == {("Drosophila", "Species")}
    assert found("Mouse epididymis", ("Mouse", "Species", 0.7), rules=rules) == {("Mouse", "Species")}


def test_a_word_alone_is_no_gene_without_its_species() -> None:
    text = "Bacteroides fragilis toxin"
    predicted = [("Bacteroides fragilis", "Species", 0.8), (text, "Gene", 0.8)]
    assert found(text, *predicted, rules=("boundaries",), resolve=False) == {
        ("Bacteroides fragilis", "Species"),
        (text, "Gene"),
    }


def test_a_gene_ends_at_the_cassette_before_its_mutation() -> None:
    assert found("KrasLSL-G12D mice") >= {("Kras", "Gene"), ("G12D", "Variant")}


def test_an_abbreviation_of_a_disease_is_no_cell_line() -> None:
    text = "Basal cell carcinoma (BCC) grew. BCC cells were few."
    mentions = [Mention(0, 20, "Disease", 0.9), Mention(22, 25, "CellLine", 0.8), Mention(33, 36, "CellLine", 0.8)]
    refined, _ = apply_rules(text, mentions, types=TYPES, rules=RULES, definitions=[((0, 20), (22, 25))])
    assert [one.type for one in refined] == ["Disease"] * 3


def test_a_symbol_before_a_notation_is_a_gene() -> None:
    expected = {("GLA", "Gene"), ("p.Asn215Ser", "Variant"), ("c.76A>T", "Variant")}
    assert found("GLA p.Asn215Ser, and the SNP c.76A>T") == expected


def test_a_longer_mention_with_a_low_score_does_not_hide_a_name() -> None:
    text = "The ΔcsgD mutant of yeast"
    mutant = (text[4:16], "Disease")
    assert found(text, (*mutant, 0.2)) == {("ΔcsgD", "Gene")}
    assert found(text, (*mutant, 0.7)) == {mutant}
