#!/usr/bin/env python3
"""Everything before train.py: weights, vocabulary, token arrays.

  convert    ONNX export of a BERT encoder  -> Hugging Face folder, checked against onnxruntime
  scan       corpus + benchmarks            -> ids of documents that quote dev/test text; new words for the vocabulary
  vocab      folder + new words             -> folder whose never-used vocabulary slots hold biomedical words
  tokenize   corpus shards (.jsonl.xz)      -> flat uint16 token arrays
"""
import argparse, collections, itertools, json, lzma, multiprocessing, re
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from train import SETS, Bert, arguments, pack, read_conll

BENCHMARK_SOURCES = {"pubmedqa", "hoc", "anatem", "craft", "medical_abstracts_tc", "ohsumed23"}


def convert(a):
    """The export keeps biases, norms and embeddings under their own names; each MatMul's weight is found through the
    bias of the Add that follows it and transposed back."""
    import onnx, onnxruntime
    from onnx import numpy_helper
    graph = onnx.load(Path(a.onnx_dir, "onnx", "model.onnx")).graph
    init = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    matmul = {n.output[0]: n.input[1] for n in graph.node if n.op_type == "MatMul" and n.input[1] in init}
    sd = {"bert." + k: v for k, v in init.items() if not k.startswith("onnx::")}
    for n in graph.node:
        bias = next((i for i in n.input if i.endswith(".bias") and i in init), None)
        weight = next((matmul[i] for i in n.input if i in matmul), None)
        if n.op_type == "Add" and bias and weight:
            sd["bert." + bias[:-4] + "weight"] = init[weight].T.contiguous()
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    keep = ("hidden_size intermediate_size layer_norm_eps max_position_embeddings num_attention_heads num_hidden_layers "
            "type_vocab_size vocab_size hidden_act initializer_range pad_token_id model_type hidden_dropout_prob "
            "attention_probs_dropout_prob position_embedding_type").split()
    source = json.loads(Path(a.onnx_dir, "config.json").read_text())
    config = {"architectures": ["BertForMaskedLM"], "torch_dtype": "bfloat16"} | {k: source[k] for k in keep}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tok = Tokenizer.from_file(str(Path(a.onnx_dir, "tokenizer.json")))
    tok.no_padding(), tok.no_truncation()  # the export pads everything to 128
    tok.save(str(out / "tokenizer.json"))
    write_vocab(tok, out)
    save_file(sd, out / "model.safetensors", metadata={"format": "pt"})
    assert {n for _, ns in Bert.load(out).names() for n in ([ns] if isinstance(ns, str) else ns)} - set(sd) <= {
        f"cls.predictions.{n}" for n in ("bias", "transform.dense.weight", "transform.dense.bias",
                                         "transform.LayerNorm.weight", "transform.LayerNorm.bias")}, "weights missing"
    model, worst = Bert.load(out).eval(), 0.0
    session = onnxruntime.InferenceSession(str(Path(a.onnx_dir, "onnx", "model.onnx")))
    texts = ["Aspirin inhibits COX-1.", "Mutations in BRCA1 predispose women to breast and ovarian cancer. " * 8]
    enc = [tok.encode(t).ids for t in texts]
    with torch.no_grad():
        ids, pos, cu, _ = pack(enc)
        ours = model(ids, pos, cu, 512).split([len(e) for e in enc])
    for e, o in zip(enc, ours):
        e = np.array([e])
        ref = session.run(None, {"input_ids": e, "attention_mask": e * 0 + 1, "token_type_ids": e * 0})[0][0]
        worst = max(worst, float((o - torch.from_numpy(ref)).norm() / np.linalg.norm(ref)))
    print(f"relative difference from onnxruntime: {worst:.1e}")
    assert worst < 1e-4


def write_vocab(tok, out):
    Path(out, "vocab.txt").write_text("".join(f"{t}\n" for t, _ in sorted(tok.get_vocab().items(), key=lambda x: x[1])))
    special = dict(unk_token="[UNK]", sep_token="[SEP]", pad_token="[PAD]", cls_token="[CLS]", mask_token="[MASK]")
    Path(out, "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")
    Path(out, "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="BertTokenizer", do_lower_case=True, model_max_length=512, clean_up_tokenization_spaces=True,
        strip_accents=None, tokenize_chinese_chars=True, **special), indent=2) + "\n")


def documents(path):
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as f:
        for line in f:
            d = json.loads(line)
            if d["source"] not in BENCHMARK_SOURCES:
                yield d


def scan(a):
    """One pass over the corpus: which documents quote a dev/test sentence, and how often each word occurs."""
    key, sentences, words_re = 24, collections.defaultdict(set), re.compile(r"[^\W_]+")
    for name, split in itertools.product(SETS, ("devel", "test")):
        for words, _ in read_conll(Path(a.bench, name, split + ".tsv.xz")):
            toks = words_re.findall(" ".join(words).lower())
            s = "".join(toks)
            if len(toks) >= 8 and len(s) >= key:
                sentences[s[:key]].add(s)
    hits, tf, df = collections.defaultdict(set), collections.Counter(), collections.Counter()
    for path in sorted(Path(a.corpus).glob("*/*.jsonl.xz")):
        for d in documents(path):
            words = words_re.findall((d["title"] + "\n" + d["text"]).lower())
            stream, at = "".join(words), 0
            for w in words:
                k = stream[at:at + key]
                if k in sentences:
                    for s in sentences[k]:
                        if stream.startswith(s, at):
                            hits[s].add(d["id"])
                at += len(w)
            df.update(set(words))
            for _ in range(a.abstract_weight if path.parent.name == "abstracts" else 1):
                tf.update(words)
        print(path.name, len(tf), len(hits), flush=True)
    out = Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    # a sentence that many documents share ("no competing interests") is boilerplate, not a leak
    drop = sorted({i for s, ids in hits.items() if len(ids) <= a.boilerplate for i in ids})
    (out / "drop.txt").write_text("".join(f"{i}\n" for i in drop))
    (out / "hits.json").write_text(json.dumps({s: sorted(ids) for s, ids in hits.items()}, indent=0))
    tok = Tokenizer.from_file(str(Path(a.model, "tokenizer.json")))
    all_words, used, gain = list(tf), collections.Counter(), []
    for w, e in zip(all_words, tok.encode_batch(all_words, add_special_tokens=False)):
        for t in e.tokens:
            used[t] += tf[w]
        if len(e.tokens) > 1 and w.isascii() and w.isalpha() and df[w] >= a.min_df:
            gain.append(((len(e.tokens) - 1) * tf[w], w))
    new = [w for _, w in sorted(gain, reverse=True)]
    free = []  # slots nobody uses: [unused99...], letters of other scripts, words the corpus never has
    for t, i in sorted(tok.get_vocab().items(), key=lambda x: x[1]):
        core = t.removeprefix("##")
        if (t.startswith("[unused") and int(t[7:-1]) >= 99) or (
                not used[t] and core.isalpha() and (len(core) >= 3 or not core.isascii() and i > 1996)):
            free.append(t)
    n = min(a.new, len(free), len(new))
    saved, total = sum(g for g, _ in sorted(gain, reverse=True)[:n]), sum(used.values())
    (out / "words.tsv").write_text("".join(f"{w}\t{t}\n" for w, t in zip(new[:n], free)))
    print(f"{len(drop)} documents to drop; {len(free)} free slots, {n} new words save {saved / total:.1%} of {total} pieces")


def vocab(a):
    """Put new words into free slots; a new word's vector is the mean of the pieces it was cut into before."""
    pairs = [l.split("\t") for l in Path(a.words).read_text().splitlines()]
    tok = Tokenizer.from_file(str(Path(a.model, "tokenizer.json")))
    model, old = Bert.load(a.model), tok.get_vocab()
    state, table = json.loads(tok.to_str()), model.word.weight.detach().clone()
    with torch.no_grad():
        for new, slot in pairs:
            model.word.weight[old[slot]] = table[tok.encode(new, add_special_tokens=False).ids].mean(0)
            state["model"]["vocab"][new] = state["model"]["vocab"].pop(slot)
    state["model"]["vocab"] = dict(sorted(state["model"]["vocab"].items(), key=lambda x: x[1]))
    tok = Tokenizer.from_str(json.dumps(state))
    model.save(a.out, a.model, torch.float32)
    tok.save(str(Path(a.out, "tokenizer.json")))
    write_vocab(tok, a.out)


def tokenize_shard(job):
    path, stripe, stripes, tokenizer, drop, out = job
    tok, ids, ends, texts = Tokenizer.from_file(tokenizer), [], [], []
    for i, d in enumerate(documents(path)):
        if i % stripes == stripe and d["id"] not in drop:
            texts.append(d["title"] + "\n" + d["text"])
    for t in texts:
        ids.append(np.array(tok.encode(t, add_special_tokens=False).ids, dtype=np.uint16))
        ends.append(len(ids[-1]))
    name = Path(out, f"{Path(path).name.split('.')[0]}.{stripe}")
    np.save(f"{name}.ends.npy", np.cumsum(ends, dtype=np.int64))
    np.save(f"{name}.ids.npy", np.concatenate(ids))  # written last: its presence marks the shard as complete
    return Path(path).parent.name, len(ends), int(sum(ends)), sum(len(t.split()) for t in texts)


def tokenize(a):
    Path(a.out).mkdir(parents=True, exist_ok=True)
    drop = set(Path(a.drop).read_text().split("\n"))
    jobs = [(str(f), s, a.stripes, str(Path(a.model, "tokenizer.json")), drop, a.out) for f in a.files for s in range(a.stripes)]
    groups = collections.defaultdict(lambda: np.zeros(3, int))
    with multiprocessing.Pool(a.workers) as pool:
        for group, *n in pool.imap_unordered(tokenize_shard, jobs):
            groups[group] += n
    counts = {g: dict(zip(("documents", "tokens", "words"), map(int, n))) for g, n in groups.items()}
    Path(a.out, f"counts-{Path(a.files[0]).name.split('.')[0]}.json").write_text(json.dumps(counts))
    print(json.dumps(counts))


if __name__ == "__main__":
    args = arguments(
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter),
        (convert, dict(onnx_dir=None, out=None)),
        (scan, dict(corpus=None, bench=None, model=None, out=None, new=4000, min_df=25, abstract_weight=3, boilerplate=10)),
        (vocab, dict(model=None, words=None, out=None)),
        (tokenize, dict(files=[], model=None, drop=None, out=None, stripes=4, workers=16)))
    args.run(args)
