"""Small models and looks at slots that the guide_*_test.py files share."""
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

import octavo
from conftest import session

RECIPES = ["delayed", "current", "block", "mx"]


class Attention(nn.Module):
    """Four projections around torch's own attention. x: [batch, rows, width]."""

    def __init__(self, width=64, heads=4, attend=scaled_dot_product_attention):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        def split(t):
            # A view, since Dynamo does not trace unflatten where a default device is set.
            return t.view(*t.shape[:-1], self.heads, -1).transpose(1, 2)

        y = self.attend(split(self.q(x)), split(self.k(x)), split(self.v(x)))
        return self.o(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, width=64, **attention):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, **attention)
        self.mlp = mlp(width, 2 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


def mlp(*sizes, dtype=torch.float32):
    """Linear layers with a GELU between each two."""
    layers = []
    for k, n in zip(sizes, sizes[1:]):
        layers += [nn.Linear(k, n, dtype=dtype), nn.GELU()]
    return nn.Sequential(*layers[:-1])


def slot(model, name):
    """The tensor of the one slot of this name."""
    s = session(model)
    found = [t for d, t in zip(s.slots, s.tensors) if d.name == name]
    assert len(found) == 1, f"{name}: {len(found)} slots of {sorted({d.name for d in s.slots})}"
    return found[0]


def slots(model):
    """A copy of every slot that is not a torch parameter: {(owner kind, owner, name): tensor}."""
    s = session(model)
    return {(d.owner_kind, d.owner, d.name): t.clone()
            for d, t in zip(s.slots, s.tensors) if t is not None}


def gradients(model):
    """A copy of every gradient that torch holds."""
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def weights(model):
    return {n: p.detach().clone() for n, p in model.named_parameters()}


def assert_same(found, expected, what=""):
    """Equal keys and equal bits, NaN included."""
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        same = torch.equal(bits(found[key]), bits(value))
        assert same, f"{what} {key}: {int((bits(found[key]) != bits(value)).sum())} elements differ"


def bits(t):
    """The bytes of a tensor."""
    return t.detach().contiguous().reshape(-1).view(torch.uint8)


def warm(model, x, steps=2):
    """Steps without an optimizer, so that delayed scales fit x; gradients are cleared."""
    for _ in range(steps):
        model(x).square().mean().backward()
        octavo.step(model)
    model.zero_grad()
