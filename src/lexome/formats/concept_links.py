"""Links from concept ids to the pages of the databases that own them: one table, for HTML pages and the service.

A CURIE whose prefix is in `ADDRESSES` and whose local part has the form of that database's ids has a link; any other
has none. Nothing else of an id gets into an address, and what gets there is percent-encoded.
"""

import re
from urllib.parse import quote

_IDENTIFIERS = "https://identifiers.org/"
_NUMBER = "[0-9]+"
_PLAIN = "[A-Za-z0-9][A-Za-z0-9_.-]*"

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
    "uniprot": (_PLAIN, "https://www.uniprot.org/uniprotkb/{}"),
    # What identifiers.org resolves, under its own prefixes; ontologies of the OBO Foundry are in capitals there.
    **{
        name: (_PLAIN, f"{_IDENTIFIERS}{name}:{{}}") for name in ("drugbank", "ensembl", "umls", "interpro", "orphanet")
    },
    **{name: (_PLAIN, f"{_IDENTIFIERS}{name.upper()}:{{}}") for name in ("go", "hp", "cl", "uberon", "so", "efo")},
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
