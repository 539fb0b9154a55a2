"""Usage patterns: dtypes, autocast and inference."""
import torch
from torch import nn

import octavo
from conftest import kind
from patterns import (BOUND, PLAIN, adamw, batch, compare, error, learn, near, network, pattern,
                      plain_output, start, values)

AREA = "Precision and inference"


def under_autocast(dtype):
    def loss_of(call):
        x, target = batch()
        with torch.autocast(kind(), dtype):
            y = call(x)
            assert y.dtype == dtype
            return (y.float() - target).square().mean()
    return loss_of


@pattern(AREA, "bf16 autocast")
def bf16(prepare):
    compare(prepare, lambda p: learn(*start(p), loss_of=under_autocast(torch.bfloat16)))


@pattern(AREA, "fp16 autocast without a GradScaler")
def fp16(prepare):
    compare(prepare, lambda p: learn(*start(p), loss_of=under_autocast(torch.float16)))


@pattern(AREA, "autocast(enabled=False) inside autocast")
def island(prepare):
    def loss_of(model):
        x, target = batch()
        with torch.autocast(kind(), torch.bfloat16):
            y = model[1](model[0](x))
            with torch.autocast(kind(), enabled=False):
                z = model[2](y.float())
        assert (y.dtype, z.dtype) == (torch.bfloat16, torch.float32)
        return (z - target).square().mean()
    compare(prepare, lambda p: learn(*start(p), loss_of=loss_of))


def of_dtype(dtype, optimizer=adamw):
    def loop(p):
        x, target = (t.to(dtype) for t in batch())
        return learn(*start(p, network().to(dtype), optimizer),
                     loss_of=lambda call: (call(x).float() - target.float()).square().mean())
    return loop


@pattern(AREA, "model.bfloat16() before octavo.prepare")
def cast_before(prepare):
    # A bf16 weight moves by whole units of 2^-9: steps of 1e-2 round to these in both twins, which
    # doubles the noise of each step.
    compare(prepare, of_dtype(torch.bfloat16), bound=2 * BOUND)


@pattern(AREA, "model.half() before octavo.prepare, SGD")
def half_before(prepare):
    compare(prepare, of_dtype(torch.float16, lambda m: torch.optim.SGD(m.parameters(), lr=0.5)))


@pattern(AREA, "model.double() before octavo.prepare")
def double_before(prepare):
    compare(prepare, of_dtype(torch.float64))


@pattern(AREA, "norms in fp32, linears in bf16")
def mixed(prepare):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = network().bfloat16()
            self.norm = nn.LayerNorm(32)

        def forward(self, x):
            return self.body(self.norm(x).bfloat16()).float()
    compare(prepare, lambda p: learn(*start(p, Mixed())), bound=2 * BOUND)  # as in cast_before


def cast_after(change):
    def run(prepare):
        model, optimizer = start(prepare)
        model = change(model)
        dtype = model[0].weight.dtype
        x, target = (t.to(dtype) for t in batch())
        losses = learn(model, optimizer, loss_of=lambda call: (call(x) - target).square().mean())
        assert losses[-1] < 0.9 * losses[0]
    return run


pattern(AREA, "model.bfloat16() after octavo.prepare, then training")(
    cast_after(nn.Module.bfloat16))
pattern(AREA, "model.double() after octavo.prepare, then training")(cast_after(nn.Module.double))


@pattern(AREA, "model.bfloat16(), then octavo.prepare again")
def cast_again(prepare):
    def loop(p):
        model, _ = start(p)
        model = model.bfloat16()
        model, optimizer = p.again(model, adamw(model))
        assert model[0].weight.dtype == torch.bfloat16
        x, target = batch()
        return learn(model, optimizer, loss_of=lambda call: (
            call(x.bfloat16()).float() - target).square().mean())
    compare(prepare, loop, bound=2 * BOUND)  # as in cast_before


@pattern(AREA, "float64 inputs")
def double_inputs(prepare):
    model, _ = start(prepare)
    model(batch()[0].double())


@pattern(AREA, "bf16 inputs to an fp32 model")
def bf16_inputs(prepare):
    model, _ = start(prepare)
    learn(model, adamw(model), 2)
    x = batch()[0]
    with torch.no_grad():
        y = model(x.bfloat16())
        assert y.dtype == torch.bfloat16
        near(y.float(), plain_output(model, x))


@pattern(AREA, "model.eval() and torch.no_grad()")
def evaluation(prepare):
    model, optimizer = start(prepare)
    learn(model, optimizer)
    before, x = values(model), batch(seed=9)[0]
    model.eval()
    with torch.no_grad():
        first, again = model(x), model(x)
        assert torch.equal(first, again)
        near(first, plain_output(model, x))
        # Rows do not depend on the rest of the batch: the scales are those of training.
        assert torch.equal(model(x[:5]), first[:5])
    assert all(torch.equal(v, before[k]) for k, v in values(model).items())


@pattern(AREA, "torch.inference_mode(), then training again")
def inference(prepare):
    def run(infers):
        model, optimizer = start(prepare)
        losses = learn(model, optimizer, 10)
        if infers:
            with torch.inference_mode():
                near(model.eval()(batch()[0]), plain_output(model, batch()[0]))
            model.train()
        return losses + learn(model, optimizer, 10)
    assert run(True) == run(False)


@pattern(AREA, "inference only: octavo.prepare(model) without an optimizer")
def inference_only(prepare):
    trained, optimizer = start(PLAIN)
    learn(trained, optimizer)
    x = batch()[0]
    expected = trained(x).detach()
    model, _ = prepare(trained.eval().requires_grad_(False))
    with torch.no_grad():
        for _ in range(2):
            model.train()(x)  # records what scales have to fit
            if prepare.overrides:
                octavo.step(model)
        near(model.eval()(x), expected)


@pattern(AREA, "torch.set_float32_matmul_precision and set_default_dtype")
def switches(prepare):
    kept = torch.get_float32_matmul_precision()
    expected = learn(*start(prepare))
    try:
        torch.set_float32_matmul_precision("medium")
        assert learn(*start(prepare)) == expected
        torch.set_default_dtype(torch.bfloat16)
        model, optimizer = start(prepare, network().float())
        x, target = (t.float() for t in batch())
        losses = learn(model, optimizer, loss_of=lambda m: error(m, x, target))
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision(kept)
    assert losses[-1] < 0.9 * losses[0]


@pattern(AREA, "deterministic algorithms: two runs with one seed")
def deterministic(prepare):
    torch.use_deterministic_algorithms(True)
    try:
        runs = [(learn(model, optimizer), values(model)) for model, optimizer in (
            start(prepare), start(prepare))]
    finally:
        torch.use_deterministic_algorithms(False)
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(v, runs[1][1][k]) for k, v in runs[0][1].items())


@pattern(AREA, "anomaly detection (torch.autograd.set_detect_anomaly)")
def anomaly(prepare):
    with torch.autograd.set_detect_anomaly(True):
        compare(prepare, lambda p: learn(*start(p)))


@pattern(AREA, "a model made under inference_mode")
def inference_model(prepare):
    with torch.inference_mode():
        model, _ = prepare(network())
        x = batch()[0]
        model(x)
        near(model.eval()(x), network()(x), 0.2)
