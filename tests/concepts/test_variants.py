"""Normal forms of variants, in notation and in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexome.concepts.variants import dbsnp_beside, parse_variant, variant_concepts


@pytest.mark.parametrize(
    ("text", "tmvar", "hgvs"),
    [
        # Substitutions of a protein.
        ("V600E", "p|SUB|V|600|E", "p.V600E"),
        ("p.V600E", "p|SUB|V|600|E", "p.V600E"),
        ("Val600Glu", "p|SUB|V|600|E", "p.V600E"),
        ("p.(Val600Glu)", "p|SUB|V|600|E", "p.V600E"),
        ("valine to glutamic acid at position 600", "p|SUB|V|600|E", "p.V600E"),
        ("valine-to-methionine at codon 44", "p|SUB|V|44|M", "p.V44M"),
        ("arginine residue for the proline residue at position 158", "p|SUB|P|158|R", "p.P158R"),
        ("tryptophan to arginine substitution at amino acid 10", "p|SUB|W|10|R", "p.W10R"),
        ("codon 358, tyrosine to histidine", "p|SUB|Y|358|H", "p.Y358H"),
        ("p.Arg153X", "p|SUB|R|153|X", "p.R153*"),
        ("p.Arg153*", "p|SUB|R|153|X", "p.R153*"),
        ("Arg-->Leu", "p|SUB|R||L", None),
        # Of DNA.
        ("c.467C>A", "c|SUB|C|467|A", "c.467C>A"),
        ("-455G>A", "c|SUB|G|-455|A", "c.-455G>A"),
        ("g.1755 G > A", "g|SUB|G|1755|A", "g.1755G>A"),
        ("c.444-62C>A", "c|SUB|C|444-62|A", "c.444-62C>A"),
        ("IVS3+1G/A", "c|SUB|G|IVS3+1|A", "c.IVS3+1G>A"),
        ("G-1739A", "c|SUB|G|-1739|A", "c.-1739G>A"),
        ("A1762T", "c|SUB|A|1762|T", "c.1762A>T"),
        ("G>A substitution at nucleotide 893", "c|SUB|G|893|A", "c.893G>A"),
        ("thymidine to cytosine mutation at position 28", "c|SUB|T|28|C", "c.28T>C"),
        # Deletions, insertions, duplications, frameshifts.
        ("c.2187delA", "c|DEL|2187|A", "c.2187delA"),
        ("c.899-1142del", "c|DEL|899_1142|", "c.899_1142del"),
        ("c.76_78delACT", "c|DEL|76_78|ACT", "c.76_78delACT"),
        ("c.370-371insA", "c|INS|370_371|A", "c.370_371insA"),
        ("c.76_78delinsGG", "c|INDEL|76_78|GG", "c.76_78delinsGG"),
        ("1308_1316 dup9", "c|DUP|1308_1316|9|", "c.1308_1316dup"),
        ("deletion of C at nucleotide 888", "c|DEL|888|C", "c.888delC"),
        ("C deletion at nucleotide position 4548", "c|DEL|4548|C", "c.4548delC"),
        ("4-bp deletion", "c|DEL||4", None),
        ("insertion of 13 nucleotides", "c|INS||13", None),
        ("deletion of 4 kb", "c|DEL||4K", None),
        ("four-basepair deletion", "c|DEL||4", None),
        ("p.S173fsX174", "p|FS|S|173||174", "p.S173fs*174"),
        ("p.Pro246HisfsX13", "p|FS|P|246|H|13", "p.P246Hfs*13"),
        ("-189T", "c|Allele|T|-189", None),
    ],
)
def test_normal_forms(text: str, tmvar: str, hgvs: str | None) -> None:
    variant = parse_variant(text)
    assert variant is not None
    assert (variant.tmvar, variant.hgvs) == (tmvar, hgvs)


@pytest.mark.parametrize("text", ["", "polymorphism", "the variant", "HLA-B27", "breast cancer", "12", "CAG repeats"])
def test_no_variant(text: str) -> None:
    assert variant_concepts(text) == ()


def test_dbsnp_ids() -> None:
    assert variant_concepts("rs113488022") == ("dbsnp:rs113488022",)
    assert variant_concepts("rs1 and rs22") == ("dbsnp:rs1", "dbsnp:rs22")


@given(st.text(alphabet="ACGTVElpc.>-_+ 0123456789delinsdupfsX()*", max_size=24))
def test_any_text_is_parsed_or_not(text: str) -> None:
    for concept in variant_concepts(text):
        prefix, colon, local = concept.partition(":")
        assert prefix in ("tmvar", "dbsnp")
        assert colon
        assert local


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("{V600E} (rs113488022) was", "dbsnp:rs113488022"),
        ("the {-1021T} allele (rs1611115, in", "dbsnp:rs1611115"),
        ("rs4539 ({A2718G}) was", "dbsnp:rs4539"),
        ("RS9932581:{A>G}", "dbsnp:rs9932581"),
        ("{V600E}, rs113488022", None),
        ("rs2277025 and {157del} (", None),
        ("{R620W} and +2740 (rs1217412)", None),
    ],
)
def test_dbsnp_ids_beside_a_variant(text: str, id_: str | None) -> None:
    start, end = text.index("{"), text.index("}") - 1
    assert dbsnp_beside(text.replace("{", "").replace("}", ""), start, end) == id_
