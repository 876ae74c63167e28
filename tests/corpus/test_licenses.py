"""Licenses under one name, however they are written."""

import pytest

from lexome.corpus.ingest import license_allowed, license_name
from lexome.metadata import Metadata


@pytest.mark.parametrize(
    ("stated", "url", "name"),
    [
        ("cc-by-4.0", None, "CC BY"),
        ("CC BY-NC-SA 3.0", None, "CC BY-NC-SA"),
        ("cc-by-ncnd-4.0", None, "CC BY-NC-ND"),
        ("cc-zero-1.0", None, "CC0"),
        ("CC0 1.0", None, "CC0"),
        ("cc-mark-1.0", None, "public domain"),
        ("cc-by-n-4.0", None, "other"),
        ("pmc-oa", None, "other"),
        ("Creative Commons Attribution Non-Commercial License 4.0", None, "CC BY-NC"),
        ("the Creative Commons Attribution License, which permits unrestricted use", None, "CC BY"),
        ("Creative Commons Attribution-ShareAlike", None, "CC BY-SA"),
        ("All rights reserved", "https://creativecommons.org/licenses/by-nc-nd/4.0/", "CC BY-NC-ND"),
        (None, "http://creativecommons.org/licenses/by/2.0", "CC BY"),
        (None, "https://creativecommons.org/publicdomain/zero/1.0/", "CC0"),
        ("This work lies in the public domain.", None, "public domain"),
        ("All rights reserved", None, "other"),
        (None, None, "unstated"),
        ("", None, "unstated"),
    ],
)
def test_a_license_has_one_name(stated: str | None, url: str | None, name: str) -> None:
    assert license_name(Metadata(license=stated, license_url=url)) == name


def test_the_url_is_believed_before_the_words() -> None:
    meta = Metadata(
        license="Creative Commons Attribution", license_url="https://creativecommons.org/licenses/by-nc/4.0/"
    )
    assert license_name(meta) == "CC BY-NC"


@pytest.mark.parametrize(
    ("name", "wanted", "passes"),
    [
        ("CC BY", "commercial", True),
        ("CC BY-ND", "commercial", True),
        ("CC BY-NC", "commercial", False),
        ("other", "commercial", False),
        ("unstated", "commercial", False),
        ("other", "stated", True),
        ("unstated", "stated", False),
        ("unstated", "any", True),
    ],
)
def test_a_source_takes_what_its_filter_allows(name: str, wanted: str, passes: bool) -> None:
    assert license_allowed(name, wanted) is passes
