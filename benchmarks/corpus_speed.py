"""Throughput of corpus processing: sharding compared with tokenizers' encode_batch, masking, near duplicates.

    python benchmarks/corpus_speed.py [FOLDER]

FOLDER is a corpus built by `lexome build recipes/corpus/shared.toml`; the default is build/corpus. Rounds alternate
between sharding and encode_batch on the same text, one core each, and the ratio is the median over rounds, since
machines are noisy; encode_batch has its text in memory, sharding reads Parquet and writes files. Near duplicates are
removed among three numbers of abstracts, each twice the previous one. Writes results/corpus_speed.json.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

# One core for everything that is compared; must be set before the library starts its threads.
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

import lexome
from facts import facts
from lexome.corpus import dedup
from lexome.corpus.masking import Masking, Vocabulary, mask, mask_rng
from lexome.corpus.pairs import pack_sentences
from lexome.corpus.records import read_texts
from lexome.corpus.shards import Shard, ShardSettings, open_shards, shard_file, shard_paths
from lexome.pipeline import Engine, Job
from lexome.recipe.corpus_stages import ShardRecipe
from real_data import DATA

ROOT = Path(__file__).resolve().parents[1]
VOCABS = DATA / "vocabs"
ROUNDS = 7
SPEED_CHARACTERS = 8_000_000
BATCH_TOKENS = 65_536
SIZES = (10_000, 20_000, 40_000)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "corpus"
    records = sorted((folder / "records").rglob("*.parquet"))
    if not records:
        sys.exit(f"{folder}: no records; run `lexome build recipes/corpus/shared.toml` first")
    with tempfile.TemporaryDirectory() as scratch:
        sample = sampled(records, Path(scratch) / "sample.parquet")
        result = {
            "facts": facts("tokenizers", "numpy", "pyarrow", "rensa"),
            "sharding": {
                name: sharding(tokenizer, sample, Path(scratch) / name) for name, tokenizer in tokenizers().items()
            },
            "masking": masking(sample, Path(scratch)),
            "near_duplicates": near_duplicates(folder / "records" / "abstracts"),
        }
    path = ROOT / "results" / "corpus_speed.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def sampled(records: list[Path], out: Path) -> Path:
    """A sample of documents from every records file, in one file."""
    docs = []
    for path in records:
        size = 0
        for doc in lexome.read(path):
            docs.append(doc)
            size += sum(len(passage.text) for passage in doc.passages)
            if size > SPEED_CHARACTERS / len(records):
                break
    lexome.write(out, docs)
    return out


def tokenizers() -> dict[str, Tokenizer]:
    """BERT's cased WordPiece and RoBERTa's byte-level BPE."""
    wordpiece = Tokenizer(models.WordPiece.from_file(str(VOCABS / "bert_base_cased.vocab.txt"), unk_token="[UNK]"))
    wordpiece.normalizer = normalizers.BertNormalizer(lowercase=False)
    wordpiece.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    wordpiece.decoder = decoders.WordPiece()
    wordpiece.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    pair = (str(VOCABS / "gpt2_roberta.encoder.json"), str(VOCABS / "gpt2_roberta.vocab.bpe"))
    byte_bpe = Tokenizer(models.BPE.from_file(*pair))
    byte_bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return {"wordpiece": wordpiece, "byte_bpe": byte_bpe}


def sharding(tokenizer: Tokenizer, sample: Path, folder: Path) -> dict[str, Any]:
    """Tokens per second of a whole sharding job and of encode_batch on the same passages, and bytes per token."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    passages = [passage.text for doc in lexome.read(sample) for passage in doc.passages]
    outputs = tuple(path for part in ("train", "held_out") for path in shard_paths(folder / part, "sample"))
    for path in outputs:
        path.parent.mkdir(exist_ok=True)
    job = Job("sample", (sample,), outputs, ShardSettings(folder / "tokenizer.json", None, 0.0, 0))
    report: dict[str, Any] = {}

    def ours() -> None:
        report.update(shard_file(job, outputs, lambda _: None))

    def theirs() -> None:
        for begin in range(0, len(passages), 1000):
            tokenizer.encode_batch(passages[begin : begin + 1000], add_special_tokens=False)

    ours()
    rounds = [(seconds(ours), seconds(theirs)) for _ in range(ROUNDS)]
    tokens = report["train"]["tokens"]
    on_disk = sum(path.stat().st_size for path in outputs)
    return {
        "characters": sum(map(len, passages)),
        "tokens": tokens,
        "lexome_tokens_per_s": round(tokens / statistics.median(mine for mine, _ in rounds)),
        "encode_batch_tokens_per_s": round(tokens / statistics.median(other for _, other in rounds)),
        "ratio": round(statistics.median(other / mine for mine, other in rounds), 2),
        "ratios": [round(other / mine, 2) for mine, other in rounds],
        "bytes_per_token": round(on_disk / tokens, 3),
    }


def masking(sample: Path, folder: Path) -> dict[str, Any]:
    """Tokens per second of masking packed batches of real sequences, including random number generation."""
    recipe = ShardRecipe(stage="shard", inputs=(sample,), tokenizer=folder / "wordpiece", out=folder / "shards")
    from lexome.corpus.shards import shard

    shard(recipe, engine=Engine(workers=0), progress_shown=False)
    (one,) = open_shards(folder / "shards").train
    tokenizer = json.loads((folder / "shards" / "tokenizer.json").read_text())
    vocabulary = Vocabulary.of(tokenizer)
    batches = packed(one)
    tokens = sum(len(ids) for ids, _ in batches)
    rates = {}
    for unit in ("token", "word", "span"):
        setting = Masking(unit=unit, rate=0.15)

        def run(setting: Masking = setting) -> None:
            for number, (ids, ends) in enumerate(batches):
                mask(ids, ends, vocabulary, setting, mask_rng(0, 0, number))

        run()
        rates[unit] = round(tokens / statistics.median(seconds(run) for _ in range(ROUNDS)))
    return {"batch_tokens": BATCH_TOKENS, "tokens_per_s": rates}


def packed(shard: Shard) -> list[tuple[Any, Any]]:
    """Batches of whole sequences of up to 512 tokens."""
    cut = pack_sentences(shard.document_ends.astype(np.int64), shard.sentence_ends.astype(np.int64), 510)
    ids = np.asarray(shard.tokens)
    batches = []
    begin = 0
    for end in range(1, len(cut.ends) + 1):
        if end == len(cut.ends) or cut.ends[end] - cut.starts[begin] > BATCH_TOKENS:
            first = cut.starts[begin]
            batches.append((ids[first : cut.ends[end - 1]], cut.ends[begin:end] - first))
            begin = end
    return batches


def near_duplicates(folder: Path) -> list[dict[str, Any]]:
    """Seconds to find near duplicates among growing numbers of abstracts, a tenth of which have a near copy."""
    whole = (text for path in sorted(folder.glob("*.parquet")) for text in read_texts((path,)))
    words = [dedup.words_of(" ".join(text.pieces)) for text in islice(whole, max(SIZES) * 10 // 11)]
    found = []
    for size in SIZES:
        originals = words[: size * 10 // 11]
        copies = [[*text[:-1], "changed"] for text in originals[:: len(originals) // (size - len(originals))]]
        docs = (originals + copies)[:size]
        elapsed = [seconds(lambda docs=docs: removed(docs)) for _ in range(3)]
        found.append(
            {
                "documents": size,
                "words": sum(map(len, docs)),
                "removed": removed(docs),
                "seconds": round(statistics.median(elapsed), 2),
                "us_per_word": round(statistics.median(elapsed) / sum(map(len, docs)) * 1e6, 3),
            }
        )
    return found


def removed(docs: list[list[str]]) -> int:
    """The number of near duplicates of earlier documents, found by the stages of a build."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "one.keys.npz"
        hashes = dedup.word_hashes(docs)
        rows = dedup.signatures([dedup.shingle_hashes(text, 5) for text in hashes], permutations=128)
        bands = dedup.band_hashes(rows, 16)
        columns = {f"band_{number}": bands[:, number] for number in range(16)}
        dedup.signature_path(path).write_bytes(rows.astype(dedup.SIGNATURE).tobytes())
        np.savez(path, row=np.arange(len(docs)), permutations=np.array(128), **columns)
        verdicts = np.zeros(len(docs), np.uint8)
        pairs = np.concatenate([dedup.candidate_pairs([path], number, verdicts) for number in range(16)])
        dedup.drop_near_duplicates(verdicts, pairs, [path], similarity=0.8)
        return int((verdicts == dedup.Verdict.NEAR_DUPLICATE).sum())


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one run."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
