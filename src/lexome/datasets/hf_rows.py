"""Rows of Hugging Face datasets as Documents: Arrow, Parquet and JSON lines, read without the datasets library.

The columns of a row decide what it is: tokens and tags, a text and its label, two sentences, a question on a context,
or BigBIO's passages and entities. Names of integer labels are in the file's schema or in a dataset_info.json beside it.
"""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lexome.document import Answer, Argument, Document, Passage, Question, Relation, Span
from lexome.errors import BadDocument, FormatError, MissingExtraError
from lexome.formats import conll
from lexome.formats.jsonl import from_json, from_record
from lexome.formats.streams import open_sources, open_stream
from lexome.formats.tally import Tally

Row = dict[str, Any]
Features = Mapping[str, Any]

_TAGS = ("ner_tags", "tags", "ner", "labels", "label")
_PAIRS = (("sentence1", "sentence2"), ("premise", "hypothesis"), ("text_1", "text_2"))
_LABELS = ("label", "labels", "gold_label", "score")
_IDS = ("id", "document_id", "guid", "pairID", "idx")
# The integer label of rows without a label.
_NO_LABEL = -1


def read(paths: Iterable[Path], *, tally: Tally, split: str = "") -> Iterator[Document]:
    """The documents of a split's files, one per row."""
    number = 0
    for path in paths:
        if path.name.endswith((".arrow", ".parquet")):
            rows, features = _arrow(path)
        else:
            rows, features = _json_lines(path, tally), {}
        features = features or _features_beside(path)
        for row in rows:
            number += 1
            name = _name(row, number, split or path.stem)
            make = partial(_convert, row, features, name, tally)
            raw = json.dumps(row, default=str, ensure_ascii=False).encode(errors="backslashreplace")
            doc = tally.attempt(make, where=f"{path}, row {number}", id=name, raw=raw)
            if doc is not None:
                yield doc


def _name(row: Row, number: int, split: str) -> str:
    """A row's id, or its split and number if it has none or a mere row number, which other splits have too."""
    own = next((str(row[key]) for key in _IDS if row.get(key) not in (None, "")), None)
    return f"{split}-{number}" if own is None or own in (str(number - 1), str(number)) else own


def _convert(row: Row, features: Features, name: str, tally: Tally) -> Document:
    try:
        return document(row, features, name, tally)
    except BadDocument:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        # Columns may hold anything, whatever their names.
        raise BadDocument("bad_field", f"the columns {', '.join(row)} hold unexpected values ({error!r}).") from error


def document(row: Row, features: Features, name: str, tally: Tally) -> Document:
    """A row as a document."""
    if "tokens" in row:
        return _from_tags(row, features, name, tally)
    if "passages" in row and "entities" in row:
        return _from_bigbio(row, name)
    if "context" in row and "question" in row:
        return _from_squad(row, name)
    if "passages" in row:
        return from_json(json.dumps(row))
    record = {key: value for key, value in row.items() if value is not None}
    for pair in _PAIRS:
        if record.keys() >= set(pair):
            record["sentence1"], record["sentence2"] = (record.pop(key) for key in pair)
            if "text_1" in pair or "score" in record:
                record.setdefault("label", record.pop("score", record.get("label")))
            break
    for key in _LABELS:
        if key in record:
            record[key] = _label_names(record[key], key, features, tally)
    record = {key: value for key, value in record.items() if key not in _IDS and value not in (None, [])}
    return from_record({**record, "id": name}, name, tally)


def class_names(features: Features, column: str) -> tuple[str, ...]:
    """The names of a column's classes, also of a list's; none unless they are stored as integers."""
    feature = features.get(column)
    while True:
        if isinstance(feature, list) and feature:
            feature = feature[0]
        elif isinstance(feature, dict) and isinstance(feature.get("feature"), dict | list):
            feature = feature["feature"]
        else:
            break
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    return tuple(map(str, names)) if isinstance(names, list) else ()


def _arrow(path: Path) -> tuple[Iterator[Row], Features]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", extra="corpus", purpose="reading a Hugging Face dataset") from None
    try:
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path)
            schema, batches = table.schema_arrow, table.iter_batches(256)
        else:
            schema, batches = _arrow_batches(path, pa)
    except (pa.ArrowException, OSError, ValueError) as error:
        first = str(error).split("\n", 1)[0]
        message = f"{path}: not a valid Arrow or Parquet file ({first}). Write it again."
        raise FormatError(message, code="invalid-table", value=str(path)) from error
    features = (schema.metadata or {}).get(b"huggingface")
    rows = (row for batch in batches for row in batch.to_pylist())
    return rows, _features_in(json.loads(features)) if features else {}


def _arrow_batches(path: Path, pa: Any) -> tuple[Any, Iterable[Any]]:
    """Arrow's streaming format, in which datasets are saved, or its file format."""
    source = pa.memory_map(str(path))
    try:
        stream = pa.ipc.open_stream(source)
    except pa.ArrowInvalid:
        file = pa.ipc.open_file(source)
        return file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
    return stream.schema, stream


def _json_lines(path: Path, tally: Tally) -> Iterator[Row]:
    for source in open_sources(path, tally):
        for number, line in source.lines():
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                problem = None if isinstance(row, dict) else type(row).__name__
            except ValueError as error:
                problem = str(error)
            if problem is not None:
                message = f"{source.name}, line {number}: {problem}; expected one JSON object per line."
                raise FormatError(message, code="invalid-json", value=number)
            yield row


def _features_beside(path: Path) -> Features:
    """The features in a dataset_info.json or dataset_infos.json beside the file, or in the folder above."""
    names = ("dataset_info.json", "dataset_infos.json")
    files = (folder / name for folder in (path.parent, path.parent.parent) for name in names)
    file = next((file for file in files if file.is_file()), None)
    try:
        return _features_in(json.loads(file.read_text(encoding="utf-8"))) if file is not None else {}
    except ValueError as error:
        raise FormatError(
            f"{file}: {error}; expected JSON. Write the dataset again.", code="invalid-json", value=str(file)
        ) from None


def _features_in(info: Any) -> Features:
    """The features, which are at the top, under "info", or under the name of the only configuration."""
    if not isinstance(info, dict):
        return {}
    if isinstance(info.get("features"), dict):
        return dict(info["features"])
    inner = [info["info"]] if "info" in info else list(info.values()) if len(info) == 1 else []
    return _features_in(inner[0]) if inner else {}


def _from_tags(row: Row, features: Features, name: str, tally: Tally) -> Document:
    """Tokens and tags, read by the CoNLL reader, so that there is one reader of tags."""
    column = next((key for key in _TAGS if isinstance(row.get(key), list)), None)
    tokens, tags = row["tokens"], row.get(column or "")
    if column is None or not isinstance(tags, list) or len(tags) != len(tokens):
        seen = ", ".join(row)
        raise BadDocument("bad_field", f"the columns are {seen}; expected tokens and as many {' or '.join(_TAGS[:2])}.")
    names = _tag_names(tags, column, features)
    if any(str(token).split() not in ([], [str(token)]) for token in tokens):
        raise BadDocument("bad_field", "a token contains white space; expected words without it.")
    lines = "".join(f"{token}\t{tag}\n" for token, tag in zip(tokens, names, strict=True))
    source = open_stream(io.BytesIO(f"-DOCSTART- (row)\n\n{lines}".encode()), name, tally)
    (doc,) = conll.read(source, tally=tally)
    return Document(name, doc.passages, doc.spans)


def _tag_names(tags: Sequence[Any], column: str, features: Features) -> list[str]:
    if all(isinstance(tag, str) for tag in tags):
        return list(tags)
    names = class_names(features, column)
    if not all(isinstance(tag, int) and 0 <= tag < len(names) for tag in tags):
        raise BadDocument(
            "unknown_label",
            f"{column} has integers that {'have no names' if not names else f'are not below {len(names)}'}; expected "
            "names in the schema or in a dataset_info.json beside the file. Add it, or store the tags as strings.",
        )
    return [names[tag] for tag in tags]


def _label_names(label: Any, column: str, features: Features, tally: Tally) -> Any:
    """The names of labels; an integer without a name stays, and -1 is no label."""
    names = class_names(features, column)
    if isinstance(label, list):
        return [_label_names(one, column, features, tally) for one in label]
    if names and isinstance(label, int) and not isinstance(label, bool):
        if label == _NO_LABEL:
            tally.note("row without a label")
            return None
        if not 0 <= label < len(names):
            raise BadDocument("unknown_label", f"{column} is {label}; expected 0 to {len(names) - 1}.")
        return names[label]
    return label


def _from_squad(row: Row, name: str) -> Document:
    """A row in SQuAD's form: a question on a context, with answers as two lists."""
    answers = row.get("answers") or {}
    texts, starts = answers.get("text") or [], answers.get("answer_start") or []
    if starts and len(starts) != len(texts):
        raise BadDocument(
            "bad_field", f"answers has {len(texts)} texts and {len(starts)} starts; expected a start for each, or none."
        )
    # Answers without starts are searched in the text; no answers at all mean that the question is unanswerable.
    parsed = tuple(Answer(text, start) for text, start in zip(texts, starts or [None] * len(texts), strict=True))
    title = row.get("title")
    passage = Passage(0, row["context"], section=(title,) if title else ())
    question = Question(name, row["question"], answers=parsed, impossible=not parsed and row.get("answers") is not None)
    return Document(name, (passage,), questions=(question,))


def _from_bigbio(row: Row, name: str) -> Document:
    """A row in BigBIO's kb schema: passages, entities and relations with document offsets."""
    passages = tuple(
        Passage(passage["offsets"][0][0], passage["text"][0], passage.get("type") or "paragraph")
        for passage in row["passages"]
    )
    plain = Document(name, passages)
    spans = []
    for entity in row["entities"]:
        parts = tuple((start, end) for start, end in entity["offsets"])
        text = " ".join(plain.slice(start, end) for start, end in parts)
        if text.split() != " ".join(entity["text"]).split():
            raise BadDocument(
                "offset_mismatch",
                f"entity {entity['id']!r} has the text {entity['text']}; the text at {parts} is {text!r}.",
            )
        spans.append(Span(entity["id"], entity["type"], parts, text))
    relations = tuple(
        Relation(one["id"], one["type"], (Argument("Arg1", one["arg1_id"]), Argument("Arg2", one["arg2_id"])))
        for one in row.get("relations") or ()
    )
    return Document(name, passages, tuple(spans), relations)
