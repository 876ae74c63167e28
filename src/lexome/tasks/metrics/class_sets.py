"""The classes that count in each paper's score: not the negative ones, of which most pairs and texts are."""

from collections.abc import Mapping

_CHEMPROT = ("CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9")
_DDI = ("DDI-advise", "DDI-effect", "DDI-int", "DDI-mechanism")
_I2B2_2010 = ("PIP", "TeCP", "TeRP", "TrAP", "TrCP", "TrIP", "TrNAP", "TrWP")
_HALLMARKS = (
    "activating invasion and metastasis",
    "avoiding immune destruction",
    "cellular energetics",
    "enabling replicative immortality",
    "evading growth suppressors",
    "genomic instability and mutation",
    "inducing angiogenesis",
    "resisting cell death",
    "sustaining proliferative signaling",
    "tumor promoting inflammation",
)
_LITCOVID = (
    "Case Report",
    "Diagnosis",
    "Epidemic Forecasting",
    "Mechanism",
    "Prevention",
    "Transmission",
    "Treatment",
)

CLASS_SETS: Mapping[str, tuple[str, ...]] = {
    "chemprot": _CHEMPROT,
    "ddi": _DDI,
    "gad": ("1",),
    "euadr": ("1",),
    "i2b2-2010-relations": _I2B2_2010,
    "hoc": _HALLMARKS,
    "litcovid": _LITCOVID,
}
"""The classes of each set whose counts make the score: of ChemProt, DDI and i2b2 as micro averages in every paper (the
one that says macro computes micro as well), of GAD and EU-ADR the positive pairs alone."""
