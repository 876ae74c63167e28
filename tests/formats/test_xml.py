"""Cutting XML files into records, whatever is wrong with them."""

import random
from contextlib import suppress
from pathlib import Path

import pytest
from errors import raises
from memory_files import source_of
from patience import linear_work

from lexome.errors import BadDocument, FormatError
from lexome.formats import xml
from lexome.formats.streams import Source
from lexome.formats.xml import Record, records


def source(content: bytes | str, name: str = "a.xml") -> Source:
    return source_of(name, content)


def cut(content: bytes | str, **options: tuple[str, ...]) -> list[Record]:
    return list(records(source(content), ("doc",), **options))


def texts(content: bytes | str) -> list[str | None]:
    return [record.parse().text for record in cut(content)]


def test_records_come_in_order_with_their_lines() -> None:
    found = cut('<?xml version="1.0"?>\n<set>\n<doc>a</doc>\n\n<doc x="1">b</doc></set>\n')
    assert [(record.raw, record.line) for record in found] == [(b"<doc>a</doc>", 3), (b'<doc x="1">b</doc>', 5)]


def test_a_tag_that_only_begins_alike_is_no_record() -> None:
    assert texts("<set><doc>a<doc-meta>x</doc-meta></doc></set>") == ["a"]


def test_an_empty_element_is_a_record() -> None:
    assert [record.raw for record in cut("<set><doc/><doc>b</doc></set>")] == [b"<doc/>", b"<doc>b</doc>"]


def test_records_do_not_depend_on_where_blocks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    content = '<?xml version="1.0"?><set>' + "".join(f"<doc n='{n}'>{'x' * n}</doc>\n" for n in range(60)) + "</set>"
    whole = [record.raw for record in cut(content)]
    rng = random.Random(0)
    for _ in range(50):
        monkeypatch.setattr(xml, "BLOCK_BYTES", rng.randint(1, 80))
        assert [record.raw for record in cut(content)] == whole


def test_text_between_records_is_reported() -> None:
    first, stray, second = cut("<set><doc>a</doc><dco>lost</dco><doc>b</doc></set>")
    assert (first.problem, second.problem) == (None, None)
    with raises(BadDocument, code="outside_record", value="lost"):
        stray.parse()


def test_comments_and_instructions_between_records_are_filler() -> None:
    assert texts("<set><!-- <b>note</b> --><doc>a</doc><?page 2?></set>") == ["a"]


def test_header_elements_are_no_stray_text() -> None:
    found = cut("<set><source>here</source><key/><doc>a</doc></set>", header=("source", "key"))
    assert [record.problem for record in found] == [None]


def test_a_malformed_record_names_its_line_and_costs_no_other() -> None:
    good, bad, last = cut("<set>\n<doc>a</doc>\n<doc>\n<b>x</doc>\n<doc>c</doc>\n</set>")
    assert (good.parse().text, last.parse().text) == ("a", "c")
    with raises(BadDocument, code="malformed_xml", value=4):
        bad.parse()


def test_a_file_that_ends_inside_a_record_gives_it_as_truncated() -> None:
    found = records(source("<set><doc>a</doc><doc>b"), ("doc",))
    assert next(found).parse().text == "a"
    with raises(BadDocument, code="truncated", value=1):
        next(found).parse()
    with raises(FormatError, code="truncated", mentions="</set>"):
        next(found)


def test_a_file_that_ends_between_records_is_an_error() -> None:
    found = records(source("<set><doc>a</doc>"), ("doc",))
    assert next(found).parse().text == "a"
    with raises(FormatError, code="truncated", value=1, mentions="a.xml"):
        next(found)


def test_a_single_record_needs_no_root() -> None:
    assert texts("<doc>a</doc>") == ["a"]


def test_an_empty_set_has_no_records() -> None:
    assert cut("<set></set>") == cut("<set/>") == []


@pytest.mark.parametrize(("content", "mentions"), [("", None), ("<html><p>x</p></html>", "<html>"), ("no xml", None)])
def test_a_file_of_another_kind_says_what_it_is(content: str, mentions: str | None) -> None:
    with raises(FormatError, code="no-records", value="doc", mentions=mentions):
        cut(content)


def test_an_entity_bomb_is_never_expanded() -> None:
    lines = ['<!ENTITY a "ha">'] + [f'<!ENTITY a{n} "{"&a%s;" % (n - 1 or "") * 10}">' for n in range(1, 10)]
    bomb = f"<?xml version='1.0'?><!DOCTYPE set [{''.join(lines)}]><set><doc>&a9;</doc><doc>b</doc></set>"
    first, second = cut(bomb)
    assert second.parse().text == "b"
    with raises(BadDocument, code="malformed_xml", mentions="a9"):
        first.parse()


def test_an_external_entity_is_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    content = f'<!DOCTYPE set [<!ENTITY x SYSTEM "{secret.as_uri()}">]><set><doc>&x;</doc></set>'
    with raises(BadDocument, code="malformed_xml", mentions="'x'"):
        cut(content)[0].parse()


def test_an_entity_declared_inside_a_record_is_refused() -> None:
    with pytest.raises(BadDocument):
        cut('<set><doc><!DOCTYPE doc [<!ENTITY x "y">]>&x;</doc></set>')[0].parse()


def test_named_characters_are_resolved() -> None:
    assert texts("<set><doc>&alpha;&nbsp;&lt;b&gt;&amp;</doc></set>") == ["α\u00a0<b>&"]


def test_names_are_taken_whole_and_marks_stay_text() -> None:
    assert texts("<set><doc>&LT;b&GT; &not;</doc></set>") == ["<b> ¬"]
    with raises(BadDocument, code="malformed_xml", mentions="notit"):
        texts("<set><doc>&notit;</doc></set>")


def test_prefixes_declared_on_the_root_are_known() -> None:
    record = cut('<set xmlns:m="urn:maths"><doc><m:math>x</m:math></doc></set>')[0]
    assert record.parse()[0].tag == "{urn:maths}math"


def test_mathml_without_declaration_is_known() -> None:
    assert cut("<set><doc><mml:math>x</mml:math></doc></set>")[0].parse()[0].text == "x"


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16", "windows-1252"])
def test_other_encodings_are_read_as_declared(encoding: str) -> None:
    content = f"<?xml version='1.0' encoding='{encoding}'?><set><doc>Ménière</doc></set>".encode(encoding)
    assert texts(content) == ["Ménière"]


def test_a_byte_order_mark_is_no_text() -> None:
    assert texts("\ufeff<set><doc>a</doc></set>") == ["a"]


def test_bytes_of_the_wrong_encoding_cost_their_record_alone() -> None:
    bad, good = cut(b"<set><doc>M\xe9ni\xe8re</doc><doc>b</doc></set>")
    assert good.parse().text == "b"
    with raises(BadDocument, code="malformed_xml"):
        bad.parse()


def test_an_unknown_declared_encoding_is_an_error() -> None:
    with raises(FormatError, code="unknown-encoding", value="klingon"):
        cut("<?xml version='1.0' encoding='klingon'?><set/>")


def test_a_record_that_is_too_large_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "MAX_RECORD_BYTES", 1000)
    monkeypatch.setattr(xml, "BLOCK_BYTES", 100)
    large, small = cut("<set><doc>" + "x" * 5000 + "</doc><doc>b</doc></set>")
    assert small.parse().text == "b"
    assert len(large.raw) <= 1000
    with raises(BadDocument, code="too_large"):
        large.parse()


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(BadDocument):
        cut("<set><doc>" + "<b>" * 10_000 + "</b>" * 10_000 + "</doc></set>")[0].parse()


def test_random_damage_raises_nothing_unexpected() -> None:
    content = ('<?xml version="1.0"?><set>' + "<doc><b>one</b> &alpha; two</doc>" * 5 + "</set>").encode()
    rng = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            for record in records(source(bytes(damaged[: rng.randint(0, len(damaged))])), ("doc",)):
                record.parse()
        except (BadDocument, FormatError):
            pass


@pytest.mark.parametrize(
    "piece", [b"<!--", b"<?", b"<!DOCTYPE", b"<!DOCTYPE [", b"<source>", b"<a", b"<a>", b"]", b"&x;"]
)
def test_no_repetition_makes_it_slow(piece: bytes) -> None:
    noise = piece * (1 << 20)
    with linear_work(), suppress(BadDocument, FormatError):
        for record in records(source(b"<set>" + noise + b"<doc>a</doc>" + noise), ("doc",), header=("source",)):
            record.parse()
