#!/usr/bin/env python3
"""A small transformer trained by PyTorch for some minutes, as a peer of `eddy train` on the same text and the same cores.

It is written anew after the settings that nanoGPT's README gives for a CPU: 4 layers of 128 numbers, 4 heads, learned
positions, rows of 64 tokens, 12 rows a batch, no dropout, no biases, the token table as the head; AdamW with betas 0.9
and 0.99, a weight decay of 0.1 for matrices, gradients clipped to a norm of 1, a warm-up of 100 steps to 1e-3 and a
cosine to 1e-4. The cosine runs along the time and ends with it. Tokens are characters, or bytes with --bytes.

The text is cut as `data.test = 0.05` cuts it: the first nine tenths are trained on, the last tenth is halved, the first
half to validate on and the second to test. Each half is read whole, in rows of the block one after another.

    small_gpt.py input.txt --minutes 2 --threads 2 --seed 1

prints one line of JSON: bits a byte of both halves, steps, tokens, seconds of training. The time is that of the steps
alone; importing PyTorch, reading the text and measuring are not counted.
"""
import argparse
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional as F


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="a file of UTF-8")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes", action="store_true", help="tokens are bytes, not characters")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--block", type=int, default=64, help="tokens of a row")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--last-rate", type=float, default=1e-4)
    parser.add_argument("--warmup", type=int, default=100, help="steps")
    parser.add_argument("--bf16", action="store_true", help="autocast products to bfloat16")
    parser.add_argument("--compile", action="store_true", help="torch.compile; its first step is not counted")
    return parser.parse_args()


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.mlp_norm = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        rows, time_steps, width = x.shape
        parts = self.qkv(self.attention_norm(x)).view(rows, time_steps, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, time_steps, width))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x))))


class SmallGpt(nn.Module):
    def __init__(self, vocab, options):
        super().__init__()
        width = options.width
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(options.block, width)
        self.layers = nn.ModuleList(Layer(width, options.heads) for _ in range(options.layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                # What is added to the residual stream begins smaller, by the number of sums.
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (math.sqrt(2 * options.layers) if residual else 1))

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)


def loss_of(model, ids, targets, bf16):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        logits = model(ids)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def bits_per_byte(model, ids, byte_counts, block, bf16):
    """Of a whole split: rows of the block one after another, and what is left over."""
    nats, size = 0.0, 0
    rows_at_once = 128
    count = len(ids) - 1
    starts = list(range(0, count - block + 1, block))
    for first in range(0, len(starts), rows_at_once):
        chosen = starts[first : first + rows_at_once]
        x = torch.stack([ids[s : s + block] for s in chosen])
        y = torch.stack([ids[s + 1 : s + block + 1] for s in chosen])
        nats += loss_of(model, x, y, bf16).item() * y.numel()
        size += byte_counts[y].sum().item()
    rest = len(starts) * block
    if rest < count:
        x, y = ids[rest:-1][None], ids[rest + 1 :][None]
        nats += loss_of(model, x, y, bf16).item() * y.numel()
        size += byte_counts[y].sum().item()
    return nats / math.log(2) / size


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    with open(options.text, "rb") as file:
        content = file.read()
    symbols = content if options.bytes else content.decode()
    kinds = list(range(256)) if options.bytes else sorted(set(symbols))
    number_of = {kind: i for i, kind in enumerate(kinds)}
    ids = torch.tensor([number_of[symbol] for symbol in symbols])
    byte_counts = torch.tensor([1 if options.bytes else len(kind.encode()) for kind in kinds])
    train, test = math.floor(0.9 * len(ids)), math.floor(0.05 * len(ids))
    splits = {"valid": ids[train : len(ids) - test], "test": ids[len(ids) - test :]}
    ids = ids[:train]

    model = SmallGpt(len(kinds), options)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=options.rate, betas=(0.9, 0.99))
    step_model = torch.compile(model) if options.compile else model

    def batch():
        starts = torch.randint(len(ids) - options.block, (options.batch,))
        rows = torch.stack([ids[s : s + options.block + 1] for s in starts.tolist()])
        return rows[:, :-1], rows[:, 1:]

    if options.compile:  # compiles both passes; nothing is learned
        loss_of(step_model, *batch(), options.bf16).backward()
        optimizer.zero_grad(set_to_none=True)
    limit, steps = 60 * options.minutes, 0
    started = time.perf_counter()
    while (seconds := time.perf_counter() - started) < limit:
        fallen = 0.5 * (1 + math.cos(math.pi * seconds / limit))
        rate = options.last_rate + (options.rate - options.last_rate) * fallen
        for group in optimizer.param_groups:
            group["lr"] = min(1.0, (steps + 1) / (options.warmup + 1)) * rate
        optimizer.zero_grad(set_to_none=True)
        loss_of(step_model, *batch(), options.bf16).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        steps += 1

    model.eval()
    result = {f"{name}_bits_per_byte": round(bits_per_byte(model, split, byte_counts, options.block, options.bf16), 5)
              for name, split in splits.items()}
    result |= {
        "minutes": options.minutes, "seconds": round(seconds, 2), "steps": steps,
        "tokens": steps * options.batch * options.block,
        "parameters": sum(p.numel() for p in model.parameters()),
        "threads": options.threads, "seed": options.seed, "torch": torch.__version__,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
