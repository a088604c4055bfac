"""The block-wise recurrent transformer of Liang in PyTorch: layer after layer, where the chain of memories alone runs
chunk by chunk (models/blockwise_recurrent/literal.cpp has the equations)."""
import torch
from torch import nn
from torch.nn import functional as F

from peer_layers import Group, Peer, heads_of, loss_of, matrix, rows_of


def gated(mlp, x):
    gate, up = F.linear(x, torch.cat((mlp.gate.weight, mlp.up.weight))).chunk(2, -1)
    return mlp.down(F.silu(gate) * up)


def gated_mlp(c):
    return Group(gate=matrix(c["mlp_dim"], c["dim"]), up=matrix(c["mlp_dim"], c["dim"]),
                 down=matrix(c["dim"], c["mlp_dim"]))


def rotated(x, cosine, sine):
    """Neighbours of a head's numbers are pairs. x: [..., time, size]; the tables: [time, size / 2]"""
    u, w = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((u * cosine - w * sine, u * sine + w * cosine), -1).flatten(-2).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        dim, eps = c["dim"], c["norm_eps"]
        self.heads, self.chunk = c["heads"], c["chunk"]
        self.attn_norm = nn.RMSNorm(dim, eps)
        self.attn = Group(wq=matrix(dim, dim), wk=matrix(dim, dim), wv=matrix(dim, dim), wo=matrix(dim, dim))
        self.memory = Group(init=nn.Parameter(torch.empty(c["chunk"], dim)), mlp_norm=nn.RMSNorm(dim, eps),
                            mlp=gated_mlp(c), norm=nn.RMSNorm(dim, eps), wk=matrix(dim, dim), wv=matrix(dim, dim))
        self.mlp_norm = nn.RMSNorm(dim, eps)
        self.mlp = gated_mlp(c)

    def before(self, x, cosine, sine):
        """Queries, keys and values of all chunks, [chunks, batch, heads, chunk, size] each."""
        weights = torch.cat((self.attn.wq.weight, self.attn.wk.weight, self.attn.wv.weight))
        parts = F.linear(self.attn_norm(x), weights).chunk(3, -1)
        q, k, v = (part.view(x.shape[0], -1, self.chunk, self.heads, x.shape[2] // self.heads).permute(1, 0, 3, 2, 4)
                   for part in parts)
        return rotated(q, cosine, sine), rotated(k, cosine, sine), v

    def step(self, memory, q, k, v, cosine, sine):
        """The attention of a chunk to the memory and to itself up to each token: also the next memory."""
        own = self.memory
        evolved = own.norm(memory + gated(own.mlp, own.mlp_norm(memory)))
        key, value = (heads_of(part, self.heads)
                      for part in F.linear(evolved, torch.cat((own.wk.weight, own.wv.weight))).chunk(2, -1))
        keys, values = torch.cat((rotated(key, cosine, sine).to(k.dtype), k), 2), torch.cat((value, v), 2)
        seen = torch.ones(self.chunk, 2 * self.chunk, dtype=torch.bool, device=q.device).tril(self.chunk)
        return rows_of(F.scaled_dot_product_attention(q, keys, values, attn_mask=seen))

    def finish(self, x, mixed):
        h = x + self.attn.wo(mixed)
        return h + gated(self.mlp, self.mlp_norm(h))


class MemoryLlama(Peer):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["dim"])
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["layers"]))
        self.final_norm = nn.RMSNorm(c["dim"], c["norm_eps"])
        self.chunk, size = c["chunk"], c["dim"] // c["heads"]
        rates = c["rope_theta"] ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.arange(2 * self.chunk, dtype=torch.float64)[:, None] * rates
        self.register_buffer("cosine", angles.cos().float(), persistent=False)
        self.register_buffer("sine", angles.sin().float(), persistent=False)
        self.exact = (angles.cos(), angles.sin())

    def tables(self):
        if self.embed.weight.dtype == torch.float64:
            return self.exact
        return self.cosine, self.sine

    def score(self, y, targets):
        return loss_of(F.linear(self.final_norm(y), self.embed.weight), targets)

    def forward(self, tokens, targets, state):
        x = self.embed(tokens).to(self.stream_dtype())
        cosine, sine = self.tables()
        of_memory, of_chunk = (cosine[: self.chunk], sine[: self.chunk]), (cosine[self.chunk :], sine[self.chunk :])
        left = []
        for number, layer in enumerate(self.layers):
            # Without a state all sequences begin with the learned memory.
            memory = state[number].to(x.dtype) if state else layer.memory.init.to(x.dtype).expand(x.shape[0], -1, -1)
            parts, mixed = layer.before(x, *of_chunk), []
            for q, k, v in zip(*(part.unbind(0) for part in parts)):
                memory = layer.step(memory, q, k, v, *of_memory)
                mixed.append(memory)
            left.append(memory.detach().to(self.embed.weight.dtype))
            x = layer.finish(x, torch.cat(mixed, 1))
        return self.score(x, targets), left

    def compiled_parts(self):
        of_layers = [f"layers.{i}.{part}" for i in range(len(self.layers)) for part in ("before", "step", "finish")]
        return [], ["score", *of_layers]


def make(c):
    return MemoryLlama(c)
