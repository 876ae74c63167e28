"""What a section is for, told from its JATS sec-type or its heading, in the words of NCBI's BioC-PMC."""

import re
from functools import lru_cache

# In this order: "Materials and methods" before "Results", the narrower wording before the wider one.
_HEADINGS = (
    ("SUPPL", r"supplement|supporting (?:information|data|material)|additional (?:file|data|material)|web extra"),
    (
        "AUTH_CONT",
        r"(?:author|contributor)(?:'?s'?)? ?(?:contribution|information|role)|contributors?$",
    ),
    ("COMP_INT", r"(?:competing|conflicts?|conflicting|declarations? of|duality of).* interest|disclosures?\b|coi\b"),
    ("ACK_FUND", r"acknowledge?ment|funding|financial (?:support|disclosure)|grant support|role of the funding"),
    ("ABBR", r"abbreviation|glossary|nomenclature|list of symbols"),
    ("REF", r"references?$|bibliography|literature cited|further reading"),
    ("APPENDIX", r"appendi(?:x|ces)"),
    ("REVIEW_INFO", r"(?:peer )?review(?:er)? (?:information|history|comments)|pre-publication history"),
    ("CASE", r"case (?:report|presentation|description|history|stud)|the case$|cases?$"),
    ("INTRO", r"introduction|background|intro$"),
    (
        "METHODS",
        r"(?:.*\b(?:and|&|statistical|experimental|online|study|star.) ?)?methods?\b|methodology|materials?\b|"
        r"experimental (?:procedure|section|design)|(?:study|statistical) (?:design|analys)|patients and",
    ),
    ("RESULTS", r"results?\b|findings"),
    ("DISCUSS", r"(?:general )?discussion|comment$"),
    ("CONCL", r"(?:summary and )?conclusions?\b|concluding remarks|summary$"),
)
_SEC_TYPES = {
    "intro": "INTRO",
    "background": "INTRO",
    "methods": "METHODS",
    "materials": "METHODS",
    "subjects": "METHODS",
    "materials|methods": "METHODS",
    "methods|subjects": "METHODS",
    "results": "RESULTS",
    "results|discussion": "RESULTS",
    "discussion": "DISCUSS",
    "discussion|conclusions": "DISCUSS",
    "conclusions": "CONCL",
    "conclusion": "CONCL",
    "cases": "CASE",
    "supplementary-material": "SUPPL",
    "acknowledgement": "ACK_FUND",
    "ack": "ACK_FUND",
    "funding": "ACK_FUND",
    "author-contributions": "AUTH_CONT",
    "coi-statement": "COMP_INT",
    "conflict": "COMP_INT",
    "conflict-interest": "COMP_INT",
    "financial-disclosure": "ACK_FUND",
    "supported-by": "ACK_FUND",
    "con": "AUTH_CONT",
    "abbr": "ABBR",
    "abbreviations": "ABBR",
    "glossary": "ABBR",
    "appendix": "APPENDIX",
}
_ROLE = re.compile("|".join(f"(?P<{role}>{pattern})" for role, pattern in _HEADINGS))
_NUMBER = re.compile(r"^(?:(?:\d+|[ivx]+|[a-z])[.):]?[\d.]*\s+)?(?:the |our )?")


@lru_cache(maxsize=4096)
def role_of(type_: str | None, heading: str) -> str | None:
    """METHODS, RESULTS, ... where the heading or else the sec-type (fn-type, notes-type) tells, else None.

    The heading goes first: PLOS types its discussions as conclusions.
    """
    plain = _NUMBER.sub("", heading.lower().replace("’", "'").strip(" .:"), count=1)
    found = _ROLE.match(plain)
    if found is not None:
        return found.lastgroup
    return _SEC_TYPES.get(type_.strip().lower()) if type_ is not None else None
