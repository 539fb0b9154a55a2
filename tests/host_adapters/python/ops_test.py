"""Every op of torch.ops.octavo under torch's own checker, and on fake GPUs of a tracing compiler.
The inputs serve ops_arguments_test.py, too."""
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

import octavo
from conftest import msamp, session, te
from octavo import _abi
from octavo.torch import ops
from octavo.torch.ranks.ddp import plan_stages

N, K, M = 24, 40, 5
OPS = torch.ops.octavo


def prepared(overrides, optimizer=True):
    model = nn.Sequential(nn.Linear(K, N), nn.Linear(N, N))
    adam = torch.optim.AdamW(model.parameters()) if optimizer else None
    model, adam = octavo.prepare(model, adam, None, overrides=overrides)
    return model, session(model)


def weight_of(s, linear=0):
    """The weight that the ops of a linear take: torch's own, or none for one in slots."""
    w = s.weights[linear]
    return w.parameter.detach() if w.is_native else None


def natives(s, ids):
    """(weights, gradients) of torch that an optimizer step of these parameters takes."""
    weights = [s.weights[i] for i in ids]
    for w in weights:
        if w.is_native:
            w.parameter.grad = torch.zeros(w.parameter.shape)
    return s._natives(weights)


def hyper(groups):
    return torch.tensor([[1e-3, 0.9, 0.999, 1e-8, 0.01, 1.0, 0.0, 0.0]] * groups)


def saved_of(s, rows, linear=0, flags=0):
    return OPS.linear_forward(s.number, linear, flags, -1, torch.randn(rows, K), weight_of(s), None)


def sample_linear_forward():
    s = prepared(te())[1]
    for flags, dtype in ((0, torch.float32), (ops.NO_BACKWARD, torch.bfloat16),
                         (ops.NO_BACKWARD | ops.QUIET, torch.float16)):
        yield s, (s.number, 0, flags, ops.ASK_TORCH, torch.randn(2, M, K, dtype=dtype), weight_of(s),
                  torch.randn(N))


def sample_linear_backward():
    for overrides in (te("block"), msamp("O2")):
        s = prepared(overrides)[1]
        saved = saved_of(s, M)[1]
        for wanted in (7, ops.WANT_DX):
            yield s, (s.number, 0, _abi.BACKWARD_OVERWRITE, wanted, torch.randn(M, N), None, saved,
                      weight_of(s), torch.zeros(1, dtype=torch.uint8))


def sample_fused_forward():
    s = prepared(te("current"))[1]
    for op in (ops.PROLOGUE_LAYER_NORM, ops.PROLOGUE_RMS_NORM):
        beta = torch.randn(K) if op == ops.PROLOGUE_LAYER_NORM else None
        yield s, (s.number, 0, 0, op, 1e-5, -1, torch.randn(M, K), torch.randn(K), beta,
                  weight_of(s), None)
    yield s, (s.number, 0, 0, ops.PROLOGUE_SWIGLU, 0.0, -1, torch.randn(M, 2 * K), None, None,
              weight_of(s), None)


def sample_mark_met():
    s = prepared(te())[1]
    for met in (0.0, 1.0):
        s.nonfinite.fill_(met)
        yield s, (s.number, torch.zeros(M, K), None, torch.zeros(N))


def sample_end_step():
    s = prepared(te())[1]
    yield s, (s.number,)


def sample_optimizer_step():
    s = prepared(msamp("O2"))[1]
    for ids in ([0], [0, 1, 2]):
        yield s, (s.number, ids, list(range(len(ids))), hyper(len(ids)), None, *natives(s, ids))


def sample_sum_of_squares():
    s = prepared(msamp("O2"))[1]
    yield s, (s.number, [0, 1], torch.zeros(1), *natives(s, [0, 1]))


def sample_prepare_step():
    s = prepared(msamp("O2"))[1]
    yield s, (s.number, torch.ones(2), torch.zeros(1, 1), torch.zeros(1), torch.zeros(1), hyper(3),
              0.5, 1.0)


def sample_read_parameter():
    s = prepared(msamp("O2"))[1]
    yield s, (s.number, 0, _abi.ROLE_WEIGHT, torch.zeros(N, K))


def sample_write_parameter():
    s = prepared(msamp("O2"))[1]
    yield s, (s.number, 0, _abi.ROLE_WEIGHT, torch.randn(N, K))


def sample_run_stage():
    s = prepared(msamp("O2"))[1]
    _, buffer, state = plan_stages(s.number, [0], 2)
    yield s, (s.number, [0], 0, 2, torch.zeros(buffer, dtype=torch.uint8),
              torch.zeros(buffer, dtype=torch.uint8), torch.zeros(state, dtype=torch.uint8))


def shards(ranks=2):
    """(session, the shards of a weight, the bytes of a packet) of a backend that casts shards."""
    s = prepared(te("current"), optimizer=False)[1]
    parts = weight_of(s).chunk(ranks)
    packet_bytes, refusal = ops.plan_shard(s.number, 0, parts[0].shape[0])
    assert refusal is None
    return s, parts, packet_bytes


def sample_shard_measure():
    s, parts, _ = shards()
    yield s, (s.number, [0], [parts[0]], torch.zeros(1))


def sample_shard_cast():
    s, parts, size = shards()
    yield s, (s.number, 0, parts[0], torch.ones(1), torch.zeros(size, dtype=torch.uint8))


def sample_shard_gathered():
    s, _, size = shards()
    for packets in (2 * size, 0):
        yield s, (s.number, 0, torch.zeros(packets, dtype=torch.uint8), torch.ones(1))


def sample_hold_slots():
    s = prepared(te("current"))[1]
    held = {i: t for i, t in enumerate(s.tensors) if t is not None}
    yield s, (s.number, list(held), list(held.values()))


SAMPLES = {n.removeprefix("sample_"): f for n, f in globals().items() if n.startswith("sample_")}


def names():
    ops.library()
    schemas = torch._C._jit_get_all_schemas()
    return sorted({s.name.removeprefix("octavo::") for s in schemas
                   if s.name.startswith("octavo::")})


def test_every_op_has_a_sample():
    assert names() == sorted(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name):
    """All four tests of torch's checker: schema, autograd registration, fake tensors, AOT."""
    count = 0
    for s, arguments in SAMPLES[name]():
        results = torch.library.opcheck(getattr(OPS, name).default, arguments)
        assert set(results.values()) == {"SUCCESS"} and len(results) == 4, results
        count += 1
    assert count > 0


@pytest.mark.parametrize("name", SAMPLES)
def test_every_op_runs_on_every_device(name):
    """The same function for the CPU, CUDA and torch's PrivateUse1. end_step has no tensor."""
    ops.library()
    for key in ("CPU", "CUDA", "PrivateUse1"):
        assert torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"octavo::{name}", key), key


def tensors(results):
    return [t for t in tree_leaves(results) if t is not None]


def layout(results):
    return [(t.shape, t.dtype, t.stride()) for t in tensors(results)]


@pytest.mark.parametrize("name", SAMPLES)
def test_fake_tensors_stay_on_their_device(name):
    """A compiler for cuda:0 and cuda:1 sees results there, shaped as the real ones, without a GPU."""
    ops.library()
    op = getattr(OPS, name).default
    for _, arguments in SAMPLES[name]():
        expected = layout(op(*arguments))
        assert len(expected) == len(op._schema.returns)
        for device in ("cuda:0", "cuda:1")[:torch.cuda.device_count() or 2]:
            with FakeTensorMode():
                found = op(*tree_map_only(torch.Tensor, lambda t: torch.empty_strided(
                    t.shape, t.stride(), dtype=t.dtype, device=device), arguments))
            assert {str(t.device) for t in tensors(found)} <= {device}
            assert layout(found) == expected
