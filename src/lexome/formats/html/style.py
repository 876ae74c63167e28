"""The look of the HTML page: one style sheet, and a colour for every type of mention.

A colour is four numbers in OKLCH: lightness on a light and on a dark page, chroma, hue. The page's
own rules turn them into a line and a tint, so every colour meets the same contrast in both themes.
"""

import re
import zlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Colour:
    """A type's colour: lightness of its line on light and dark pages, chroma, and hue in degrees."""

    light: float
    dark: float
    chroma: float
    hue: int


# Chosen so that any two differ for readers who cannot tell red from green: simulated for protanopia and
# deuteranopia, the nearest two of the first seven are 0.08 apart in OKLab or more, in both themes.
COLOURS = {
    "gene": Colour(0.55, 0.75, 0.16, 257),
    "protein": Colour(0.41, 0.66, 0.17, 296),
    "disease": Colour(0.41, 0.68, 0.17, 38),
    "chemical": Colour(0.49, 0.77, 0.12, 160),
    "species": Colour(0.61, 0.90, 0.14, 348),
    "variant": Colour(0.60, 0.89, 0.13, 103),
    "cellline": Colour(0.38, 0.66, 0.025, 255),
    "dna": Colour(0.55, 0.80, 0.09, 210),
    "rna": Colour(0.52, 0.78, 0.12, 130),
    "celltype": Colour(0.45, 0.72, 0.08, 190),
    "anatomy": Colour(0.50, 0.76, 0.10, 65),
    "answer": Colour(0.50, 0.80, 0.20, 10),
}

# Other names of these types, small letters and digits only.
_ALSO = {
    "gene": "genes ggp genename geneorgeneproduct geneproduct geneorprotein geneprotein geney genen hgnc familyname",
    "protein": "proteins proteinname prot peptide enzyme",
    "disease": (
        "diseases diseaseorphenotypicfeature diseaseclass specificdisease compositemention modifier disorder phenotype "
        "symptom cancer problem finding dis"
    ),
    "chemical": "chemicals chemicalentity simplechemical drug drugs drugn brand compound substance medication chem",
    "species": "organism organisms organismtaxon taxon speciesname livb",
    "variant": (
        "variants mutation mutations sequencevariant snp dnamutation proteinmutation dnaacidchange "
        "proteinaminoacidchange dnaallele proteinallele copynumbervariant"
    ),
    "cellline": "celllines",
    "dna": "domainmotif",
    "rna": "mrna mirna transcript",
    "celltype": "cell cells celltypes",
    "anatomy": "tissue organ bodypart anatomicalstructure multitissuestructure",
}
_FAMILIES = {name: family for family in COLOURS for name in (family, *_ALSO.get(family, "").split())}

_LETTERS = re.compile(r"[^a-z0-9]")


def colour_of(type: str) -> Colour:
    """The colour of a type: fixed for the common ones under their many names, from the name's hash for others."""
    family = _FAMILIES.get(_LETTERS.sub("", type.casefold()))
    if family is not None:
        return COLOURS[family]
    return Colour(0.50, 0.76, 0.12, zlib.crc32(type.encode(errors="surrogatepass")) % 360)


def style_of(types: list[str]) -> str:
    """The style sheet of a page whose types are numbered in this order. No name of theirs is in it."""
    rules = []
    for number, type_ in enumerate(types):
        colour = colour_of(type_)
        rules.append(
            f".t{number}{{--l:{colour.light};--d:{colour.dark};--c:{colour.chroma};--h:{colour.hue}}}"
            f"body:has(#t{number}:not(:checked)) mark.t{number}{{display:contents}}"
            f"body:has(#t{number}:not(:checked)) mark.t{number}::after{{content:none!important}}"
        )
    return files("lexome.formats.html").joinpath("page.css").read_text("utf-8") + "\n".join(rules)
