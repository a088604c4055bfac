"""What the peers share: modules whose parameters have Eddy's names, and the loss."""
import torch
from torch import nn
from torch.nn import functional as F


class Group(nn.Module):
    """Modules and parameters under one name, without a forward of its own."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def matrix(out, inner, bias=False):
    return nn.Linear(inner, out, bias=bias)


def heads_of(x, heads):
    """[batch, time, heads size] -> [batch, heads, time, size]"""
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def rows_of(x):
    """[batch, heads, time, size] -> [batch, time, heads size]"""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def loss_of(logits, targets):
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return F.cross_entropy(wide.flatten(0, -2), targets.flatten())


class Peer(nn.Module):
    """A model whose step is forward(tokens, targets, state) -> loss, the next state. A state is a list of tensors."""

    def stream_dtype(self):
        """That of the residual stream: bf16 within autocast, so that rows take half the memory."""
        device = self.embed.weight.device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else self.embed.weight.dtype

    def initial_state(self, batch):
        return []

    def compiled_parts(self):
        """The modules, and the methods by name, that are compiled: each is called with few kinds of shapes."""
        return [], []

    def start(self, seed=1):
        """Initial weights with no parameter at 0, so that a comparison sees each."""
        torch.manual_seed(seed)
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                size = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1
                parameter.normal_(0, 0.02 if name == "embed.weight" else size)
                if parameter.dim() == 1 and ("norm" in name or "scale" in name):
                    parameter.add_(1)
        return self
