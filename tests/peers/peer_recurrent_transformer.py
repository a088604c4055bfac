"""Recurrent transformers of Kausik (2025) in PyTorch: regular, unit_forget and block_accumulate, with what does not
depend on the state before the loop (models/recurrent_transformer/literal.cpp has the equations)."""
import torch
from torch import nn
from torch.nn import functional as F

from peer_layers import Group, Peer, heads_of, loss_of, matrix, rows_of


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        dim, bias = c["dim"], c["bias"]
        self.heads, self.relu = c["heads"], c["activation"] == "relu"
        self.attn_norm = nn.LayerNorm(dim, c["norm_eps"], bias=bias)
        self.attn = Group(wqkv=matrix(3 * dim, dim, bias), wo=matrix(dim, dim, bias))
        self.mlp_norm = nn.LayerNorm(dim, c["norm_eps"], bias=bias)
        self.mlp = Group(up=matrix(c["mlp_dim"], dim, bias), down=matrix(dim, c["mlp_dim"], bias))

    def finish(self, x, mixed):
        """The output for rows x whose attention is `mixed`."""
        h = x + self.attn.wo(mixed)
        up = self.mlp.up(self.mlp_norm(h))
        return h + self.mlp.down(F.relu(up) if self.relu else F.gelu(up))

    def forward(self, x):
        q, k, v = (heads_of(part, self.heads) for part in self.attn.wqkv(self.attn_norm(x)).chunk(3, -1))
        return self.finish(x, rows_of(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class RecurrentTransformer(Peer):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["dim"])
        if c["positions"]:
            self.pos_embed = nn.Embedding(c["context"], c["dim"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.final_norm = nn.LayerNorm(c["dim"], c["norm_eps"], bias=c["bias"])
        self.has_positions = c["positions"]

    def rows(self, tokens):
        x = self.embed(tokens)
        if self.has_positions:
            x = x + self.pos_embed.weight[: tokens.shape[1]]
        return x.to(self.stream_dtype())

    def score(self, y, targets):
        return loss_of(F.linear(self.final_norm(y[:, -targets.shape[1] :]), self.embed.weight), targets)

    def run(self, layer, x):
        return layer(x)

    def forward(self, tokens, targets, state):
        x = self.rows(tokens)
        for layer in self.layers:
            x = self.run(layer, x)
        return self.score(x, targets), state

    def compiled_parts(self):
        return list(self.layers), ["score"]


class UnitForget(RecurrentTransformer):
    """h_t = T(h_{t-1} || x_t): two keys, so the softmax is a sigmoid. Queries, keys and values of x come before the
    loop, the outputs y_t = T(h_t) after it."""

    def before(self, layer, x):
        parts = layer.attn.wqkv(layer.attn_norm(x)).chunk(3, -1)
        q, k, v = (part.view(*x.shape[:2], layer.heads, -1) for part in parts)
        q = q * q.shape[-1] ** -0.5
        return q, (q * k).sum(-1), v

    def cell(self, layer, h, q, own, v, x):
        """The next state, and the value of this one."""
        dim = h.shape[-1]
        bias = layer.attn.wqkv.bias
        kv = F.linear(layer.attn_norm(h), layer.attn.wqkv.weight[dim:], None if bias is None else bias[dim:])
        key, value = (part.view(q.shape) for part in kv.chunk(2, -1))
        share = torch.sigmoid((q * key).sum(-1) - own)[..., None]
        mixed = v + share * (value - v)
        return layer.finish(x, mixed.reshape(h.shape)), value

    def first(self, layer, x, v):
        return layer.finish(x, v.reshape(x.shape))

    def run(self, layer, x):
        q, own, v = self.before(layer, x)
        h = self.first(layer, x[:, 0], v[:, 0])
        states, values = [h], []
        # One view for each step, so that the gradient of all steps is written once.
        steps = list(zip(q.unbind(1), own.unbind(1), v.unbind(1), x.unbind(1)))
        for step in steps[1:]:
            h, value = self.cell(layer, h, *step)
            states.append(h)
            values.append(value)
        values.append(self.last_value(layer, h).view(values[0].shape))
        return self.outputs(layer, torch.stack(states, 1), torch.stack(values, 1))

    def last_value(self, layer, h):
        first, bias = 2 * h.shape[-1], layer.attn.wqkv.bias
        return F.linear(layer.attn_norm(h), layer.attn.wqkv.weight[first:], None if bias is None else bias[first:])

    def outputs(self, layer, states, values):
        return layer.finish(states, values.reshape(states.shape))

    def compiled_parts(self):
        return [], ["before", "cell", "outputs", "score"]


class BlockAccumulate(RecurrentTransformer):
    """(y_{i-1}, h_i) = T(p/2 + h_{i-1} || p/2 + x_i), p being the output before the last."""

    def __init__(self, c):
        super().__init__(c)
        self.block, self.factor = c["block"], c["accumulate_factor"]

    def window(self, layer, p, h, x):
        half = p * self.factor
        return layer(torch.cat((half + h, half + x), 1)).chunk(2, 1)

    def run(self, layer, x):
        blocks = x.split(self.block, 1)
        p, h, outputs = blocks[0], layer(blocks[0]), []
        for block in blocks[1:]:
            p, h = self.window(layer, p, h, block)
            outputs.append(p)
        last = layer(h)
        # The head reads the last positions alone, and a layer above reads all.
        return last if layer is self.layers[-1] else torch.cat((*outputs, last), 1)

    def compiled_parts(self):
        return [], ["window", "score"]


def make(c):
    kinds = {"regular": RecurrentTransformer, "unit_forget": UnitForget, "block_accumulate": BlockAccumulate}
    return kinds[c["model"]](c)
