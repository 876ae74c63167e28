#!/usr/bin/env python3
"""Continued pre-training of a small BERT on biomedical text inside a fixed number of GPU minutes, and the fixed
fine-tuning protocol (named-entity recognition) that judges it.  Needs torch >= 2.11, tokenizers, safetensors, numpy.

  pretrain   folder + token arrays          -> folder (whole-word masking, packed sequences, Muon + AdamW, no dropout)
  finetune   folder + benchmarks            -> entity F1 per set (first-piece labels, B/I/O, no checkpoint selection)
  together   the same protocol with all runs in one process, each step a CUDA graph: 416 steps a second instead of 165

prepare.py makes the folder and the token arrays.
"""
import argparse, collections, contextlib, copy, itertools, json, lzma, math, multiprocessing, os, shutil, time
from pathlib import Path

os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # one hardware queue for each stream
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch.nn.attention.varlen import varlen_attn

SETS = ["NCBI-disease", "BC5CDR-disease", "BC5CDR-chem", "BC2GM", "JNLPBA", "linnaeus", "s800"]
UNK, CLS, SEP, MASK, FULL_STOP = 100, 101, 102, 103, 1012  # ids in BERT's uncased vocabulary
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# ------------------------------------------------------------------------------------------------ model
def attend(q, k, v, cu, max_len):
    """Bidirectional attention over sequences laid end to end; cu holds their boundaries. q, k, v: (tokens, heads, dim)."""
    if q.is_cuda:
        return varlen_attn(q, k, v, cu, cu, max_len, max_len)
    seq = torch.bucketize(torch.arange(len(q)), cu[1:].long(), right=True)  # CPU: one block-diagonal mask, for tests
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seq[:, None] == seq[None])[0].transpose(0, 1)


class Layer(nn.Module):
    def __init__(self, dim, ffn, heads, eps, dropout):
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, ffn), nn.Linear(ffn, dim)
        self.ln1, self.ln2 = nn.LayerNorm(dim, eps), nn.LayerNorm(dim, eps)

    def forward(self, x, cu, max_len: int):
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
        h = self.out(attend(q, k, v, cu, max_len).flatten(1))
        x = self.ln1(x + self.drop(h)).type_as(h)  # under autocast the residual stream stays in bfloat16
        h = self.down(F.gelu(self.up(x)))
        return self.ln2(x + self.drop(h)).type_as(h)


class Bert(nn.Module):
    """BERT with fused q/k/v and packed inputs; reads and writes Hugging Face's BertForMaskedLM names."""

    def __init__(self, config, dropout=0.0):
        super().__init__()
        dim, eps = config["hidden_size"], config["layer_norm_eps"]
        self.config, self.rows = config, -(-config["vocab_size"] // 64) * 64  # padded for aligned matrix products
        self.word, self.pos = nn.Embedding(self.rows, dim), nn.Embedding(config["max_position_embeddings"], dim)
        self.kind, self.ln, self.drop = nn.Embedding(2, dim), nn.LayerNorm(dim, eps), nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(dim, config["intermediate_size"], config["num_attention_heads"], eps, dropout)
                                    for _ in range(config["num_hidden_layers"]))
        self.head, self.head_ln = nn.Linear(dim, dim), nn.LayerNorm(dim, eps)
        self.bias = nn.Parameter(torch.zeros(self.rows))
        nn.init.normal_(self.word.weight, std=0.02), nn.init.normal_(self.head.weight, std=0.02), nn.init.zeros_(self.head.bias)

    def forward(self, ids, pos, cu, max_len):
        x = self.drop(self.ln(self.word(ids) + self.pos(pos) + self.kind.weight[0]))
        if torch.is_autocast_enabled(x.device.type):
            x = x.bfloat16()
        for layer in self.layers:
            x = layer(x, cu, max_len)
        return x

    def mlm_loss(self, x, labels):
        x = self.head_ln(F.gelu(self.head(x)))
        return F.cross_entropy(F.linear(x, self.word.weight, self.bias).float(), labels, ignore_index=-100)

    def names(self):
        """(our tensor, its Hugging Face name(s)); a list of three names stands for the fused q/k/v."""
        yield self.word.weight, "bert.embeddings.word_embeddings.weight"
        yield self.pos.weight, "bert.embeddings.position_embeddings.weight"
        yield self.kind.weight, "bert.embeddings.token_type_embeddings.weight"
        yield self.bias, "cls.predictions.bias"
        pairs = [(self.ln, "bert.embeddings.LayerNorm"), (self.head, "cls.predictions.transform.dense"),
                 (self.head_ln, "cls.predictions.transform.LayerNorm")]
        for i, l in enumerate(self.layers):
            p = f"bert.encoder.layer.{i}."
            pairs += [(l.qkv, [p + f"attention.self.{n}" for n in ("query", "key", "value")]),
                      (l.out, p + "attention.output.dense"), (l.ln1, p + "attention.output.LayerNorm"),
                      (l.up, p + "intermediate.dense"), (l.down, p + "output.dense"), (l.ln2, p + "output.LayerNorm")]
        for module, name in pairs:
            for part in ("weight", "bias"):
                yield getattr(module, part), [f"{n}.{part}" for n in name] if isinstance(name, list) else f"{name}.{part}"

    @classmethod
    def load(cls, folder, dropout=0.0):
        model, sd = cls(json.loads(Path(folder, "config.json").read_text()), dropout), load_file(Path(folder, "model.safetensors"))
        with torch.no_grad():
            for t, name in model.names():
                if isinstance(name, list):
                    t.copy_(torch.cat([sd[n].float() for n in name]))
                elif name in sd:  # a missing MLM head stays fresh
                    if t is model.bias:  # the padded rows are no words; added after the second run
                        t.fill_(-1e4)
                    t[:len(sd[name])] = sd[name].float()
        return model

    def save(self, folder, like, dtype=torch.bfloat16):
        """Write a folder that transformers loads; tokenizer and config files are copied from the folder `like`."""
        folder, sd = Path(folder), {}
        folder.mkdir(parents=True, exist_ok=True)
        for t, name in self.names():
            t = t.detach()[:self.config["vocab_size"]] if len(t) == self.rows else t.detach()
            for n, part in zip(name, t.chunk(3)) if isinstance(name, list) else [(name, t)]:
                sd[n] = part.to(dtype).cpu().contiguous().clone()
        save_file(sd, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")
        for f in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
            shutil.copyfile(Path(like, f), folder / f)


# ------------------------------------------------------------------------------------------------ pre-training
class Batches(torch.utils.data.IterableDataset):
    """Endless batches of exactly `size` tokens: documents are cut at sentence ends into sequences of up to 128, 256 or
    512 tokens (64 too, in training), shuffled over the pass, laid end to end, and a share of their words is masked."""

    def __init__(self, folder, tokenizer, size, rate, repeat, heldout, seed, now=None, heads=0):
        self.now, self.heads = now, heads  # the masking rate of the moment, shared with the workers; extra readings of openings
        self.shares = {128: 0.35, 256: 0.35, 512: 0.30} if heldout else {64: 0.10, 128: 0.30, 256: 0.30, 512: 0.30}
        self.files = sorted(str(f) for f in Path(folder).glob("*.ids.npy"))
        self.size, self.rate, self.repeat, self.heldout, self.seed = size, rate, repeat, heldout, seed
        self.lengths, self.max_seqs, self.targets = tuple(self.shares), size // 80, int(size * rate) // 64 * 64
        v = [t for t, _ in sorted(Tokenizer.from_file(tokenizer).get_vocab().items(), key=lambda x: x[1])]
        self.vocab, self.cont = len(v), np.array([t.startswith("##") for t in v])
        self.no_end = self.cont | np.array([t[0].isdigit() for t in v])  # a full stop before these ends no sentence

    def cut(self, ids, ends, docs, rng, opening=False):
        share = np.array(list(self.shares.values())) / np.array(self.lengths)  # of the tokens, by target length
        for d in docs:
            at, end = int(ends[d - 1]) if d else 0, int(ends[d])
            end = min(end, at + 400) if opening else end  # an article's abstract comes first
            text = ids[at:end]
            stops = at + 1 + np.flatnonzero((text[:-1] == FULL_STOP) & ~self.no_end[text[1:]])
            for n in rng.choice(self.lengths, p=share / share.sum(), size=(end - at) // (40 if self.heldout else 24) + 1):
                if end - at < 40:
                    break
                stop = min(at + int(n) - 2, end)
                if stop < end and (k := np.searchsorted(stops, stop, "right")) and stops[k - 1] >= at + n // 2:
                    stop = int(stops[k - 1])
                yield at, stop
                at = stop

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        me, workers = (info.id, info.num_workers) if info else (0, 1)
        rng = np.random.default_rng([self.seed, me])
        data = [(np.load(f), np.load(f.replace(".ids.", ".ends."))) for f in self.files]
        ids, total = [], 0
        while True:
            pieces = []
            for f, (tokens, ends) in enumerate(data):
                docs = np.arange(len(ends))
                docs = docs[((docs % 200 == 0) == self.heldout) & ((docs + f) % workers == me)]
                for _ in range(self.repeat.get(Path(self.files[f]).name.split("-")[0], 1) if not self.heldout else 1):
                    pieces += [(f, s, e) for s, e in self.cut(tokens, ends, docs, rng)]
                if not self.heldout and Path(self.files[f]).name.startswith(("elife", "pmc")):
                    for _ in range(self.heads):
                        pieces += [(f, s, e) for s, e in self.cut(tokens, ends, docs, rng, True)]
            for f, s, e in rng.permutation(pieces):
                ids.append(np.concatenate(([CLS], data[f][0][s:e], [SEP])))
                total += e - s + 2
                if total >= self.size:
                    yield self.batch(ids, rng)
                    ids, total = [], 0

    def batch(self, seqs, rng):
        cu = np.minimum(np.cumsum([0] + [len(s) for s in seqs]), self.size)
        x = np.concatenate(seqs)[:self.size].astype(np.int64)
        if len(cu) > self.max_seqs + 1:  # too many short sequences: run the second half of the batch together
            cu = np.r_[cu[:self.max_seqs // 2], np.arange(cu[self.max_seqs // 2], self.size, 512), self.size]
        pos = np.arange(self.size) - np.repeat(cu[:-1], np.diff(cu))
        cu = np.pad(cu, (0, self.max_seqs + 1 - len(cu)), constant_values=self.size).astype(np.int32)
        special = (x == CLS) | (x == SEP) | (x == UNK)
        word = np.cumsum(~self.cont[x]) - 1
        chosen = (rng.random(word[-1] + 1) < (self.now.value if self.now else self.rate))[word] & ~special
        idx = np.flatnonzero(chosen)[:self.targets]
        labels, r = x[idx], rng.random(len(idx))
        x[idx[r < 0.8]] = MASK
        x[idx[r >= 0.9]] = rng.integers(1996, self.vocab, int((r >= 0.9).sum()))
        short = self.targets - len(idx)
        return tuple(map(torch.from_numpy, (x, pos, cu, np.pad(idx, (0, short)), np.pad(labels, (0, short), constant_values=-100))))


class Muon:
    """Momentum orthogonalised by five Newton-Schulz steps, for the layers' matrices; same-shaped ones go together.
    Updates are scaled to AdamW's usual size (0.2 per weight), so both optimisers share one learning rate."""

    def __init__(self, matrices, decay, momentum=0.95):
        shapes = collections.defaultdict(list)
        for m in matrices:  # q, k and v are orthogonalised apart
            shapes[m.shape[-1], m.shape[-1] if m.shape[0] == 3 * m.shape[1] else m.shape[0]].append(m)
        self.decay, self.momentum = decay, momentum
        self.groups = [(ms, rows, cols, torch.zeros(sum(m.shape[0] // rows for m in ms), rows, cols, device=ms[0].device))
                       for (cols, rows), ms in shapes.items()]

    @torch.no_grad()
    def step(self, lr):
        for ms, rows, cols, buf in self.groups:
            g = torch.cat([m.grad.view(-1, rows, cols) for m in ms])
            buf.lerp_(g, 1 - self.momentum)
            x = g.lerp(buf, self.momentum).to(torch.bfloat16 if g.is_cuda else torch.float32)
            x = x.mT if rows > cols else x
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                s = x @ x.mT
                x = 3.4445 * x + (-4.7750 * s + 2.0315 * s @ s) @ x
            x = (x.mT if rows > cols else x).reshape(-1, cols).float()
            torch._foreach_mul_(ms, 1 - lr * self.decay)
            torch._foreach_add_(ms, list(x.split([m.shape[0] for m in ms])), alpha=-lr * 0.2 * math.sqrt(max(rows, cols)))


def pretrain(a):
    torch.manual_seed(a.seed), torch.set_float32_matmul_precision("high")
    model = Bert.load(a.model).to(DEVICE)
    repeat = {k: int(v) for k, v in (r.split("=") for r in a.repeat)}
    now_rate = torch.multiprocessing.Value("d", a.rate)
    make = lambda heldout: Batches(a.tokens, str(Path(a.model, "tokenizer.json")), a.batch, 0.27 if heldout else a.rate, repeat, heldout,
                                   1 if heldout else a.seed, None if heldout else now_rate, a.heads)
    data = iter(torch.utils.data.DataLoader(make(False), batch_size=None, num_workers=a.workers, pin_memory=DEVICE == "cuda",
                                            prefetch_factor=8 if a.workers else None))
    heldout = [tuple(t.to(DEVICE) for t in b) for b in itertools.islice(iter(make(True)), a.eval_batches)]
    if not model.bias.any():  # a fresh output bias starts at the words' frequencies
        counts = np.concatenate([np.load(f, mmap_mode="r")[:2_000_000] for f in make(False).files])
        counts = np.bincount(counts, minlength=model.rows) + 1.0
        model.bias.data.copy_(torch.from_numpy(np.log(counts / counts.sum())))
    matrices = [w for l in model.layers for w in (l.qkv.weight, l.out.weight, l.up.weight, l.down.weight)]
    rest = [p for p in model.parameters() if not any(p is m for m in matrices)]  # embeddings, norms, biases: no decay
    muon = Muon(matrices, a.decay) if a.optimizer == "muon" else None
    groups = [{"params": rest, "weight_decay": 0.0}] + ([] if muon else [{"params": matrices, "weight_decay": a.decay}])
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), eps=1e-8, fused=DEVICE == "cuda")
    head = model.mlm_loss
    if DEVICE == "cuda" and not a.eager:  # one layer is compiled and reused twelve times: seconds, not minutes
        torch._dynamo.config.recompile_limit = 64
        for layer in model.layers:
            layer.compile(dynamic=False)
        head = torch.compile(head, dynamic=False)

    def loss_of(batch):
        ids, pos, cu, idx, labels = (t.to(DEVICE, non_blocking=True) for t in batch)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            return head(model(ids, pos, cu, 512).index_select(0, idx), labels)

    def evaluate():
        with torch.no_grad():
            return sum(loss_of(b).item() for b in heldout) / len(heldout)

    for _ in range(2):  # compile outside the clock, training path and evaluation path
        loss_of(next(data)).backward()
        model.zero_grad()
    print("held-out loss at the start", evaluate(), flush=True)
    log, out = [], Path(a.out)
    out.mkdir(parents=True, exist_ok=True)
    start, budget, step, done, saved, last = time.time(), a.minutes * 60, 0, 0.0, 0.0, 0.0
    while done < 1:
        now_rate.value = a.rate + (a.rate_end - a.rate) * min(done, 1.0)
        lr = a.lr * min(1.0, done / a.warmup, (1 - done) / (1 - a.warmup))  # of wall-clock time: up, then linearly to 0
        loss = loss_of(next(data))
        loss.backward()
        nn.utils.clip_grad_norm_(rest if muon else model.parameters(), 1.0)
        for g in adam.param_groups:
            g["lr"] = lr
        adam.step(), muon and muon.step(lr)
        model.zero_grad()
        step += 1
        if step % 10 == 0 or a.max_steps:
            value, now = loss.item(), time.time() - start  # .item() also keeps the host from running ahead of the GPU
            done = step / a.max_steps if a.max_steps else now / budget
            if now - last > budget / 100 or done >= 1:
                row = dict(step=step, tokens=step * a.batch, loss=round(value, 4), lr=lr, elapsed=round(now, 1),
                           tokens_per_s=round(step * a.batch / now))
                if now - saved > a.save_every or done >= 1:
                    row["heldout_loss"], saved = round(evaluate(), 4), now
                    model.save(out, a.model)
                log, last = log + [json.dumps(row)], now
                print(log[-1], flush=True)
                (out / "log.jsonl").write_text("\n".join(log) + "\n")


# ------------------------------------------------------------------------------------------------ fine-tuning
def read_conll(path):
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as f:
        for block in f.read().split("\n\n"):
            rows = [l.split("\t") for l in block.split("\n") if l.strip()]
            if rows:
                yield [r[0] for r in rows], [r[-1][0] for r in rows]


def pack(seqs):
    lens = [len(s) for s in seqs]
    cu = torch.tensor([0] + lens).cumsum(0).int()
    return torch.tensor(sum(seqs, [])), torch.cat([torch.arange(n) for n in lens]), cu, max(lens)


def spans(tags):
    """Entities as conlleval counts them: B, or I after O, opens one."""
    found, start = set(), None
    for i, t in enumerate(tags + ["O"]):
        if t != "I" and start is not None:
            found, start = found | {(start, i)}, None
        if t == "B" or t == "I" and start is None:
            start = i
    return found


def finetune_one(job):
    a, name, lr, seed = job
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    began, tok, rng = time.time(), Tokenizer.from_file(str(Path(a.model, "tokenizer.json"))), np.random.default_rng(seed)

    def encode(split):  # -> (piece ids, index of each word's first piece, tags); words past 510 pieces are read as O
        rows = list(read_conll(Path(a.bench, name, split + ".tsv.xz")))[:a.limit]
        for (words, tags), e in zip(rows, tok.encode_batch([w for w, _ in rows], is_pretokenized=True)):
            w, ids = e.word_ids, e.ids[:511] + [SEP] if len(e.ids) > 512 else e.ids
            firsts = {}
            for i in range(1, len(ids) - 1):
                firsts.setdefault(w[i], i)
            yield ids, firsts, tags

    train = list(encode("train"))
    model = Bert.load(a.model, dropout=0.1)
    model.classifier = nn.Linear(model.config["hidden_size"], 3)
    nn.init.normal_(model.classifier.weight, std=0.02)
    model.to(DEVICE)
    params = [p for n, p in model.named_parameters() if not n.startswith(("head", "bias"))]
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.01, fused=DEVICE == "cuda")
    steps, step = a.epochs * -(-len(train) // a.batch), 0

    def logits(rows):
        ids, pos, cu, longest = pack([r[0] for r in rows])
        idx = torch.tensor([s + p for s, r in zip(cu.tolist(), rows) for p in r[1].values()], device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda"):
            return model.classifier(model(ids.to(DEVICE), pos.to(DEVICE), cu.to(DEVICE), longest).index_select(0, idx)).float()

    for _ in range(a.epochs):
        order = rng.permutation(len(train))
        for i in range(0, len(order), a.batch):
            rows = [train[j] for j in order[i:i + a.batch]]
            gold = torch.tensor(["BIO".index(r[2][w]) for r in rows for w in r[1]], device=DEVICE)
            opt.param_groups[0]["lr"] = lr * min(step / (0.1 * steps), (steps - step) / (0.9 * steps))
            F.cross_entropy(logits(rows), gold).backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            opt.step(), opt.zero_grad()
            step += 1
    result = dict(set=name, lr=lr, seed=seed, steps=steps)
    model.eval()
    for split in ["devel"] + ["test"] * a.test:
        data, tp, n_gold, n_pred = list(encode(split)), 0, 0, 0
        for i in range(0, len(data), 128):
            with torch.no_grad():
                flat = iter(logits(data[i:i + 128]).argmax(-1).tolist())
            for _, firsts, tags in data[i:i + 128]:
                pred = ["O"] * len(tags)
                for w in firsts:
                    pred[w] = "BIO"[next(flat)]
                g, p = spans(tags), spans(pred)
                tp, n_gold, n_pred = tp + len(g & p), n_gold + len(g), n_pred + len(p)
        result[split] = round(200 * tp / max(n_gold + n_pred, 1), 2)
    return result | {"seconds": round(time.time() - began, 1)}


def finetune(a):
    """All sets at once, one process each: a single small model leaves most of the GPU idle."""
    jobs = [(a, s, lr, seed) for s in a.sets for lr in a.lr for seed in a.seeds]
    jobs.sort(key=lambda j: -Path(a.bench, j[1], "train.tsv.xz").stat().st_size)  # the longest first
    results, out = [], Path(a.out)
    with torch.multiprocessing.get_context("spawn").Pool(min(len(jobs), a.processes)) as pool:
        for r in pool.imap_unordered(finetune_one, jobs, 1):
            results.append(r)
            print(json.dumps(r), flush=True)
            out.write_text(json.dumps(results, indent=0) + "\n")
    for lr, split in itertools.product(a.lr, ["devel"] + ["test"] * a.test):
        f = [r[split] for r in results if r["lr"] == lr]
        print(f"{a.model} lr {lr} {split} mean F1 {np.mean(f):.2f} over {len(f)} runs", flush=True)


# ------------------------------------------------------------------------------------------------ fine-tuning, many models at once
def encoded(job):
    """One set's rows (ids, [(first pieces, tags) of each sentence]), sentence by sentence or joined to `join` pieces."""
    a, name, split = job
    tok = Tokenizer.from_file(str(Path(a.model, "tokenizer.json")))
    rows, out = list(read_conll(Path(a.bench, name, split + ".tsv.xz")))[:a.limit], []
    for (words, tags), e in zip(rows, tok.encode_batch([w for w, _ in rows], is_pretokenized=True)):
        w, ids = e.word_ids, e.ids[:511] + [SEP] if len(e.ids) > 512 else e.ids
        firsts = {}
        for i in range(1, len(ids) - 1):
            firsts.setdefault(w[i], i)
        if out and len(out[-1][0]) + len(ids) - 2 <= a.join:
            ids0, parts = out[-1]
            out[-1] = ids0[:-1] + ids[1:], parts + [({k: v + len(ids0) - 2 for k, v in firsts.items()}, tags)]
        else:
            out.append((ids, [(firsts, tags)]))
    return out


def flat(rows, size=0):
    """ids, pos, idx, gold, cu of rows laid end to end; with `size`, padded to it by unlabelled sequences of their own."""
    lens = [len(r[0]) for r in rows]
    at = np.cumsum([0] + lens)
    ids = np.concatenate([r[0] for r in rows])
    idx = np.concatenate([np.fromiter(f.values(), int, len(f)) + s for s, r in zip(at, rows) for f, _ in r[1]])
    gold = np.array(["BIO".index(t[w]) for r in rows for f, t in r[1] for w in f])
    pos = np.arange(at[-1]) - np.repeat(at[:-1], lens)
    if not size:
        return ids, pos, idx, gold, at
    n = size - at[-1]
    cu = np.concatenate([at, np.minimum(at[-1] + 128 * np.arange(1, 3), size)])
    pad = lambda x, v: np.pad(x, (0, size - len(x)), constant_values=v)
    return pad(ids, 0), np.concatenate([pos, np.arange(n) % 128]), pad(idx, 0), pad(gold, -100), cu


def planned(job):
    """Every batch of one run, as int32 rows grouped by padded size: {size: array}, order [(size, row)], longest sequence."""
    a, train, seed = job
    rng, table, order = np.random.default_rng(seed), collections.defaultdict(list), []
    for _ in range(a.epochs):
        perm = rng.permutation(len(train))
        for i in range(0, len(perm), a.batch):
            rows = [train[j] for j in perm[i:i + a.batch]]
            size = -(-sum(len(r[0]) for r in rows) // 256) * 256
            ids, pos, idx, gold, cu = flat(rows, size)
            cu = np.pad(cu, (0, a.batch + 3 - len(cu)), constant_values=size)
            order.append((size, len(table[size])))
            table[size].append(np.concatenate([ids, pos, idx, gold, cu]).astype(np.int32))
    return {k: np.stack(v) for k, v in table.items()}, order, max(128, max(len(r[0]) for r in train))


class Run:
    """One fine-tuning; on a GPU each padded size's step is captured once as a CUDA graph and replayed on the run's own stream."""

    def __init__(self, a, name, lr, seed, base, plan):
        torch.manual_seed(seed)
        self.a, self.name, self.lr, self.seed, self.at = a, name, lr, seed, 0
        tables, self.order, self.longest = plan
        self.model = copy.deepcopy(base).train()
        self.model.classifier = nn.Linear(base.config["hidden_size"], 3)
        nn.init.normal_(self.model.classifier.weight, std=0.02)
        self.model.to(DEVICE)
        self.tables = {k: torch.from_numpy(v).to(DEVICE) for k, v in tables.items()}
        self.params = [p for n, p in self.model.named_parameters() if not n.startswith(("head", "bias"))]
        cuda, groups = DEVICE == "cuda", collections.defaultdict(list)
        for n, p in self.model.named_parameters():
            if not n.startswith(("head", "bias")):  # with a.layer_decay < 1, lower layers learn more slowly
                depth = int(n.split(".")[1]) + 1 if n.startswith("layers.") else 99 if n.startswith("classifier") else 0
                groups[1.0 if depth == 99 else a.layer_decay ** (len(base.layers) - depth)].append(p)
        self.scales = list(groups)
        self.opt = torch.optim.AdamW([dict(params=ps, lr=torch.zeros((), device=DEVICE) if cuda else 0.0) for ps in groups.values()],
                                     weight_decay=0.01, fused=cuda, capturable=cuda)
        self.graphs, self.input = {}, {k: torch.zeros_like(t[0]) for k, t in self.tables.items()}
        if cuda:
            self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
            self.rate(0.0)
            with torch.cuda.stream(self.stream):
                self.stream.wait_stream(torch.cuda.default_stream())
                for k in self.tables:  # lazy initialisation happens here, at rate 0
                    self.input[k].copy_(self.tables[k][0])
                    self.step(k)
                for state in self.opt.state.values():
                    for t in state.values():
                        t.zero_()
                torch.cuda.synchronize()
                if not a.eager:
                    for k in self.tables:
                        self.input[k].copy_(self.tables[k][0])
                        torch.cuda.synchronize()
                        g = self.graphs[k] = torch.cuda.CUDAGraph()
                        g.capture_begin(pool=self.pool, capture_error_mode="thread_local")
                        self.step(k)
                        g.capture_end()

    def rate(self, share):
        for g, s in zip(self.opt.param_groups, self.scales):
            if torch.is_tensor(g["lr"]):
                g["lr"].fill_(self.lr * share * s)
            else:
                g["lr"] = self.lr * share * s

    def logits(self, ids, pos, cu, idx, longest):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=DEVICE == "cuda", cache_enabled=False):
            return self.model.classifier(self.model(ids, pos, cu, longest).index_select(0, idx)).float()

    def step(self, k):
        x = self.input[k]
        ids, pos, idx, gold, cu = x[:k], x[k:2 * k], x[2 * k:3 * k], x[3 * k:4 * k].long(), x[4 * k:]
        self.opt.zero_grad(set_to_none=True)
        F.cross_entropy(self.logits(ids, pos, cu, idx, self.longest), gold, ignore_index=-100).backward()
        torch.nn.utils.clip_grad_norm_(self.params, 1.0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)

    def advance(self):
        """Queue one training step; False when there are none left."""
        if self.at == len(self.order):
            return False
        k, row = self.order[self.at]
        n = len(self.order)
        with torch.cuda.stream(self.stream) if DEVICE == "cuda" else contextlib.nullcontext():
            self.rate(min(self.at / (0.1 * n), (n - self.at) / (0.9 * n)))
            self.input[k].copy_(self.tables[k][row])
            self.graphs[k].replay() if k in self.graphs else self.step(k)
        self.at += 1
        return True

    def score(self, data):
        self.model.eval()
        tp = n_gold = n_pred = 0
        for i in range(0, len(data), 256):
            rows = data[i:i + 256]
            ids, pos, idx, gold, cu = (torch.from_numpy(np.asarray(t)).to(DEVICE) for t in flat(rows))
            with torch.no_grad():
                out = iter(self.logits(ids, pos, cu.int(), idx, max(len(r[0]) for r in rows)).argmax(-1).tolist())
            for firsts, tags in (part for r in rows for part in r[1]):
                pred = ["O"] * len(tags)
                for w in firsts:
                    pred[w] = "BIO"[next(out)]
                g, p = spans(tags), spans(pred)
                tp, n_gold, n_pred = tp + len(g & p), n_gold + len(g), n_pred + len(p)
        return round(200 * tp / max(n_gold + n_pred, 1), 2)


def together(a):
    """The protocol of `finetune`, all runs in one process."""
    began, jobs = time.time(), [(s, seed) for s in a.sets for seed in a.seeds]
    with multiprocessing.get_context("fork").Pool(a.processes) as pool:  # before CUDA starts
        splits = ["train", "devel", "test"]
        data = dict(zip(itertools.product(a.sets, splits), pool.map(encoded, [(a, s, k) for s in a.sets for k in splits], 1)))
        plans = pool.map(planned, [(a, data[s, "train"], seed) for s, seed in jobs], 1)
    base = Bert.load(a.model, dropout=0.1).to(DEVICE)
    runs = [Run(a, s, a.lr, seed, base, plan) for (s, seed), plan in zip(jobs, plans)]
    ready, live = time.time(), runs
    while live:
        live = [r for r in live if r.advance()]
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    done, results = time.time(), []
    for r in runs:
        results.append(dict(set=r.name, lr=a.lr, seed=r.seed, steps=len(r.order), devel=r.score(data[r.name, "devel"])))
    mean = np.mean([x["devel"] for x in results])
    if mean >= a.test_from:  # test is read only by weights that have won on development
        for x, r in zip(results, runs):
            x["test"] = r.score(data[r.name, "test"])
        print(f"test mean {np.mean([x['test'] for x in results]):.2f}")
    Path(a.out).write_text(json.dumps(results, indent=0) + "\n")
    for s in a.sets:
        print(s, [(x["devel"], x.get("test")) for x in results if x["set"] == s])
    print(f"{a.model} lr {a.lr} epochs {a.epochs} batch {a.batch} join {a.join} decay {a.layer_decay}: devel mean {mean:.2f} "
          f"{[round(float(np.mean([x['devel'] for x in results if x['seed'] == s])), 2) for s in a.seeds]}; prepared {ready - began:.1f} s, trained "
          f"{done - ready:.1f} s ({sum(len(r.order) for r in runs) / (done - ready):.0f} steps/s), scored {time.time() - done:.1f} s", flush=True)


def arguments(parser, *commands):
    """One subcommand per (function, options); an option without a default is required, a list takes several values."""
    sub = parser.add_subparsers(required=True)
    for f, options in commands:
        c = sub.add_parser(f.__name__, help=f.__doc__)
        c.set_defaults(run=f)
        for k, v in options.items():
            one = v[0] if isinstance(v, list) and v else v
            kind = dict(default=v, type=str if one == [] else type(one)) | (dict(nargs="+") if isinstance(v, list) else {})
            kind = dict(required=True) if v is None else dict(action="store_true") if v is False else kind
            c.add_argument("--" + k.replace("_", "-"), **kind)
    return parser.parse_args()


if __name__ == "__main__":
    args = arguments(
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter),
        (pretrain, dict(model=None, tokens=None, out=None, minutes=20.0, lr=1e-3, decay=0.05, optimizer="muon", batch=65536,
                        rate=0.30, rate_end=0.15, heads=1, warmup=0.04, repeat=["abstracts=2"], workers=9, seed=2, eval_batches=4, save_every=60.0,
                        max_steps=0, eager=False)),
        (finetune, dict(model=None, bench=None, out=None, sets=SETS, lr=[1e-4], seeds=[1], epochs=6, batch=32, processes=14,
                        limit=10**9, test=False)),
        (together, dict(model=None, bench=None, out=None, sets=SETS, lr=1e-4, seeds=[1, 2], epochs=6, batch=32, processes=14, join=0,
                        layer_decay=1.0, limit=10**9, test_from=1e9, eager=False)))
    args.run(args)
