"""Staircase attention of Ju et al. (2021) in PyTorch, row after row of its active chunks; what a segment leaves is what
each layer saw in the last rows (models/staircase/literal.cpp has the equations)."""
import torch
from torch import nn
from torch.nn import functional as F

from peer_layers import Group, Peer, heads_of, loss_of, matrix, rows_of


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        dim = c["dim"]
        self.heads = c["heads"]
        self.attn_norm = nn.LayerNorm(dim, c["norm_eps"])
        self.attn = Group(wq=matrix(dim, dim), wk=matrix(dim, dim), wv=matrix(dim, dim), wo=matrix(dim, dim))
        self.mlp_norm = nn.LayerNorm(dim, c["norm_eps"])
        self.mlp = Group(up=matrix(c["mlp_dim"], dim, True), down=matrix(dim, c["mlp_dim"], True))

    def scores_by_distance(self, q, key_pe, keys, scale):
        """[batch, heads, rows, keys]: of query i and key j the score of their distance, -inf for keys behind the query.

        Column c of the product is that of distance keys - 1 - c, and row i needs it from rows - 1 - i on. With as many
        columns of padding as there are rows, that is the same distance from row to row in memory.
        """
        batch, heads, rows, _ = q.shape
        product = q @ (key_pe[:, key_pe.shape[1] - keys :] * scale)
        padded = F.pad(product, (0, rows)).flatten(2)
        shifted = padded[..., rows - 1 : rows * (keys + rows) - 1].view(batch, heads, rows, keys + rows - 1)[..., :keys]
        seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device).tril(keys - rows)
        return shifted.masked_fill(~seen, float("-inf"))

    def forward(self, x, old, key_pe):
        """x: the active chunks; old: rows that precede them, or none."""
        rows = self.attn_norm(x)
        seen = rows if old is None else torch.cat((self.attn_norm(old), rows), 1)
        if old is None:
            together = torch.cat((self.attn.wq.weight, self.attn.wk.weight, self.attn.wv.weight))
            q, k, v = F.linear(rows, together).chunk(3, -1)
        else:
            q = self.attn.wq(rows)
            k, v = F.linear(seen, torch.cat((self.attn.wk.weight, self.attn.wv.weight))).chunk(2, -1)
        q, k, v = (heads_of(part, self.heads) for part in (q, k, v))
        scale = q.shape[-1] ** -0.5
        bias = self.scores_by_distance(q, key_pe.to(q.dtype), k.shape[2], scale)
        h = x + self.attn.wo(rows_of(F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)))
        return h + self.mlp.down(F.relu(self.mlp.up(self.mlp_norm(h))))


class Staircase(Peer):
    def __init__(self, c):
        super().__init__()
        self.chunk, self.steps, self.dim = c["chunk"], c["steps"], c["dim"]
        self.embed = nn.Embedding(c["vocab"], c["dim"])
        self.pos = Group(key_pe=nn.Parameter(torch.empty(c["head_dim"], c["span"])))
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.final_norm = nn.LayerNorm(c["dim"], c["norm_eps"])
        self.head = matrix(c["vocab"], c["dim"], True)

    def initial_state(self, batch):
        at = self.embed.weight
        return [torch.zeros(batch, (self.steps - 1 - row) * self.chunk, self.dim, device=at.device, dtype=at.dtype)
                for row in range(self.steps - 1) for _ in self.layers]

    def score(self, hidden, targets):
        return loss_of(self.head(self.final_norm(hidden)), targets)

    def forward(self, tokens, targets, state):
        chunks = self.embed(tokens).to(self.stream_dtype()).split(self.chunk, 1)
        count, layers = len(chunks), len(self.layers)
        h, finished, left = None, [], []
        for row in range(count + self.steps - 1):
            if row < count:
                h = chunks[row] if h is None else torch.cat((h, chunks[row]), 1)
            for number, layer in enumerate(self.layers):
                old = state[row * layers + number].to(h.dtype) if row < self.steps - 1 else None
                if row >= count:
                    left.append(h.detach() if old is None else torch.cat((old, h.detach()), 1))
                h = layer(h, old, self.pos.key_pe)
            if row >= self.steps - 1:
                finished.append(h[:, : self.chunk])
                h = h[:, self.chunk :]
        return self.score(torch.cat(finished, 1), targets), [x.to(self.embed.weight.dtype) for x in left]

    def compiled_parts(self):
        return list(self.layers), ["score"]


def make(c):
    return Staircase(c)
