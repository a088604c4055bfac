"""Computes the logits of a model that Eddy exported, with PyTorch alone (1.13 or later).

    python logits.py FOLDER 5 17 3     the five most probable tokens after the ids 5 17 3

FOLDER holds model.safetensors (the weights) and config.json (the sizes). From another program:

    config, weights = load(FOLDER); logits(config, weights, tokens)     # ids [batch, time] -> [batch, time, n_out]
"""
import json
import struct
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

def load(folder):
    """Returns the configuration and the weights by name."""
    data = bytearray((Path(folder) / "model.safetensors").read_bytes())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    weights = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        part = torch.frombuffer(data[begin + first : begin + last], dtype=TYPES[entry["dtype"]])
        weights[name] = part.reshape(entry["shape"])
    return json.loads((Path(folder) / "config.json").read_text()), weights

def layer_norm(w, name, x, c):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w.get(name + ".bias"), c["norm_eps"])

def rms_norm(w, name, x, c):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["norm_eps"]) * w[name + ".weight"]

def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

def heads(x, count):  # [batch, time, width] -> [batch, heads, time, head size]
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)

def attention(q, k, v, window=0):
    """Causal; the last query stands at the last key. With a window each sees so many keys, itself included."""
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    at, back = torch.arange(k.shape[2]), torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
    seen = (at <= back) & ((at > back - window) if window else (at >= 0))
    mixed = torch.softmax(scores.masked_fill(~seen, float("-inf")), -1) @ v
    return mixed.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)

def rotary(x, first, c):  # [batch, heads, time, head size]; neighbours are a pair
    size, time = x.shape[-1], x.shape[2]
    speed = c["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.outer(torch.arange(first, first + time, dtype=torch.float64), speed)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    u, v = x[..., 0::2], x[..., 1::2]
    return torch.stack((u * cos - v * sin, u * sin + v * cos), -1).reshape(x.shape)

def transformer_layer(c, w, path, x):
    qkv = linear(w, path + ".attn.wqkv", layer_norm(w, path + ".attn_norm", x, c))
    q, k, v = (heads(part, c["heads"]) for part in qkv.chunk(3, -1))
    if c["model"] == "regular" and c.get("rotary"):
        q, k = rotary(q, 0, c), rotary(k, 0, c)
    mixed = attention(q, k, v)
    x = x + linear(w, path + ".attn.wo", mixed)
    up = linear(w, path + ".mlp.up", layer_norm(w, path + ".mlp_norm", x, c))
    return x + linear(w, path + ".mlp.down", F.gelu(up) if c["activation"] == "gelu" else F.relu(up))

def unit_forget_layer(c, w, path, x):
    h = transformer_layer(c, w, path, x[:, :1])
    states = [h]
    for t in range(1, x.shape[1]):
        h = transformer_layer(c, w, path, torch.cat((h, x[:, t : t + 1]), 1))[:, 1:]
        states.append(h)
    return torch.cat([transformer_layer(c, w, path, h) for h in states], 1)

def gated_mlp(w, path, x):
    return linear(w, path + ".down", F.silu(linear(w, path + ".gate", x)) * linear(w, path + ".up", x))

def llama_layer(c, w, path, x):
    rows, chunk, outputs, memory = rms_norm(w, path + ".attn_norm", x, c), x.shape[1], [], None
    if c["model"] == "memory_llama":
        chunk = c["chunk"]
        init = w.get(path + ".memory.init", torch.zeros(chunk, x.shape[-1], dtype=x.dtype))
        memory = init.expand(x.shape[0], -1, -1)
    for at in range(0, x.shape[1], chunk):
        part, m = rows[:, at : at + chunk], path + ".memory"
        q, k, v = (heads(linear(w, path + ".attn.w" + n, part), c["heads" if n == "q" else "kv_heads"]) for n in "qkv")
        if memory is not None:
            e = linear(w, m + ".wm", memory) if c["memory_proj"] else memory
            if c["memory_ffn"]:
                e = e + gated_mlp(w, m + ".mlp", rms_norm(w, m + ".mlp_norm", e, c) if c["memory_ffn_prenorm"] else e)
            e = rms_norm(w, m + ".norm", e, c) if c["memory_norm"] else e
            own = path + ".attn" if c["memory_qkv"] == "shared" else m
            k, v = (torch.cat((heads(linear(w, own + n, e), c["kv_heads"]), x_), 2) for n, x_ in ((".wk", k), (".wv", v)))
        q, k = rotary(q, k.shape[2] - q.shape[2], c), rotary(k, 0, c)
        outputs.append(attention(q, k, v, c["window"] if c["model"] == "llama_window" else 0))
        memory = outputs[-1] if memory is not None else None
    x = x + linear(w, path + ".attn.wo", torch.cat(outputs, 1))
    return x + gated_mlp(w, path + ".mlp", rms_norm(w, path + ".mlp_norm", x, c))

LAYERS = {"regular": (transformer_layer, layer_norm), "unit_forget": (unit_forget_layer, layer_norm),
          "llama": (llama_layer, rms_norm), "llama_window": (llama_layer, rms_norm), "memory_llama": (llama_layer, rms_norm)}

def logits(c, w, tokens):
    layer, norm = LAYERS[c["model"]]
    x = w["embed.weight"][tokens]
    if c.get("positions") and "pos_embed.weight" in w:
        x = x + w["pos_embed.weight"][: tokens.shape[1]]
    for i in range(c["layers"]):
        x = layer(c, w, f"layers.{i}", x)
    return F.linear(norm(w, "final_norm", x, c), w["embed.weight" if c["tied"] else "head.weight"])

if __name__ == "__main__":
    probabilities = torch.softmax(logits(*load(sys.argv[1]), torch.tensor([[int(t) for t in sys.argv[2:]]]))[0, -1], 0)
    for p, token in zip(*torch.topk(probabilities, min(5, len(probabilities)))):
        print(f"{token.item():8d} {p.item():.6f}")
