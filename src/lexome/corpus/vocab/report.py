"""vocab-report: compare vocabularies by how they fragment text and entity names (fertility)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lexome.corpus.vocab.learn import open_texts
from lexome.corpus.vocab.tokenizers import GREEK, SYMBOLS, load_tokenizer, unknown_id
from lexome.document import Document
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_plot, write_json
from lexome.formats import read

# For files without tokens: letters and digits together, every other character separately.
WORD = re.compile(r"\w+|[^\w\s]")

# Examples are chosen among the most frequent names.
FREQUENT = 300


@dataclass
class Fragmentation:
    """Counts of words, pieces and unknown pieces."""

    words: int = 0
    pieces: int = 0
    unknown: int = 0
    characters: int = 0

    def add(self, ids: Sequence[int], unknown: int | None, *, words: int, characters: int) -> None:
        """Add a text."""
        self.words += words
        self.pieces += len(ids)
        self.unknown += 0 if unknown is None else ids.count(unknown)
        self.characters += characters

    def measures(self) -> dict[str, float | int]:
        """Counts and ratios; 0 if nothing was counted."""
        return {
            "words": self.words,
            "pieces": self.pieces,
            "pieces_per_word": round(self.pieces / max(self.words, 1), 4),
            "characters_per_piece": round(self.characters / max(self.pieces, 1), 4),
            "unknown_rate": round(self.unknown / max(self.pieces, 1), 6),
        }


@dataclass
class VocabStats:
    """The statistics of one vocabulary."""

    name: str
    pieces: int
    symbols_whole: int
    symbols_spelled: int
    symbols_unknown: str
    text: Fragmentation = field(default_factory=Fragmentation)
    entities: dict[str, Fragmentation] = field(default_factory=dict)


@dataclass(frozen=True)
class VocabReport:
    """Statistics of vocabularies on the same text and names, with example segmentations."""

    vocabularies: tuple[VocabStats, ...]
    examples: dict[str, dict[str, list[str]]]

    def as_table(self) -> str:
        """The report as text: one vocabulary per line, examples below."""
        sets = list(self.vocabularies[0].entities)
        head = ["vocabulary", "pieces", "pieces/word", "chars/piece", "unknown", *sets, "symbols"]
        lines = [head, *(self._line(row, sets) for row in self.vocabularies)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        for name, broken in self.examples.items():
            width = max(map(len, broken))
            shown += ["", name, *(f"  {who.ljust(width)}  {' '.join(pieces)}" for who, pieces in broken.items())]
        return "\n".join(line.rstrip() for line in shown)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-serializable values."""
        rows = [
            {
                **asdict(row),
                "text": row.text.measures(),
                "entities": {name: broken.measures() for name, broken in row.entities.items()},
            }
            for row in self.vocabularies
        ]
        return {"vocabularies": rows, "symbols": GREEK + SYMBOLS, "examples": self.examples}

    def write_json(self, path: Path) -> None:
        """Write `as_dict` to a file."""
        write_json(path, self.as_dict())

    @staticmethod
    def _line(row: VocabStats, sets: list[str]) -> list[str]:
        text = row.text.measures()
        seen = row.text.words > 0
        every = Fragmentation(
            pieces=row.text.pieces + sum(broken.pieces for broken in row.entities.values()),
            unknown=row.text.unknown + sum(broken.unknown for broken in row.entities.values()),
        )
        return [
            row.name,
            f"{row.pieces:,}",
            f"{text['pieces_per_word']:.3f}" if seen else "-",
            f"{text['characters_per_piece']:.2f}" if seen else "-",
            f"{every.measures()['unknown_rate']:.4%}",
            *(f"{row.entities[name].measures()['pieces_per_word']:.3f}" for name in sets),
            f"{row.symbols_whole} whole, {row.symbols_spelled} spelled, {len(row.symbols_unknown)} unknown",
        ]


def vocab_report(
    vocabularies: Mapping[str, Path],
    *,
    ner: Mapping[str, Path] | None = None,
    texts: Sequence[Path] = (),
    cased: Mapping[str, bool] | None = None,
    examples: int = 6,
    progress_shown: bool = True,
) -> VocabReport:
    """Compare vocabularies.

    `ner` are annotated datasets, `texts` any text files. Names are tokenized as they occur in running text; words are
    the tokens of the file if it has any, as in CoNLL. `cased` states whether a vocab.txt is cased.
    """
    if not vocabularies:
        raise UsageError("no vocabulary given; expected at least one NAME=PATH.", code="no-vocabulary")
    cased = cased or {}
    strangers = cased.keys() - vocabularies.keys()
    if strangers:
        message = f"casing given for {', '.join(sorted(strangers))}, but there is no such vocabulary."
        raise UsageError(message, code="unknown-vocabulary", value=sorted(strangers)[0])
    loaded = {name: load_tokenizer(path, cased=cased.get(name)) for name, path in vocabularies.items()}
    rows = {name: _symbol_coverage(name, tokenizer) for name, tokenizer in loaded.items()}
    if texts:
        _measure_text(loaded, rows, texts, progress_shown)
    mentions: Counter[str] = Counter()
    for name, path in (ner or {}).items():
        _measure_entities(loaded, rows, mentions, (name, path))
    return VocabReport(tuple(rows.values()), _examples(loaded, mentions, examples))


def named_paths(arguments: Iterable[str], *, what: str = "vocabulary") -> dict[str, Path]:
    """NAME=PATH arguments as a mapping; a path alone is named by its last part."""
    named: dict[str, Path] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals:
            name, path = Path(argument).name or argument, argument
        if not (name and path):
            raise UsageError(f"{argument!r}: expected NAME=PATH for a {what}.", code="name-path", value=argument)
        if name in named:
            raise UsageError(
                f"name {name!r} is given twice; use different names with NAME=PATH.", code="duplicate-name", value=name
            )
        named[name] = Path(path)
    return named


def mention_words(documents: Iterable[Document]) -> Iterator[tuple[str, int]]:
    """Each mention's text and how many words it has."""
    for doc in documents:
        tokens = [token for passage in doc.passages for token in passage.tokens]
        for span in doc.spans:
            inside = sum(start < end and any(a <= start and end <= b for a, b in span.parts) for start, end in tokens)
            yield span.text, inside or len(WORD.findall(span.text))


def _symbol_coverage(name: str, tokenizer: Any) -> VocabStats:
    """The statistics that need no text: the size, and the coverage of symbols."""
    whole = spelled = 0
    lost = ""
    unknown = unknown_id(tokenizer)
    for symbol in GREEK + SYMBOLS:
        ids = tokenizer.encode(f" {symbol}", add_special_tokens=False).ids
        normalized = tokenizer.normalizer.normalize_str(symbol) if tokenizer.normalizer else symbol
        if not ids or unknown in ids:
            lost += symbol
        elif any(tokenizer.decode([one]).strip() == normalized.strip("▁ ") for one in ids):
            whole += 1
        else:
            spelled += 1
    return VocabStats(name, tokenizer.get_vocab_size(), whole, spelled, lost)


def _measure_text(
    loaded: Mapping[str, Any], rows: Mapping[str, VocabStats], paths: Sequence[Path], progress_shown: bool
) -> None:
    for texts in open_texts(paths).documents("measuring", progress_shown=progress_shown):
        extents = [(len(WORD.findall(text)), len(text)) for text in texts]
        for name, tokenizer in loaded.items():
            unknown = unknown_id(tokenizer)
            encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            for one, (words, characters) in zip(encoded, extents, strict=True):
                rows[name].text.add(one.ids, unknown, words=words, characters=characters)


def _measure_entities(
    loaded: Mapping[str, Any], rows: Mapping[str, VocabStats], mentions: Counter[str], ner: tuple[str, Path]
) -> None:
    set_name, path = ner
    counted = Counter(mention_words(read(path)))
    if not counted:
        message = f"{path}: no annotated entities; expected annotated documents, such as CoNLL files."
        raise FormatError(message, code="no-entities", value=path)
    for (text, _), count in counted.items():
        mentions[text] += count
    for name, tokenizer in loaded.items():
        broken = rows[name].entities[set_name] = Fragmentation()
        unknown = unknown_id(tokenizer)
        for (text, words), count in counted.items():
            # A space before it, as in running text: byte-level vocabularies have other pieces for the start of a text.
            ids = tokenizer.encode(f" {text}", add_special_tokens=False).ids
            broken.add(ids * count, unknown, words=words * count, characters=len(text) * count)


def _examples(loaded: Mapping[str, Any], mentions: Counter[str], wanted: int) -> dict[str, dict[str, list[str]]]:
    """Frequent names, starting with those that the vocabularies split most differently."""
    frequent = sorted(mentions, key=lambda name: (-mentions[name], name))[:FREQUENT]
    broken = {name: {who: _pieces(tokenizer, name) for who, tokenizer in loaded.items()} for name in frequent}

    def spread(name: str) -> int:
        lengths = [len(pieces) for pieces in broken[name].values()]
        return max(lengths) - min(lengths)

    # A stable sort: the more frequent name comes first among equals.
    return {name: broken[name] for name in sorted(frequent, key=spread, reverse=True)[:wanted]}


def _pieces(tokenizer: Any, name: str) -> list[str]:
    """The pieces of a name as text, those of byte-level vocabularies decoded from their bytes."""
    encoded = tokenizer.encode(f" {name}", add_special_tokens=False)
    if not any("Ġ" in token for token in encoded.tokens):
        return list(encoded.tokens)
    return [tokenizer.decode([number]).replace(" ", "▁") for number in encoded.ids]


ENDINGS = (".svg", ".png", ".pdf")


def plot(report: VocabReport, path: Path) -> None:
    """Plot tokens per word in the text and in each dataset's entities; lower is better."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"{path}: unknown image format; expected one of {', '.join(ENDINGS)}.", code="image-format", value=path
        )
    groups = _bar_groups(report)
    # Room for bar labels and for the legend.
    width = max(5.0, 1 + len(groups) * (0.4 + 0.36 * len(report.vocabularies)))
    with atomic_plot(path, size=(width, 4)) as figure:
        _bars(figure.subplots(), groups, [row.name for row in report.vocabularies])
        figure.legend(loc="outside upper center", ncols=max(2, int(width / 1.8)), frameon=False, fontsize=8)


def _bar_groups(report: VocabReport) -> dict[str, list[float]]:
    """The bars of the plot: one height per vocabulary, for each set of names and for the text if there was any."""
    rows = [{"text": row.text, **row.entities} for row in report.vocabularies]
    names = [name for name in rows[0] if name != "text" or rows[0]["text"].words]
    if not names:
        raise UsageError("nothing to plot: the report has neither text nor entities.", code="nothing-to-plot")
    return {name: [row[name].measures()["pieces_per_word"] for row in rows] for name in names}


def _bars(axes: Any, groups: dict[str, list[float]], names: list[str]) -> None:
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [place + (number - (len(names) - 1) / 2) * width for place in range(len(groups))]
        bars = axes.bar(places, [heights[number] for heights in groups.values()], width * 0.95, label=name)
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=2)
    axes.axhline(1, color="0.5", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel("pieces per word")
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
