"""One plugin, one input, three hosts: ctypes on liboctavo, the torch ops, and octavo.prepare's
modules. y, dx, dw, db, weights and every slot are bit-equal after each of three steps.

Inputs are numbers that any language can repeat: s = s * 1664525 + 1013904223 mod 2^32 from a seed,
a value is (s >> 8) * 2^-23 - 1, in the order: weight [48, 40] (seed 1, times 1/4), bias [48]
(seed 2), and in step i: x [17, 40] (seed 10 + i), dy [17, 48] (seed 20 + i, times 1/16). The host's
optimizer is w -= dw / 8 for te; for msamp the backend's Adam with lr 2^-6, betas 0.9 and 0.999, eps
1e-8, weight decay 2^-4. With OCTAVO_BITS_FILE set, lines "case step name FNV-1a-64" of the ctypes
host are appended there.
"""
import os

import pytest
import torch
from torch import nn

import octavo
from conftest import kind, msamp, session, te
from guide_parts import bits
from octavo import _abi
from plain_host import PlainHost

N, K, M, STEPS = 48, 40, 17, 3
CASES = {**{f"te-{r}": te(r) for r in ("delayed", "current", "block", "mx", "nvfp4", "rowwise")},
         **{f"msamp-{level}": msamp(level) for level in ("O1", "O2", "O3")}}
ADAM = dict(lr=2.0**-6, betas=(0.9, 0.999), eps=1e-8, weight_decay=2.0**-4)


def numbers(seed, *shape):
    count = int(torch.Size(shape).numel())
    out, state = [], seed
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append((state >> 8) * 2.0**-23 - 1)
    return torch.tensor(out, dtype=torch.float32, device="cpu").reshape(shape)


WEIGHT, BIAS = numbers(1, N, K) / 4, numbers(2, N)


def batch(i, dtype):
    return numbers(10 + i, M, K).to(dtype), (numbers(20 + i, M, N) / 16).to(dtype)


def batch_there(i, dtype):
    """The same on the device of the tests."""
    x, dy = batch(i, dtype)
    return x.to(torch.get_default_device()), dy.to(torch.get_default_device())


def hyper():
    return torch.tensor([ADAM["lr"], *ADAM["betas"], ADAM["eps"], ADAM["weight_decay"], 1.0, 0.0,
                         0.0], dtype=torch.float32, device="cpu")


def raw(t):
    return None if t is None else bytes(bits(t.cpu()).tolist())


def by_ctypes(overrides, dtype):
    host = PlainHost(overrides, WEIGHT, BIAS)
    steps = []
    for i in range(STEPS):
        x, dy = batch(i, dtype)
        y = host.forward(x)
        dx, dw, db = host.backward(dy)
        if host.adam:
            host.optimizer_step(hyper())
        else:
            host.weight -= dw / 8
            host.bias -= db / 8
        host.end_step()
        steps.append(result(y, dx, dw, db, host.bias, host.bytes_of_slots()))
    host.close()
    return steps


def result(y, dx, dw, db, bias, slots):
    named = {"y": raw(y), "dx": raw(dx), "dw": raw(dw), "db": raw(db), "bias": raw(bias)}
    return {**{k: v for k, v in named.items() if v is not None}, **slots}


def prepared(overrides):
    model = nn.Linear(K, N)
    model.load_state_dict({"weight": WEIGHT, "bias": BIAS})
    optimizer = torch.optim.AdamW(model.parameters(), **ADAM)
    model, optimizer = octavo.prepare(model, optimizer, None, overrides=overrides)
    return model, optimizer, session(model)


def bytes_of_slots(s):
    """Other devices lay out the copies of weights that their products read in another way."""
    return {(d.owner_kind, d.owner, d.name): raw(t) for d, t in zip(s.slots, s.tensors)
            if t is not None and (s.device.type == "cpu" or "weight_cache" not in d.name)}


def by_ops(overrides, dtype):
    """torch.ops.octavo called one by one, without autograd."""
    op, (model, _, s) = torch.ops.octavo, prepared(overrides)
    site, bias, weight = s.sites["model"], model.bias, model.weight
    steps = []
    for i in range(STEPS):
        x, dy = batch_there(i, dtype)
        native = weight.detach() if site.is_native else None
        y, saved = op.linear_forward(s.number, 0, 0, -1, x, native, bias.detach())
        dx, dw, db = op.linear_backward(s.number, 0, _abi.BACKWARD_OVERWRITE, 7, dy, x, saved, native,
                                        None)
        if dw.numel() == 0:
            dw, bias.grad = None, db
            s.optimizer_step([0, 1], hyper().repeat(2, 1).to(s.device))
        else:
            weight.data -= dw / 8
            bias.data -= db / 8
        s.end_step()
        steps.append(result(y, dx, dw, db, bias.detach(), bytes_of_slots(s)))
    return steps


def by_modules(overrides, dtype):
    model, optimizer, s = prepared(overrides)
    steps = []
    for i in range(STEPS):
        x, dy = batch_there(i, dtype)
        x.requires_grad_()
        optimizer.zero_grad()
        y = model(x)
        y.backward(dy)
        owned = s.needs_own_optimizer
        dw, db = None if owned else model.weight.grad, model.bias.grad.clone()
        if owned:
            optimizer.step()
        else:
            with torch.no_grad():
                for p in model.parameters():
                    p -= p.grad / 8
            octavo.step(model)
        steps.append(result(y, x.grad, dw, db, model.bias.detach(), bytes_of_slots(s)))
    return steps


def fnv(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def write(path, case, steps):
    with open(path, "a", encoding="utf-8") as file:
        for i, step in enumerate(steps):
            for name, data in step.items():
                name = name if isinstance(name, str) else "{}/{}/{}".format(*name)
                file.write(f"{case} {i} {name} {fnv(data):016x}\n")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_three_hosts_one_result(case, dtype, monkeypatch):
    if kind() == "cuda":  # the kernel with the CPU's sums: tensor cores have their own
        monkeypatch.setenv("OCTAVO_CUDA_GEMM", "reference")
    expected = by_ctypes(CASES[case], dtype)
    path = os.environ.get("OCTAVO_BITS_FILE")
    if path and dtype == torch.float32:
        write(path, case, expected)
    assert len({step["y"] for step in expected}) == STEPS
    for other in (by_ops, by_modules):
        found = other(CASES[case], dtype)
        for i in range(STEPS):
            assert found[i].keys() <= expected[i].keys()
            different = [k for k in found[i] if found[i][k] != expected[i][k]]
            assert not different, f"{other.__name__}, step {i}: {different}"
