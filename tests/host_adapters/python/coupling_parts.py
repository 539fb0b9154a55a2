"""A small model, its loop and its counts, for the tests of the coupling."""
import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te
from guide_parts import mlp
from octavo import _abi
from octavo.torch import ops

BACKENDS = {"te": te("delayed", amax_history_len=4), "msamp": msamp("O2")}
each = pytest.mark.parametrize("overrides", BACKENDS.values(), ids=BACKENDS)


def plain():
    torch.manual_seed(3)
    return mlp(32, 64, 16)


def prepared(overrides, optimizer=True):
    model = plain()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0) if optimizer else None
    return octavo.prepare(model, adam, overrides=overrides)


def call_of(model, mode):
    torch._dynamo.reset()
    return model if mode == "eager" else torch.compile(model, backend=mode, fullgraph=True)


def batch(scale=1.0):
    generator = torch.Generator().manual_seed(4)
    return (scale * torch.randn(64, 32, generator=generator),
            torch.randn(64, 16, generator=generator))


def backward(call, scale=1.0):
    x, target = batch(scale)
    loss = nn.functional.mse_loss(call(x), target)
    loss.backward()
    return loss.item()


def boundaries(model):
    return ops.calls(session(model).number, _abi.VERB_END_STEP)
