"""lexome build: from files to records, each step counted."""

import json
import os
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from errors import raises

import lexome
from lexome.corpus.build import BuildResult, build
from lexome.document import Document, lay_out
from lexome.errors import FormatError, UsageError
from lexome.formats.jsonl import to_json
from lexome.metadata import Metadata
from lexome.pipeline import Engine, Part
from lexome.recipe.corpus_stages import BuildRecipe

HERE = Engine(workers=0)
ORGANS = ["heart", "liver", "spleen", "kidney", "brain", "lung"]


def article(id: str, organ: str, **meta: object) -> Document:
    """A document of three sentences that shares hardly a run of five words with one on another organ."""
    text = (
        f"The {organ} was weighed. In {organ} tissue of old {organ} donors the {organ} cells of each {organ} were "
        f"counted by {organ} experts. No {organ} was lost and every {organ} is kept for the {organ} bank."
    )
    return Document(id, lay_out([("title", f"On the {organ}"), ("abstract", text)]), meta=Metadata(**meta))  # type: ignore[arg-type]


def write(path: Path, *docs: Document) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lexome.write(path, docs)
    return path


def recipe(folder: Path, sources: dict[str, Path], **keys: object) -> BuildRecipe:
    tables = [{"name": name, "paths": [path]} for name, path in sources.items()]
    return BuildRecipe.model_validate({"stage": "build", "out": folder / "out", "sources": tables, **keys})


def kept(out: Path) -> list[str]:
    return [doc.id for doc in lexome.read(out / "records")]


def drops(built: BuildResult) -> dict[str, int]:
    assert built.corpus is not None
    return built.corpus.total.drops


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_every_drop_has_its_reason(tmp_path: Path) -> None:
    write(
        tmp_path / "in" / "1.jsonl",
        article("1", "heart"),
        article("2", "liver", article_types=("Retracted Publication",)),
        article("3", "spleen", license="cc-by-nc-4.0"),
        Document("4", lay_out([("abstract", "Too short.")])),
        Document("5", lay_out([("abstract", " ".join(["le coeur de la souris est dans une boîte et les"] * 5))])),
        article("6", "heart"),
        Document("7"),
    )
    built = build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)
    assert drops(built) == {"retracted": 1, "too_short": 1, "language": 1, "exact_duplicate": 1, "empty": 1}
    assert kept(tmp_path / "out") == ["1", "3"]


def test_a_source_may_be_limited_to_licenses(tmp_path: Path) -> None:
    docs = [article("1", "heart", license="CC BY"), article("2", "liver", license="CC BY-NC"), article("3", "lung")]
    write(tmp_path / "a.jsonl", *docs)
    made = recipe(tmp_path, {"one": tmp_path / "a.jsonl"})
    source = made.sources[0].model_copy(update={"licenses": "commercial"})
    built = build(made.model_copy(update={"sources": (source,)}), engine=HERE)
    assert (kept(tmp_path / "out"), drops(built)) == (["1"], {"license": 2})


def test_updates_outdate_and_delete_what_came_before(tmp_path: Path) -> None:
    write(tmp_path / "in" / "n1.jsonl", article("1", "heart"), article("2", "liver"), article("3", "lung"))
    write(tmp_path / "in" / "n2.jsonl", article("1", "brain", version=2), Document("3", meta=Metadata(deleted=True)))
    built = build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)
    assert drops(built) == {"older_version": 1, "deleted": 1}
    assert kept(tmp_path / "out") == ["2", "1"]


def citation(pmid: int, organ: str, *, version: int = 1) -> str:
    text = article("x", organ).passages[1].text
    return (
        f'<PubmedArticle><MedlineCitation><PMID Version="{version}">{pmid}</PMID><Article>'
        f"<ArticleTitle>On the {organ}</ArticleTitle><Abstract><AbstractText>{text}</AbstractText></Abstract>"
        "</Article></MedlineCitation></PubmedArticle>"
    )


def test_pubmed_update_files_replace_and_delete_citations(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    base = citation(11, "heart") + citation(12, "liver") + citation(13, "lung")
    update = citation(12, "spleen", version=2) + '<DeleteCitation><PMID Version="1">13</PMID></DeleteCitation>'
    for name, records in (("n0001", base), ("n0002", update)):
        (tmp_path / "in" / f"{name}.xml").write_text(f"<PubmedArticleSet>{records}</PubmedArticleSet>")
    built = build(recipe(tmp_path, {"pubmed": tmp_path / "in"}), engine=HERE)
    assert built.corpus is not None
    # What was read either stays or is dropped; a deletion is none of these.
    assert (built.corpus.total.read, built.corpus.total.documents) == (4, 2)
    assert drops(built) == {"older_version": 1, "deleted": 1}
    assert [(doc.id, doc.title) for doc in lexome.read(tmp_path / "out" / "records")] == [
        ("11", "On the heart"),
        ("12", "On the spleen"),
    ]


def test_a_source_may_have_options_of_its_format(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(f"<PubmedArticleSet>{citation(11, 'heart')}</PubmedArticleSet>")
    made = recipe(tmp_path, {"pubmed": path})
    wrong = made.sources[0].model_copy(update={"options": {"abstrct": "joined"}})
    done = build(made.model_copy(update={"sources": (wrong,)}), engine=HERE)
    assert "Did you mean 'abstract'?" in done.failures["pubmed/a"]


def test_near_duplicates_go_and_the_earlier_source_keeps_its_own(tmp_path: Path) -> None:
    one = article("1", "heart")
    longer = Document("2", lay_out([("abstract", one.passages[1].text + " Thanks.")]))
    write(tmp_path / "a.jsonl", article("9", "liver"), longer)
    write(tmp_path / "b.jsonl", one, article("3", "lung"))
    sources = {"b": tmp_path / "b.jsonl", "a": tmp_path / "a.jsonl"}
    built = build(recipe(tmp_path, sources), engine=HERE)
    assert (sorted(kept(tmp_path / "out")), drops(built)) == (["1", "3", "9"], {"near_duplicate": 1})
    again = recipe(tmp_path, sources, near_duplicates="keep", out=tmp_path / "all")
    assert len(kept(again.out) if build(again, engine=HERE).corpus else []) == 4


@pytest.mark.parametrize(("action", "left"), [("drop", ["1"]), ("report", ["1", "2"])])
def test_benchmark_documents_are_dropped_or_only_reported(tmp_path: Path, action: str, left: list[str]) -> None:
    write(tmp_path / "a.jsonl", article("1", "heart"), article("2", "liver"))
    words = article("x", "liver").passages[1].text.split(". ")[1].split()
    (tmp_path / "test.tsv").write_text("".join(f"{word}\tO\n" for word in words) + "\n")
    leakage = {"sets": [tmp_path / "test.tsv"], "action": action}
    built = build(recipe(tmp_path, {"one": tmp_path / "a.jsonl"}, leakage=leakage), engine=HERE)
    assert built.corpus is not None
    assert (kept(tmp_path / "out"), built.corpus.total.leaks) == (left, {"benchmark_text": 1})


def test_a_benchmark_set_may_be_a_folder_and_is_read_anew_when_a_file_in_it_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "in" / "a.jsonl", article("1", "heart"), article("2", "liver"))
    held = write(tmp_path / "sets" / "test.jsonl", article("99", "lung"))
    made = recipe(tmp_path, {"one": path}, leakage={"sets": [tmp_path / "sets"]})
    build(made, engine=HERE)
    assert kept(tmp_path / "out") == ["1", "2"]
    with held.open("ab") as file:  # in place, so that the folder's own time stays
        file.write(to_json(article("98", "liver")) + b"\n")
    build(made, engine=HERE)
    assert kept(tmp_path / "out") == ["1"]


def test_sources_are_cut_to_a_number_of_words_or_to_another_source(tmp_path: Path) -> None:
    many = [
        Document(str(number), lay_out([("abstract", " ".join(f"the w{number}x{place_} of" for place_ in range(20)))]))
        for number in range(60)
    ]
    write(tmp_path / "a.jsonl", *many[:40])
    write(tmp_path / "b.jsonl", *many[40:])
    tables = [
        {"name": "a", "paths": [tmp_path / "a.jsonl"], "match_size_of": "b"},
        {"name": "b", "paths": [tmp_path / "b.jsonl"], "max_words": 600},
    ]
    made = BuildRecipe.model_validate({"stage": "build", "out": tmp_path / "out", "sources": tables, "seed": 1})
    built = build(made, engine=HERE)
    assert built.corpus is not None
    a, b = built.corpus.sources
    assert b.words == 600
    assert 0.9 * b.bytes < a.bytes <= b.bytes
    assert a.drops == {"not_sampled": 40 - a.documents}
    other = made.model_copy(update={"seed": 2, "out": tmp_path / "other"})
    build(other, engine=HERE)
    assert set(kept(tmp_path / "out")) != set(kept(tmp_path / "other"))


def test_records_hold_clean_text_with_sentences(tmp_path: Path) -> None:
    text = "The\u00a0β-cells of ♀ mice\u00ad grew  well in the dish. " + article("1", "heart").passages[1].text
    write(tmp_path / "a.jsonl", Document("1", lay_out([("abstract", text)])))
    build(recipe(tmp_path, {"one": tmp_path / "a.jsonl"}), engine=HERE)
    (doc,) = lexome.read(tmp_path / "out" / "records")
    (passage,) = doc.passages
    assert doc.slice(*passage.sentences[0]) == "The β-cells of ♀ mice grew well in the dish."


def test_records_are_written_in_row_groups_that_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.jsonl", *(article(organ, organ) for organ in ORGANS))
    monkeypatch.setattr("lexome.formats.parquet.GROUP_CHARACTERS", 2 * len(article("x", "heart").text))
    build(recipe(tmp_path, {"one": path}), engine=HERE)
    assert pq.ParquetFile(tmp_path / "out" / "records" / "one" / "a.parquet").num_row_groups >= 3
    assert kept(tmp_path / "out") == ORGANS


def test_the_table_counts_documents_words_bytes_and_licenses(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", article("1", "heart", license="cc-by"), article("2", "β-cell"))
    built = build(recipe(tmp_path, {"one": tmp_path / "a.jsonl"}), engine=HERE)
    assert built.corpus is not None
    (source,) = built.corpus.sources
    texts = [passage.text for doc in lexome.read(tmp_path / "out" / "records") for passage in doc.passages]
    assert (source.read, source.documents) == (2, 2)
    assert source.words == sum(len(text.split()) for text in texts)
    assert source.bytes == sum(len(text.encode()) for text in texts)
    assert source.licenses == {"CC BY": 1, "unstated": 1}
    stored = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert stored["sources"][0]["words"] == source.words
    assert f"| one | 2 | 2 | {source.words} |" in (tmp_path / "out" / "corpus.md").read_text()


def test_a_poisonous_file_fails_alone_and_is_read_when_mended(tmp_path: Path) -> None:
    write(tmp_path / "in" / "good.jsonl.gz", article("1", "heart"))
    bad = write(tmp_path / "in" / "poison.jsonl.gz", article("2", "liver"), article("3", "lung"))
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-20])
    made = recipe(tmp_path, {"one": tmp_path / "in"})
    built = build(made, engine=HERE)
    assert list(built.failures) == ["one/poison"]
    assert "poison.jsonl.gz" in built.failures["one/poison"]
    assert kept(tmp_path / "out") == ["1"]
    bad.write_bytes(whole)
    assert build(made, engine=HERE).failures == {}
    assert kept(tmp_path / "out") == ["1", "2", "3"]


def test_a_broken_file_inside_an_archive_is_set_aside_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path / "good.jsonl", article("1", "heart"))
    (tmp_path / "bad.xml").write_text("hello world")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in ("bad.xml", "good.jsonl"):
            archive.add(tmp_path / name, name)
    built = build(recipe(tmp_path, {"one": tmp_path / "a.tar.gz"}), engine=HERE)
    assert built.corpus is not None
    assert (kept(tmp_path / "out"), built.corpus.total.set_aside) == (["1"], {"broken_file": 1})
    reject = json.loads((tmp_path / "out" / "rejects.jsonl").read_text())
    assert (reject["reason"], "a.tar.gz!bad.xml" in reject["message"]) == ("broken_file", True)


def test_an_archive_that_breaks_off_fails(tmp_path: Path) -> None:
    write(tmp_path / "good.jsonl", *(article(str(number), "heart") for number in range(50)))
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "good.jsonl", "good.jsonl")
    raw = (tmp_path / "a.tar.gz").read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(raw[: len(raw) // 2])
    assert list(build(recipe(tmp_path, {"one": tmp_path / "a.tar.gz"}), engine=HERE).failures) == ["one/a"]


def test_a_bad_document_is_set_aside_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", article("1", "heart"))
    path.write_bytes(path.read_bytes() + b"{broken\n")
    built = build(recipe(tmp_path, {"one": path}), engine=HERE)
    assert built.corpus is not None
    assert built.corpus.total.set_aside == {"malformed_json": 1}
    assert json.loads((tmp_path / "out" / "rejects.jsonl").read_text())["reason"] == "malformed_json"


def test_a_file_whose_every_document_is_set_aside_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "1", "passages": [{"offset": -1, "text": "x"}]}))
    built = build(recipe(tmp_path, {"one": tmp_path / "a.jsonl"}), engine=HERE)
    assert built.failures == {}
    assert built.corpus is not None
    assert (built.corpus.total.documents, sum(built.corpus.total.set_aside.values())) == (0, 1)


def test_building_again_does_nothing_until_input_changes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", article("1", "heart"))
    made = recipe(tmp_path, {"one": path})
    first = build(made, engine=HERE)
    written = (tmp_path / "out" / "records" / "one" / "a.parquet").stat().st_mtime_ns
    assert build(made, engine=HERE) == first
    assert (tmp_path / "out" / "records" / "one" / "a.parquet").stat().st_mtime_ns == written
    write(path, article("1", "heart"), article("2", "liver"))
    build(made, engine=HERE)
    assert kept(tmp_path / "out") == ["1", "2"]


def test_a_corpus_of_another_recipe_is_replaced_only_when_that_is_said(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"one": write(tmp_path / "a.jsonl", article("1", "heart"))})
    build(made, engine=HERE)
    before = contents(tmp_path / "out")
    other = made.model_copy(update={"min_words": 1000})
    with raises(UsageError, code="other-settings", value="min_words", mentions="overwrite=true"):
        build(other, engine=HERE)
    assert contents(tmp_path / "out") == before
    build(other.model_copy(update={"overwrite": True}), engine=HERE)
    assert kept(tmp_path / "out") == []
    # The key is no part of what was made.
    written = (tmp_path / "out" / "corpus.json").stat().st_mtime_ns
    build(other, engine=HERE)
    assert (tmp_path / "out" / "corpus.json").stat().st_mtime_ns == written


def test_the_source_that_differs_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", article("1", "heart"))
    build(recipe(tmp_path, {"one": path}), engine=HERE)
    with raises(UsageError, code="other-settings", value="sources.0.name"):
        build(recipe(tmp_path, {"two": path}), engine=HERE)


def test_what_another_recipe_has_only_begun_is_kept_too(tmp_path: Path) -> None:
    for organ in ORGANS:
        write(tmp_path / "in" / f"{organ}.jsonl", article(organ, organ))
    made = recipe(tmp_path, {"one": tmp_path / "in"})
    assert build(made, engine=HERE, part=Part(1, 2)).waiting
    with raises(UsageError, code="other-settings", value="seed"):
        build(made.model_copy(update={"seed": 1}), engine=HERE)
    assert build(made, engine=HERE).corpus is not None


def test_a_folder_where_nothing_is_done_yet_may_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recipe(tmp_path, {"one": write(tmp_path / "a.jsonl", article("1", "heart"))})

    def cut_short(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lexome.corpus.build.run", cut_short)
        with pytest.raises(KeyboardInterrupt):
            build(made, engine=HERE)
    build(made.model_copy(update={"min_words": 1}), engine=HERE)
    assert kept(tmp_path / "out") == ["1"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_records_that_no_build_made_stay(tmp_path: Path, overwrite: bool) -> None:
    mine = write(tmp_path / "out" / "records" / "mine.parquet", article("7", "lung"))
    made = recipe(tmp_path, {"one": write(tmp_path / "a.jsonl", article("1", "heart"))}, overwrite=overwrite)
    with raises(UsageError, code="foreign-output"):
        build(made, engine=HERE)
    assert mine.exists()


def test_a_corpus_from_before_a_key_was_there_is_of_the_same_recipe(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"one": write(tmp_path / "a.jsonl", article("1", "heart"))})
    build(made, engine=HERE)
    table = tmp_path / "out" / "corpus.json"
    stored = json.loads(table.read_text())
    del stored["recipe"]["retracted"]
    table.write_text(json.dumps(stored))
    assert build(made, engine=HERE).corpus is not None


def test_records_of_a_file_that_is_no_longer_named_go(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", article("1", "heart"))
    write(tmp_path / "in" / "b.jsonl", article("2", "liver"))
    made = recipe(tmp_path, {"one": tmp_path / "in"})
    build(made, engine=HERE)
    (tmp_path / "in" / "a.jsonl").unlink()
    build(made, engine=HERE)
    assert kept(tmp_path / "out") == ["2"]


def test_nothing_but_the_corpus_is_left_when_all_is_done(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", article("1", "heart"))
    build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)
    assert sorted(contents(tmp_path / "out")) == ["corpus.json", "corpus.md", "records/one/a.parquet"]


def test_a_document_that_cannot_be_read_moves_no_verdict_to_another(tmp_path: Path) -> None:
    texts = [article("x", organ).passages[1].text for organ in ("heart", "liver", "liver", "lung")]
    # The first id is half a surrogate pair, which is no text.
    lines = [json.dumps({"id": id, "text": text}) for id, text in zip(["\ud800", "1", "2", "3"], texts, strict=True)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines))
    built = build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)
    assert built.corpus is not None
    assert kept(tmp_path / "out") == ["1", "3"]
    assert built.corpus.total.set_aside == {"not_unicode": 1}
    assert (built.corpus.total.documents, drops(built)) == (2, {"exact_duplicate": 1})


def test_another_seed_chooses_anew_where_a_failed_file_kept_what_was_read(tmp_path: Path) -> None:
    for organ in ORGANS:
        write(tmp_path / "in" / f"{organ}.jsonl", article(organ, organ))
    (tmp_path / "in" / "poison.jsonl.gz").write_bytes(b"\x1f\x8b")
    made = recipe(tmp_path, {"one": tmp_path / "in"})
    source = made.sources[0].model_copy(update={"max_words": 80})
    chosen = set()
    for seed in range(8):
        build(made.model_copy(update={"sources": (source,), "seed": seed, "overwrite": True}), engine=HERE)
        chosen.add(tuple(kept(tmp_path / "out")))
    assert len(chosen) > 1


def test_a_table_does_not_vouch_for_records_that_another_recipe_began_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for organ in ORGANS:
        write(tmp_path / "in" / f"{organ}.jsonl", article(organ, organ))
    first = recipe(tmp_path, {"one": tmp_path / "in"})
    build(first, engine=HERE)
    undisturbed = contents(tmp_path / "out")

    def cut_short(*given: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lexome.corpus.build._finish", cut_short)
    with pytest.raises(KeyboardInterrupt):
        build(first.model_copy(update={"min_words": 1000, "overwrite": True}), engine=HERE)
    monkeypatch.undo()
    build(first.model_copy(update={"overwrite": True}), engine=HERE)
    assert contents(tmp_path / "out") == undisturbed


def test_what_a_last_sweep_did_not_reach_goes_with_the_next_run(tmp_path: Path) -> None:
    made = recipe(tmp_path, {"one": write(tmp_path / "a.jsonl", article("1", "heart"))})
    build(made, engine=HERE)
    (tmp_path / "out" / ".lexome" / "read").mkdir(parents=True)
    build(made, engine=HERE)
    assert not (tmp_path / "out" / ".lexome").exists()


def test_rejects_are_those_of_the_files_that_are_named(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", article("1", "heart"))
    bad = write(tmp_path / "in" / "b.jsonl", article("2", "liver"))
    bad.write_bytes(bad.read_bytes() + b"{broken\n")
    poison = tmp_path / "in" / "poison.jsonl.gz"
    poison.write_bytes(b"\x1f\x8b")
    made = recipe(tmp_path, {"one": tmp_path / "in"})
    assert build(made, engine=HERE).failures
    assert (tmp_path / "out" / "rejects.jsonl").exists()
    bad.unlink()
    poison.unlink()
    build(made, engine=HERE)
    assert not (tmp_path / "out" / "rejects.jsonl").exists()


def test_records_are_not_built_from_the_folder_they_go_to(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", article("1", "heart"))
    build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)
    with raises(UsageError, code="input-is-output"):
        build(recipe(tmp_path, {"two": tmp_path / "out" / "records"}), engine=HERE)
    assert kept(tmp_path / "out") == ["1"]


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    odd = ["two words", "β ♀", "new\nline", os.fsdecode(b"not utf-8 \xff"), "a.npy", "-q", "%s", "a\\b", "n" * 245]
    for number, (name, organ) in enumerate(zip(odd, [*ORGANS, "skin", "bone", "eye"], strict=True)):
        write(tmp_path / "in" / "x.jsonl", article(str(number), organ)).rename(tmp_path / "in" / f"{name}.jsonl")
    built = build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)
    assert (built.failures, sorted(kept(tmp_path / "out"))) == ({}, [str(number) for number in range(len(odd))])


def test_parts_make_the_same_corpus_as_one_run(tmp_path: Path) -> None:
    for number, organ in enumerate(ORGANS):
        write(tmp_path / "in" / f"{number}.jsonl", article(organ, organ), article("same", "heart"))
    whole = recipe(tmp_path, {"one": tmp_path / "in"})
    build(whole, engine=HERE)
    parted = whole.model_copy(update={"out": tmp_path / "parted"})
    first = build(parted, engine=HERE, part=Part(1, 3))
    assert (first.corpus, len(first.waiting)) == (None, 4)
    for _ in range(6):  # as often as there are stages, a part may have to wait for the others
        for number in (2, 3, 1):
            last = build(parted, engine=HERE, part=Part(number, 3))
    assert last.corpus is not None
    one, other = contents(tmp_path / "out"), contents(tmp_path / "parted")
    assert {name: raw for name, raw in one.items() if name.startswith("records")} == {
        name: raw for name, raw in other.items() if name.startswith("records")
    }


def test_files_of_one_name_in_two_folders_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path / "in" / "x" / "a.jsonl", article("1", "heart"))
    write(tmp_path / "in" / "y" / "a.jsonl", article("2", "liver"))
    build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)
    assert kept(tmp_path / "out") == ["1", "2"]
    write(tmp_path / "in" / "z" / "y" / "a.jsonl", article("3", "lung"))
    with raises(UsageError, code="duplicate-name"):
        build(recipe(tmp_path, {"one": tmp_path / "in"}), engine=HERE)


def test_a_missing_source_or_benchmark_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.xml"
    with raises(FormatError, code="missing-file", value=missing, mentions="one"):
        build(recipe(tmp_path, {"one": missing}), engine=HERE)
    path = write(tmp_path / "a.jsonl", article("1", "heart"))
    with raises(FormatError, code="missing-file", value=tmp_path / "gone.tsv"):
        build(recipe(tmp_path, {"one": path}, leakage={"sets": [tmp_path / "gone.tsv"]}), engine=HERE)


def test_a_corpus_where_nothing_is_left_is_empty_and_no_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", Document("1", lay_out([("abstract", "Short.")])))
    built = build(recipe(tmp_path, {"one": path}), engine=HERE)
    assert built.corpus is not None
    assert (built.corpus.total.documents, kept(tmp_path / "out")) == (0, [])
