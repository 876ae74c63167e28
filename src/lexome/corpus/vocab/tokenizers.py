"""Tokenizers: loading one of any known kind, and training of WordPiece, byte-level BPE and SentencePiece.

Training is deterministic: the same documents and settings give the same pieces.
"""

import hashlib
import io
import json
import re
import string
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexome.errors import FormatError, MissingExtraError, RecipeError

TOKENIZER_FILE = "tokenizer.json"

# The names of GPT-2's two files, vocabulary and merges; also with a prefix, as in gpt2.vocab.bpe.
PAIRS = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))

# The special tokens of BERT and RoBERTa, by role.
SPECIAL_NAMES = {
    "unk_token": ("[UNK]", "<unk>"),
    "sep_token": ("[SEP]", "</s>"),
    "pad_token": ("[PAD]", "<pad>"),
    "cls_token": ("[CLS]", "<s>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def tokenizer_sha256(path: Path) -> str:
    """The identity of a tokenizer: SHA-256 of its tokenizer.json."""
    file = path / TOKENIZER_FILE if path.is_dir() else path
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        message = f"{file}: cannot be read ({error.strerror}); expected a tokenizer folder."
        raise FormatError(message, code="unreadable-file", value=file) from error


def load_tokenizer(path: Path, *, cased: bool | None = None) -> Any:
    """A tokenizers.Tokenizer from a tokenizer folder or a single file of any known kind.

    Whether a vocab.txt is cased is inferred from its capital letters unless given.
    """
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder. Check the path.", code="missing-file", value=path)
    file = _file_of(path)
    try:
        if file.suffix == ".txt" and file.name != "merges.txt" and not file.name.endswith(".merges.txt"):
            return _from_vocab_txt(file, cased)
        partner = _partner(file)
        return _from_json(file) if partner is None else _from_pair(*partner)
    except MissingExtraError:
        raise
    except Exception as error:  # the library raises bare Exception
        raise FormatError(f"{file}: not a readable tokenizer ({error}).", code="bad-tokenizer", value=file) from error


def _file_of(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in (TOKENIZER_FILE, "vocab.txt", "vocab.json", "encoder.json"):
        if (path / name).is_file():
            return path / name
    message = f"{path}: has none of {TOKENIZER_FILE}, vocab.txt, vocab.json and encoder.json."
    raise FormatError(message, code="missing-tokenizer", value=path)


def _partner(file: Path) -> tuple[Path, Path] | None:
    """GPT-2's two files, if this is one of them."""
    for pair in PAIRS:
        for name in pair:
            if file.name == name or file.name.endswith(f".{name}"):
                prefix = file.name.removesuffix(name)
                vocabulary, merges = (file.with_name(prefix + part) for part in pair)
                return vocabulary, merges
    return None


def _from_json(file: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("tokenizers", extra="corpus", purpose="reading a tokenizer") from None
    tokenizer = Tokenizer.from_file(str(file))
    # A stored length limit would truncate texts.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _from_vocab_txt(file: Path, cased: bool | None) -> Any:
    pieces = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    if "[UNK]" not in vocabulary:
        raise ValueError("no piece [UNK] among its lines; expected a WordPiece vocabulary, one piece a line")
    return bert_tokenizer(vocabulary, cased=cased if cased is not None else looks_cased(vocabulary))


def looks_cased(pieces: Collection[str]) -> bool:
    """Whether more than 1% of the pieces have a capital letter.

    BERT's cased vocabulary has 28%. Uncased ones have some too: the special tokens, and 42 of SciBERT's 31,090 pieces.
    """
    return sum(piece != piece.lower() for piece in pieces) > len(pieces) / 100


def _from_pair(vocabulary: Path, merges: Path) -> Any:
    from tokenizers.models import BPE

    pieces = json.loads(vocabulary.read_text(encoding="utf-8"))
    lines = merges.read_text(encoding="utf-8").split("\n")
    pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    return roberta_tokenizer(BPE(pieces, [(left, right) for left, right in pairs]))


def vocab_size(tokenizer: Any) -> int:
    """Rows of the embedding matrix: the highest id plus one, which exceeds the number of pieces if ids are skipped."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1


def unknown_id(tokenizer: Any) -> int | None:
    """The id of the unknown token; None if the vocabulary covers everything."""
    for token in ("[UNK]", "<unk>"):
        if (number := tokenizer.token_to_id(token)) is not None:
            return int(number)
    return None


def special_by_name(tokenizer: Any) -> dict[str, str]:
    """The special tokens of a tokenizer by role.

    If it has both names of a role, the one marked special counts: MPNet has an untrained [CLS] beside its <s>.
    """
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    by_role = {}
    for role, names in SPECIAL_NAMES.items():
        there = [name for name in names if tokenizer.token_to_id(name) is not None]
        if there:
            by_role[role] = min(there, key=lambda name: name not in special)
    unknown = getattr(tokenizer.model, "unk_token", None)
    if unknown is not None and tokenizer.token_to_id(unknown) is not None:
        by_role["unk_token"] = unknown
    return by_role


def special_token_template(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """The ids that a tokenizer adds before, between and after two texts; None if it adds none."""
    encoding = tokenizer.encode("a", "a")
    marks = list(encoding.special_tokens_mask)
    texts = [place for place, special in enumerate(marks) if not special]
    cut = next((place for place in range(texts[0], texts[-1]) if marks[place]), None) if texts else None
    if cut is None:
        return None
    again = next(place for place in texts if place > cut)
    ids = encoding.ids
    return tuple(ids[: texts[0]]), tuple(ids[cut:again]), tuple(ids[texts[-1] + 1 :])


# Training

Array = npt.NDArray[np.int64]

# SentencePiece's default of 16 would split hydroxychloroquine.
LONGEST_PIECE = 32

# SentencePiece's own default.
MOST_SEEDS = 1_000_000

# Floating-point sums depend on the number of threads, so it is fixed.
THREADS = 8

# Words are pre-tokenized and normalized here; every character of the alphabet is covered.
SENTENCEPIECE_SETTINGS: dict[str, Any] = {
    "model_type": "unigram",
    "input_format": "tsv",
    "hard_vocab_limit": False,
    "character_coverage": 1.0,
    "normalization_rule_name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "split_by_unicode_script": False,
    "split_by_number": False,
    "max_sentencepiece_length": LONGEST_PIECE,
    "num_threads": THREADS,
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": 2,
    "eos_id": 3,
    "minloglevel": 2,
}

# Odd multipliers for 64-bit hashing.
SPREAD, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def unigram_pieces(
    words: Counter[str], *, alphabet: list[str], size: int, special: tuple[str, ...]
) -> list[tuple[str, float]]:
    """Pieces with their scores: `special` first (padding, unknown, begin, end, mask), the rest by score.

    Training is on word counts, so that the text is never held in memory. SentencePiece would then weigh single
    characters by the text but longer candidates by the word list, and prefer spelling: 4.4 pieces per word for the
    chemicals of BC5CDR, where 3.3 suffice at the same size. So the seed pieces are counted here.
    """
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtraError("sentencepiece", extra="corpus", purpose="a unigram vocabulary") from None
    known = sorted(_restrict_to_alphabet(words, alphabet).items())
    pad, unknown, begin, end, mask = special
    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seeds.tsv"
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{piece}\t{score}\n" for piece, score in seed_pieces(known))
        sentencepiece.SentencePieceTrainer.train(
            # Word counts; first each character of the alphabet, since some are not in the text.
            sentence_iterator=(f"{text}\t{count}" for text, count in (*((char, 1) for char in alphabet), *known)),
            model_writer=written,
            seed_sentencepieces_file=str(file),
            vocab_size=size,
            pad_piece=pad,
            unk_piece=unknown,
            bos_piece=begin,
            eos_piece=end,
            control_symbols=[mask],
            **SENTENCEPIECE_SETTINGS,
        )
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(model.get_piece_size())]
    return _add_missing_characters(pieces, alphabet, size)


def _add_missing_characters(pieces: list[tuple[str, float]], alphabet: list[str], size: int) -> list[tuple[str, float]]:
    """Add missing characters of the alphabet in place of the least likely longer pieces.

    SentencePiece compares its character coverage with 1.0 in single precision, so that in a text of more than 16
    million characters it drops the rarest (♀ in the first one tried).
    """
    known = {piece for piece, _ in pieces}
    missing = [char for char in alphabet if char not in known]
    longer = [place for place, (piece, score) in enumerate(pieces) if len(piece) > 1 and score]
    surplus = set(longer[max(0, len(longer) - max(0, len(pieces) + len(missing) - size)) :]) if missing else set()
    lowest = min(score for _, score in pieces)
    kept = [piece for place, piece in enumerate(pieces) if place not in surplus]
    return kept + [(char, lowest) for char in missing]


def seed_pieces(words: list[tuple[str, int]], *, longest: int = LONGEST_PIECE) -> list[tuple[str, int]]:
    """Repeated substrings of two and more characters, scored by the text they cover.

    A substring that is always followed by the same character is replaced by the longer one.
    """
    text = "".join(word for word, _ in words)
    lengths = np.array([len(word) for word, _ in words], np.int64)
    weights: Array = np.repeat(np.array([count for _, count in words], np.int64), lengths)
    ends: Array = np.repeat(np.cumsum(lengths), lengths)
    repeated = [part for part in _repeated_substrings(text, weights, ends, longest) if part[1] > 1 and len(part[0])]
    if not repeated:
        return []
    places = np.concatenate([part[0] for part in repeated])
    sizes = np.concatenate([np.full(len(part[0]), part[1]) for part in repeated])
    scores = np.concatenate([part[2] for part in repeated]) * sizes
    order = np.lexsort((sizes, places, -scores))[:MOST_SEEDS]
    return [
        (text[place : place + size], int(score))
        for place, size, score in zip(places[order], sizes[order], scores[order], strict=True)
    ]


def _repeated_substrings(text: str, weights: Array, ends: Array, longest: int) -> Iterator[tuple[Array, int, Array]]:
    """The first positions and counts of repeated substrings, by length.

    Substrings are compared by a rolling 64-bit hash. The probability that any two of ten million collide is about one
    in 400,000.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64)
    places: Array = np.arange(len(codes))
    hashes = codes * SPREAD
    counts = np.zeros(len(codes), np.int64)
    before: tuple[Array, Array] | None = None
    for length in range(1, longest + 2):
        if length > 1:
            fits = places + length <= ends[places]
            places = places[fits]
            hashes = (hashes[fits] ^ (hashes[fits] >> np.uint64(29))) * MIX + codes[places + length - 1] * SPREAD
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        total = np.bincount(group, weights[places], minlength=len(first)).astype(np.int64)
        counts[:] = 0
        counts[places] = total[group]
        if before is not None:
            at, seen = before
            # Equally frequent with one more character: it never occurs without it.
            kept = (seen > 1) & (counts[at] != seen)
            yield at[kept], length - 1, seen[kept]
        before = places[first], total
        # A substring that occurs once has no repeated extension.
        again = total[group] > 1
        places, hashes = places[again], hashes[again]


def _restrict_to_alphabet(words: Counter[str], alphabet: list[str]) -> Counter[str]:
    """The words, split at characters outside the alphabet."""
    outside = re.compile(f"[^{re.escape(''.join(alphabet))}]+")
    kept: Counter[str] = Counter()
    for word, count in words.items():
        for part in outside.split(word):
            if part:
                kept[part] += count
    return kept


Documents = Callable[[], Iterable[list[str]]]

GREEK = "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔΕΖΗΘΙΚΛΜΝΞΟΠΡΣΤΥΦΧΨΩς"
SYMBOLS = "♂♀±×÷·≤≥≈≠∼−∞µ°′″‰→←↑↓↔Δ∆Å®™©†‡§•–—‘’“”…€£¼½¾⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻₀₁₂₃₄₅₆₇₈₉"

# Always kept: a vocabulary trained on a thousand abstracts must still spell the next one.
ALWAYS = dict.fromkeys(string.ascii_letters + string.digits + string.punctuation + GREEK + SYMBOLS)

BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

# SentencePiece's word-start marker. Punctuation is separate, as in WordPiece, but letters and digits may share a piece:
# SentencePiece's own splitting would cut CYP3A4 into four and TNFα into two.
WORD_START = "▁"
WORDS = rf"{WORD_START}?[^\p{{P}}\p{{S}}\s]+|{WORD_START}?[\p{{P}}\p{{S}}]|{WORD_START}"


@dataclass(frozen=True)
class VocabSettings:
    """The settings that training needs."""

    size: int
    cased: bool
    min_frequency: int
    alphabet: int


def learn_wordpiece(documents: Documents, setting: VocabSettings) -> Any:
    """A WordPiece tokenizer with BERT's special tokens.

    The trainer of the tokenizers library numbers ##-characters in hash-map order and breaks ties between pairs by these
    numbers, so that no two runs agree. Here they are passed in order as special tokens, and the vocabulary is rebuilt
    afterwards.
    """
    tokenizers = _tokenizers()
    normalizer = tokenizers.normalizers.BertNormalizer(lowercase=not setting.cased, strip_accents=not setting.cased)
    splitter = tokenizers.pre_tokenizers.BertPreTokenizer()
    alphabet = _alphabet(documents(), normalizer, setting)
    inner = [f"##{char}" for char in alphabet if len(splitter.pre_tokenize_str(f"a{char}a")) == 1]
    _check_size(setting, len(BERT_SPECIAL) + len(alphabet) + len(inner))
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    learner.normalizer, learner.pre_tokenizer = normalizer, splitter
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=setting.size,
        min_frequency=setting.min_frequency,
        special_tokens=[*BERT_SPECIAL, *inner],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator(documents(), trainer)
    pieces = [*BERT_SPECIAL, *alphabet, *inner]
    known = learner.get_vocab(with_added_tokens=True)
    pieces += sorted(known.keys() - set(pieces), key=known.__getitem__)
    return bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=setting.cased)


def bert_tokenizer(vocabulary: dict[str, int], *, cased: bool) -> Any:
    """BERT's tokenizer with this WordPiece vocabulary."""
    tokenizers = _tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=not cased, strip_accents=not cased)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece(prefix="##")
    _add_special(tokenizer, [token for token in BERT_SPECIAL if token in vocabulary])
    if {"[CLS]", "[SEP]"} <= vocabulary.keys():
        tokenizer.post_processor = _pairs_template(tokenizer)
    return tokenizer


def learn_byte_bpe(documents: Documents, setting: VocabSettings) -> Any:
    """A byte-level BPE tokenizer with RoBERTa's special tokens, in the order of Hugging Face's examples."""
    tokenizers = _tokenizers()
    _check_size(setting, len(ROBERTA_SPECIAL) + 256)
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=setting.size,
        min_frequency=setting.min_frequency,
        special_tokens=list(ROBERTA_SPECIAL),
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(documents(), trainer)
    return roberta_tokenizer(learner.model)


def roberta_tokenizer(model: Any) -> Any:
    """RoBERTa's tokenizer with this byte-level BPE model; special tokens only if the model has them."""
    tokenizers = _tokenizers()
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    if all(tokenizer.token_to_id(token) is not None for token in ROBERTA_SPECIAL):
        _add_special(tokenizer, ROBERTA_SPECIAL)
        sep, cls = (("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
        tokenizer.post_processor = tokenizers.processors.RobertaProcessing(sep, cls, add_prefix_space=False)
    return tokenizer


def learn_sentencepiece_bpe(documents: Documents, setting: VocabSettings) -> Any:
    """A BPE tokenizer over words with their leading space, as SentencePiece's."""
    tokenizers = _tokenizers()
    tokenizer = _sentencepiece_tokenizer(tokenizers.models.BPE(unk_token="[UNK]"), setting)
    alphabet = _alphabet(documents(), tokenizer.normalizer, setting)
    _check_size(setting, len(BERT_SPECIAL) + len(alphabet))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=setting.size,
        min_frequency=setting.min_frequency,
        special_tokens=list(BERT_SPECIAL),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents(), trainer)
    return _add_special_template(tokenizer)


def learn_sentencepiece_unigram(documents: Documents, setting: VocabSettings) -> Any:
    """A unigram tokenizer, trained by the sentencepiece library on word counts.

    The unigram trainer of the tokenizers library is not deterministic; sentencepiece's is.
    """
    tokenizers = _tokenizers()
    tokenizer = _sentencepiece_tokenizer(tokenizers.models.Unigram([("[UNK]", 0.0)], 0, False), setting)
    words = _counted_words(documents(), tokenizer)
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for char in word:
            characters[char] += count
    alphabet = _most_frequent(characters, setting, tokenizer.normalizer)
    _check_size(setting, len(BERT_SPECIAL) + len(alphabet))
    pieces = unigram_pieces(words, alphabet=alphabet, size=setting.size, special=BERT_SPECIAL)
    tokenizer.model = tokenizers.models.Unigram(pieces, BERT_SPECIAL.index("[UNK]"), False)
    return _add_special_template(tokenizer)


LEARNERS: dict[str, Callable[[Documents, VocabSettings], Any]] = {
    "wordpiece": learn_wordpiece,
    "byte-bpe": learn_byte_bpe,
    "sentencepiece-bpe": learn_sentencepiece_bpe,
    "sentencepiece-unigram": learn_sentencepiece_unigram,
}


def _tokenizers() -> Any:
    try:
        import tokenizers
        import tokenizers.models
        import tokenizers.trainers
    except ImportError:
        raise MissingExtraError("tokenizers", extra="corpus", purpose="a vocabulary") from None
    return tokenizers


def _check_size(setting: VocabSettings, needed: int) -> None:
    if needed > setting.size:
        raise RecipeError(
            f"size is {setting.size:,}, but special tokens and single characters alone take {needed:,}. "
            "Increase size, or decrease alphabet.",
            code="vocabulary-too-small",
            value=setting.size,
        )


def _alphabet(documents: Iterable[list[str]], normalizer: Any, setting: VocabSettings) -> list[str]:
    """The characters to keep, sorted by code point."""
    counts: Counter[str] = Counter()
    for texts in documents:
        for text in texts:
            counts.update(text)
    # Apart from NFC both normalizers work on single characters, so counting before normalizing is equivalent.
    changed: Counter[str] = Counter()
    for char, count in counts.items():
        for part in normalizer.normalize_str(char):
            changed[part] += count
    return _most_frequent(changed, setting, normalizer)


def _most_frequent(counts: Counter[str], setting: VocabSettings, normalizer: Any) -> list[str]:
    """The most frequent characters, ties by code point, and those always kept."""
    ranked = sorted((char for char in counts if not char.isspace()), key=lambda char: (-counts[char], char))
    always = {part for char in ALWAYS for part in normalizer.normalize_str(char) if not part.isspace()}
    return sorted(always.union(ranked[: setting.alphabet]))


def _sentencepiece_tokenizer(model: Any, setting: VocabSettings) -> Any:
    """A tokenizer that splits text into words with a leading marker; characters change only by NFC.

    SentencePiece's NFKC would turn 10² into 102 and µ into μ.
    """
    tokenizers = _tokenizers()
    normalizers = tokenizers.normalizers
    tokenizer = tokenizers.Tokenizer(model)
    steps = [normalizers.NFC(), *([] if setting.cased else [normalizers.Lowercase()])]
    steps += [normalizers.Replace(tokenizers.Regex(r"\s+"), " "), normalizers.Strip()]
    steps += [normalizers.Prepend(WORD_START), normalizers.Replace(" ", WORD_START)]
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated")
    tokenizer.decoder = tokenizers.decoders.Metaspace(WORD_START)
    return tokenizer


def _add_special_template(tokenizer: Any) -> Any:
    _add_special(tokenizer, BERT_SPECIAL)
    tokenizer.post_processor = _pairs_template(tokenizer)
    return tokenizer


def _add_special(tokenizer: Any, tokens: Iterable[str]) -> None:
    from tokenizers import AddedToken

    # RoBERTa's <mask> absorbs the space before it.
    tokenizer.add_special_tokens([AddedToken(token, lstrip=token == "<mask>", special=True) for token in tokens])


def _pairs_template(tokenizer: Any) -> Any:
    tokenizers = _tokenizers()
    return tokenizers.processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )


def _counted_words(documents: Iterable[list[str]], tokenizer: Any) -> Counter[str]:
    """Word counts after the tokenizer's pre-tokenization.

    White-space-separated strings are counted first, so that each distinct one is split only once.
    """
    stretches: Counter[str] = Counter()
    for texts in documents:
        for text in texts:
            stretches.update(text.split())
    words: Counter[str] = Counter()
    while stretches:
        stretch, count = stretches.popitem()
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(stretch)):
            words[word] += count
    return words
