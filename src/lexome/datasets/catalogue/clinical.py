"""The i2b2 challenges, which each user has to apply for."""

from lexome.datasets.catalogue.settings import mentions, paired_relations
from lexome.datasets.dataset import Card
from lexome.datasets.i2b2 import concepts_2010, events_2012, identifiers_2014
from lexome.datasets.splits import Files
from lexome.tasks.metrics import CLASS_SETS

_LICENCE = "n2c2 data use agreement"
_APPLY = (
    "portal.dbmi.hms.harvard.edu/projects/n2c2-nlp: make an account, apply for the n2c2 NLP research data sets and "
    "sign the data use agreement; then download"
)
_RELATIONS = CLASS_SETS["i2b2-2010-relations"]
_IDENTIFIERS = (
    "AGE",
    "BIOID",
    "CITY",
    "COUNTRY",
    "DATE",
    "DEVICE",
    "DOCTOR",
    "EMAIL",
    "FAX",
    "HEALTHPLAN",
    "HOSPITAL",
    "IDNUM",
    "LOCATION-OTHER",
    "MEDICALRECORD",
    "ORGANIZATION",
    "PATIENT",
    "PHONE",
    "PROFESSION",
    "STATE",
    "STREET",
    "URL",
    "USERNAME",
    "ZIP",
)
_2010 = {
    "train": (
        Files(("concept_assertion_relation_training_data!concept_assertion_relation_training_data/*",), concepts_2010),
    ),
    "test": (
        Files(
            ("reference_standard_for_test_data!reference_standard_for_test_data/*", "test_data!test_data/*"),
            concepts_2010,
        ),
        Files(("reference_standard_for_test_data!reference_standard_for_test_data/*",), concepts_2010),
    ),
}
_NO_DEV = "There is no dev split: a tenth of the training notes is drawn, by their names and the seed."

CARDS = (
    Card(
        "i2b2-2010",
        "problems, tests and treatments in hospital notes",
        task={**mentions("problem", "test", "treatment"), "context": "sentence"},
        measure="entity F1",
        splits=_2010,
        folders=("i2b2-2010", "i2b2_2010", "2010"),
        licence=_LICENCE,
        citation="Uzuner et al. 2011, 2010 i2b2/VA challenge on concepts, assertions, and relations in clinical text",
        get=f"{_APPLY} concept_assertion_relation_training_data.tar.gz, reference_standard_for_test_data.tar.gz and "
        "test_data.tar.gz.",
        expected={"train": {"documents": 170}, "test": {"documents": 256}},
        papers=("lewis2020",),
        notes=("What is given out today is smaller than in 2010: 170 and 256 notes.", _NO_DEV),
        dev_share=0.1,
        licensed=True,
    ),
    Card(
        "i2b2-2010-RE",
        "relations between problems, tests and treatments of a sentence in hospital notes",
        task=paired_relations(
            _RELATIONS,
            none="false",
            pairs=(("treatment", "problem"), ("test", "problem"), ("problem", "problem")),
        ),
        measure="F1, micro-averaged over the eight relations",
        splits=_2010,
        folders=("i2b2-2010", "i2b2_2010", "2010"),
        licence=_LICENCE,
        citation="Uzuner et al. 2011, 2010 i2b2/VA challenge on concepts, assertions, and relations in clinical text",
        get=f"{_APPLY} concept_assertion_relation_training_data.tar.gz, reference_standard_for_test_data.tar.gz and "
        "test_data.tar.gz.",
        expected={"train": {"documents": 170}, "test": {"documents": 256}},
        positive=_RELATIONS,
        papers=("lewis2020",),
        notes=("What is given out today is smaller than in 2010: 170 and 256 notes.", _NO_DEV),
        dev_share=0.1,
        licensed=True,
    ),
    Card(
        "i2b2-2012",
        "events in hospital notes: problems, tests, treatments, departments, evidence and occurrences",
        task=mentions("PROBLEM", "TEST", "TREATMENT", "CLINICAL_DEPT", "EVIDENTIAL", "OCCURRENCE"),
        measure="entity F1",
        splits={
            "train": (Files(("2012-07-15.original-annotation.release!*.xml",), events_2012),),
            "test": (
                Files(("2012-08-23.test-data.groundtruth!merged_xml/*.xml",), events_2012),
                Files(("2012-08-23.test-data.groundtruth!ground_truth/*.xml",), events_2012),
                Files(("2012-08-08.test-data.event-timex-groundtruth!xml/*.xml",), events_2012),
            ),
        },
        folders=("i2b2-2012", "i2b2_2012", "2012"),
        licence=_LICENCE,
        citation="Sun et al. 2013, Evaluating temporal relations in clinical text: 2012 i2b2 challenge",
        get=f"{_APPLY} 2012-07-15.original-annotation.release.tar.gz and 2012-08-23.test-data.groundtruth.tar.gz.",
        expected={"train": {"documents": 190}, "test": {"documents": 120}},
        papers=("lewis2020",),
        notes=("Some files are not well-formed for a bare &; they are mended and counted.", _NO_DEV),
        dev_share=0.1,
        licensed=True,
    ),
    Card(
        "i2b2-2014",
        "names, dates, places and numbers that identify a patient in hospital notes",
        task=mentions(*_IDENTIFIERS),
        measure="entity F1",
        splits={
            "train": (
                Files(
                    (
                        "training-PHI-Gold-Set1!training-PHI-Gold-Set1/*.xml",
                        "training-PHI-Gold-Set2!training-PHI-Gold-Set2/*.xml",
                    ),
                    identifiers_2014,
                ),
                Files(
                    (
                        "2014_training-PHI-Gold-Set1!training-PHI-Gold-Set1/*.xml",
                        "training-PHI-Gold-Set2!training-PHI-Gold-Set2/*.xml",
                    ),
                    identifiers_2014,
                ),
            ),
            "test": (Files(("testing-PHI-Gold-fixed!testing-PHI-Gold-fixed/*.xml",), identifiers_2014),),
        },
        folders=("i2b2-2014", "i2b2_2014", "2014"),
        licence=_LICENCE,
        citation="Stubbs and Uzuner 2015, Annotating longitudinal clinical narratives for de-identification",
        get=f"{_APPLY} 2014_training-PHI-Gold-Set1.tar.gz, training-PHI-Gold-Set2.tar.gz and "
        "testing-PHI-Gold-fixed.tar.gz.",
        expected={"train": {"documents": 790}, "test": {"documents": 514}},
        papers=("lewis2020",),
        notes=(_NO_DEV,),
        dev_share=0.1,
        licensed=True,
    ),
)
