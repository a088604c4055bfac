"""Block-Recurrent Transformers of Hutchins et al. (2022) in PyTorch: slide, xl, and cells with a fixed gate and "skip".

Token attention of all blocks is one call, the chain of states alone runs block by block, and all reads of the states are
one call after it (models/block_recurrent/literal.cpp has the equations).

Attention within the window has two forms, chosen by `attention`: "sdpa", tiles of a block of queries and two blocks of
keys with the bias as a mask, and "flex", FlexAttention with the bias as a change of scores, which skips hidden blocks.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

from peer_layers import Group, Peer, heads_of, loss_of, matrix, rows_of


def bucket_of(distance, buckets, most):
    exact = buckets // 2
    if distance < exact:
        return distance
    place = math.log(distance / exact + torch.finfo(torch.float32).eps) / math.log(most / exact)
    return min(buckets - 1, exact + math.floor(place * (buckets - exact)))


def unit(x, eps):
    """Each head's vector with the length 1. x: [..., size]"""
    wide = x if x.dtype == torch.float64 else x.float()
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)).to(x.dtype)


class Cell(nn.Module):
    def __init__(self, c, width):
        super().__init__()
        dim, heads = c["dim"], c["heads"]
        self.heads, self.eps = heads, c["qk_eps"]
        self.init_state = nn.Parameter(torch.empty(c["states"], dim))
        self.state_ids = nn.Parameter(torch.empty(c["states"], dim))
        self.norm = nn.RMSNorm(dim, c["norm_eps"])
        self.wk, self.wv = matrix(width, dim), matrix(width, dim)
        self.wq_self, self.wq_cross = matrix(width, dim), matrix(width, dim)
        self.scale_self, self.scale_cross = nn.Parameter(torch.empty(heads)), nn.Parameter(torch.empty(heads))
        self.gate_attn = Group(wz=matrix(dim, 2 * width), bg=nn.Parameter(torch.empty(dim)))

    def forward(self, state, keys, values):
        """What tokens read of the state, and the next one; keys and values are those of two blocks of tokens."""
        together = torch.cat((self.wk.weight, self.wv.weight, self.wq_self.weight, self.wq_cross.weight))
        parts = F.linear(self.norm(state) + self.state_ids, together).chunk(4, -1)
        k, v, own, cross = (heads_of(part, self.heads) for part in parts)
        k, own, cross = (unit(part, self.eps) for part in (k, own, cross))
        own = own * self.scale_self.abs().to(own.dtype)[:, None, None]
        cross = cross * self.scale_cross.abs().to(cross.dtype)[:, None, None]
        read = (F.scaled_dot_product_attention(own, k, v, scale=1.0),
                F.scaled_dot_product_attention(cross, keys, values, scale=1.0))
        gate = torch.sigmoid(self.gate_attn.bg)
        mixed = self.gate_attn.wz(torch.cat([rows_of(part) for part in read], -1)).to(state.dtype)
        return k, v, state * gate + mixed * (1 - gate)


class Layer(nn.Module):
    def __init__(self, c, is_recurrent):
        super().__init__()
        dim, heads, size = c["dim"], c["heads"], c["head_dim"]
        width = heads * size
        self.heads, self.size, self.window, self.eps = heads, size, c["window"], c["qk_eps"]
        self.attention = "sdpa"
        self.attn_norm = nn.RMSNorm(dim, c["norm_eps"])
        self.attn = Group(wq=matrix(width, dim), wk=matrix(width, dim), wv=matrix(width, dim),
                          wo=matrix(dim, (2 if is_recurrent else 1) * width), scale=nn.Parameter(torch.empty(heads)),
                          rel_bias=nn.Parameter(torch.empty(heads, c["rel_buckets"])))
        if is_recurrent:
            self.cross = Group(wq=matrix(width, dim), scale=nn.Parameter(torch.empty(heads)))
            self.recurrent = Cell(c, width)
        self.mlp_norm = nn.RMSNorm(dim, c["norm_eps"])
        self.mlp = Group(up=matrix(c["mlp_dim"], dim), down=matrix(dim, c["mlp_dim"]))
        self.is_recurrent = is_recurrent
        bucket = [bucket_of(d, c["rel_buckets"], c["rel_max_distance"]) for d in range(self.window + 1)]
        self.register_buffer("bucket", torch.tensor(bucket), persistent=False)
        # Of column j of a row of 3 window - 1 scores: its distance, 2 window - 1 - j, seen from 1 to the window.
        distance = 2 * self.window - 1 - torch.arange(3 * self.window - 1)
        self.register_buffer("distance", distance.clamp(0, self.window), persistent=False)
        self.register_buffer("seen", (distance >= 1) & (distance <= self.window), persistent=False)

    def bias_by_distance(self):
        """[heads, window + 1], with the head's scale, which multiplies the bias as well."""
        return self.attn.rel_bias[:, self.bucket] * self.attn.scale.abs()[:, None]

    def project(self, x):
        rows = self.attn_norm(x)
        weights = [self.attn.wq.weight, self.attn.wk.weight, self.attn.wv.weight]
        if self.is_recurrent:
            weights.append(self.cross.wq.weight)
        parts = F.linear(rows, torch.cat(weights)).chunk(len(weights), -1)
        parts = [heads_of(part, self.heads) for part in parts]
        q, k, v = unit(parts[0], self.eps), unit(parts[1], self.eps), parts[2]
        q = q * self.attn.scale.abs().to(q.dtype)[:, None, None]
        if not self.is_recurrent:
            return q, k, v, None
        cross = unit(parts[3], self.eps)
        return q, k, v, cross * self.cross.scale.abs().to(cross.dtype)[:, None, None]

    def tiles(self, x):
        """[batch, heads, window + time, size] -> [batch blocks, heads, 2 window, size]"""
        batch, heads, rows, size = x.shape
        blocks = rows // self.window - 1
        return (x.unfold(2, 2 * self.window, self.window).permute(0, 2, 1, 4, 3)
                .reshape(batch * blocks, heads, 2 * self.window, size))

    def blocks(self, x):
        """[batch, heads, time, size] -> [batch blocks, heads, window, size]"""
        batch, heads, rows, size = x.shape
        return x.view(batch, heads, -1, self.window, size).transpose(1, 2).reshape(-1, heads, self.window, size)

    def joined(self, x, batch):
        """The inverse of blocks, with heads side by side: [batch, time, heads size]"""
        return rows_of(x).reshape(batch, -1, self.heads * self.size)

    def attend(self, q, keys, values):
        """Each query sees the `window` keys before it."""
        bias = self.bias_by_distance()
        if self.attention == "flex":
            window = self.window

            def with_bias(score, b, head, i, j):
                return score + bias[head, (i + window - j).clamp(0, window)]

            return rows_of(FLEX(q, keys, values, score_mod=with_bias, block_mask=band(q, window), scale=1.0))
        line = bias[:, self.distance].masked_fill(~self.seen, float("-inf"))
        mask = line.unfold(-1, 2 * self.window, 1).flip(1).to(q.dtype)
        mixed = F.scaled_dot_product_attention(self.blocks(q), self.tiles(keys), self.tiles(values),
                                               attn_mask=mask[None], scale=1.0)
        return self.joined(mixed, q.shape[0])

    def finish(self, x, mixed):
        h = x + self.attn.wo(mixed)
        return h + self.mlp.down(F.relu(self.mlp.up(self.mlp_norm(h))))

    def forward(self, x, past_k, past_v, state):
        batch = x.shape[0]
        q, k, v, cross = self.project(x)
        keys, values = torch.cat((past_k.to(k.dtype), k), 2), torch.cat((past_v.to(v.dtype), v), 2)
        mixed = self.attend(q, keys, values)
        if self.is_recurrent:
            window, read_k, read_v = self.window, [], []
            for block in range(x.shape[1] // window):
                seen = slice(block * window, (block + 2) * window)
                state_k, state_v, state = self.recurrent(state, keys[:, :, seen], values[:, :, seen])
                read_k.append(state_k)
                read_v.append(state_v)
            read = F.scaled_dot_product_attention(self.blocks(cross), torch.stack(read_k, 1).flatten(0, 1),
                                                  torch.stack(read_v, 1).flatten(0, 1), scale=1.0)
            mixed = torch.cat((mixed, self.joined(read, batch)), -1)
        y = self.finish(x, mixed)
        left = (keys[:, :, -self.window :].detach(), values[:, :, -self.window :].detach())
        return y, *left, None if state is None else state.detach()


FLEX = None
BANDS = {}


def band(q, window):
    key = (q.shape[2], window, q.device)
    if key not in BANDS:
        from torch.nn.attention.flex_attention import create_block_mask

        BANDS[key] = create_block_mask(lambda b, h, i, j: (i + window - j >= 1) & (i + window - j <= window), None,
                                       None, q.shape[2], q.shape[2] + window, device=q.device)
    return BANDS[key]


def use_flex(compiled):
    global FLEX
    from torch.nn.attention.flex_attention import flex_attention

    FLEX = torch.compile(flex_attention) if compiled else flex_attention


class BlockRecurrent(Peer):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c["vocab"], c["dim"])
        recurrent = c["recurrent_layers"] if c["model"] == "block_recurrent" else []
        self.layers = nn.ModuleList(Layer(c, i in recurrent) for i in range(c["layers"]))
        self.final_norm = nn.RMSNorm(c["dim"], c["norm_eps"])
        self.factor = (c["vocab"] if c["logit_divisor"] == "sqrt_vocab" else c["dim"]) ** -0.5

    def choose_attention(self, attention, compiled):
        if attention == "flex":
            use_flex(compiled)
        for layer in self.layers:
            layer.attention = attention

    def initial_state(self, batch):
        c, at = self.c, self.embed.weight
        state = []
        for layer in self.layers:
            shape = (batch, c["heads"], c["window"], c["head_dim"])
            state += [torch.zeros(shape, device=at.device, dtype=at.dtype) for _ in range(2)]
            if layer.is_recurrent:
                state.append(layer.recurrent.init_state.detach().expand(batch, -1, -1).clone())
        return state

    def score(self, y, targets):
        return loss_of(F.linear(self.final_norm(y) * self.factor, self.embed.weight), targets)

    def forward(self, tokens, targets, state):
        x, given, left = self.embed(tokens).to(self.stream_dtype()), iter(state), []
        for layer in self.layers:
            k, v = next(given), next(given)
            x, k, v, own = layer(x, k, v, next(given) if layer.is_recurrent else None)
            left += [k, v] if own is None else [k, v, own]
        return self.score(x, targets), [now.to(before.dtype) for now, before in zip(left, state)]

    def compiled_parts(self):
        return list(self.layers), ["score"]


def make(c):
    return BlockRecurrent(c)
