"""octavo.telemetry: counts of casts, recorded in some steps, that change nothing."""
import json
import math

import pytest
import torch
from torch import nn

import octavo
from conftest import msamp, session, te

ROWS, K, N = 32, 48, 64


def model_of(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(K, N), nn.ReLU(), nn.Linear(N, K))


def batch(step):
    g = torch.Generator().manual_seed(step)
    # Wide enough that codes of small elements are 0, and in step 3 larger than any amax before.
    x = torch.randn(ROWS, K, generator=g) * torch.logspace(-6, 0, K)
    return x * (64 if step == 3 else 1)


def train(model, optimizer, steps, first=0, after=lambda step: None):
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = model(batch(step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after(step)
    return losses


def prepared(telemetry, every=0, **options):
    model = model_of()
    return octavo.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1),
                          overrides=te(telemetry=telemetry, **options), record_every_n_steps=every)


def cast_of(record, operand, tensor):
    return next(c for c in record["casts"] if (c["operand"], c["tensor"]) == (operand, tensor))


def expect_counts_of(cast, value, dtype=torch.float8_e4m3fn):
    """With torch's own cast. Sums of float32 in another order: n terms differ by less than n ulp of
    the sum of absolute values, here that of squares."""
    most = torch.finfo(dtype).max
    scaled = value.double() * cast["scale"]
    codes = scaled.clamp(-most, most).float().to(dtype).double()
    assert cast["saturated"] == (scaled.abs() > most).sum()
    assert cast["underflow"] == ((value != 0) & (codes == 0)).sum()
    noise = (value.double() - codes / cast["scale"]).square().sum()
    tolerance = value.numel() * 2.0**-23
    ratio = value.double().square().sum() / noise
    assert cast["sqnr_db"] == pytest.approx(10 * math.log10(ratio), abs=10 / math.log(10) * 2 * tolerance)


def test_counts_are_those_of_torch_s_cast():
    model, optimizer = prepared(True, 1)
    assert octavo.telemetry(model) is None and octavo.telemetry(model, flat=True) == {}
    seen = []

    def look(step):
        record = octavo.telemetry(model)
        assert record["step"] == step and record["skipped_steps"] == 0
        assert {(c["operand"], c["tensor"]) for c in record["casts"]} == {
            *((o, t) for o in ("x", "dy") for t in ("0", "2")), ("w", "0.weight"), ("w", "2.weight")}
        x = cast_of(record, "x", "0")
        assert x["amax"] == batch(step).abs().max()
        expect_counts_of(x, batch(step))
        seen.append(x)

    weights = model[0].weight.detach().clone()
    train(model, optimizer, 1, after=look)
    expect_counts_of(cast_of(octavo.telemetry(model), "w", "0.weight"), weights)
    train(model, optimizer, 4, first=1, after=look)
    assert seen[3]["saturated"] > 0 == seen[1]["saturated"] and all(x["underflow"] > 0 for x in seen)


def test_only_every_nth_step_records():
    model, optimizer = prepared(True, 3)
    noise = next(session(model).tensors[s.id] for s in session(model).slots if s.name == "x/signal")
    steps = []
    for step in range(8):
        loss = model(batch(step)).square().mean()
        assert bool(noise.any()) == (step % 3 == 0)
        loss.backward()
        optimizer.step()
        assert not noise.any()
        steps.append(octavo.telemetry(model)["step"])
    assert steps == [0, 0, 0, 3, 3, 3, 6, 6]


def test_nothing_records_without_it():
    model, optimizer = prepared(True)
    model(batch(0)).square().mean().backward()
    s = session(model)
    assert not any(s.tensors[slot.id].any() for slot in s.slots
                   if slot.name.split("/")[-1] in ("saturated", "underflow", "signal", "noise"))
    with pytest.raises(octavo.StateError, match=r"give octavo.prepare\(..., record_every_n_steps=25\)"):
        octavo.telemetry(model)


@pytest.mark.parametrize("recipe", ["delayed", "current", "block", "mx", "rowwise"])
def test_no_bit_depends_on_it(recipe):
    runs = []
    for telemetry, every in ((False, 0), (True, 0), (True, 2)):
        model, optimizer = prepared(telemetry, every, recipe=recipe)
        runs.append((train(model, optimizer, 5), {k: v.clone() for k, v in model.state_dict().items()}))
    for losses, weights in runs[1:]:
        assert losses == runs[0][0]
        assert all(torch.equal(weights[name], value) for name, value in runs[0][1].items())


def test_maxima_and_scales_without_counts():
    model, optimizer = prepared(False, 2)
    train(model, optimizer, 3)
    record = octavo.telemetry(model)
    assert cast_of(record, "x", "0").keys() == {"operand", "tensor", "amax", "scale"}
    flat = octavo.telemetry(model, flat=True)
    assert flat["octavo/amax/x/0"] == batch(2).abs().max()
    assert all(type(v) is float for v in flat.values())


def test_a_writer_of_metrics():
    written = {}

    class Writer:  # with the function of torch.utils.tensorboard.SummaryWriter
        def add_scalar(self, name, value, step):
            written[name, step] = value

    writer, config = Writer(), None
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    overrides = te(telemetry=True)
    # [watch]
    model, optimizer = octavo.prepare(model, optimizer, config, overrides=overrides, record_every_n_steps=25)
    for step in range(100):
        optimizer.zero_grad()
        model(batch(step)).square().mean().backward()
        optimizer.step()
        if step % 25 == 0:
            for name, value in octavo.telemetry(model, flat=True).items():
                writer.add_scalar(name, value, step)
    # [/watch]
    assert {step for _, step in written} == {0, 25, 50, 75}
    assert ("octavo/saturated/dy/2", 75) in written


def test_msamp_counts_the_casts_of_x_and_dy():
    model = model_of()
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0),
                                      overrides=msamp("O2", telemetry=True), record_every_n_steps=1)
    seen = []

    def look(step):
        record = octavo.telemetry(model)
        counted = [c for c in record["casts"] if "saturated" in c]
        assert {(c["operand"], c["tensor"]) for c in counted} == {(o, t) for o in ("x", "dy") for t in ("0", "2")}
        # In the warm-up a tensor is cast with its own scale: no element saturates, E4M3 keeps 4 bits.
        assert all(c["saturated"] == 0 and c["sqnr_db"] > 20 for c in counted), counted
        seen.append(record["step"])
    train(model, optimizer, 3, after=look)
    assert seen == [0, 1, 2]


def test_a_compiled_model_records_in_the_same_steps():
    records = []
    for compiled in (False, True):
        model, optimizer = prepared(True, 2)
        run = torch.compile(model, backend="aot_eager") if compiled else model
        taken = []
        train(run, optimizer, 4, after=lambda step: taken.append(octavo.telemetry(model)))
        records.append(taken)
    assert records[0] == records[1]


def test_a_next_stage_and_a_copy():
    model, optimizer = prepared(True, 1)
    train(model, optimizer, 1)
    model, optimizer = octavo.prepare(model, optimizer)
    with pytest.raises(octavo.StateError):
        octavo.telemetry(model)
    model, optimizer = octavo.prepare(model, optimizer, record_every_n_steps=1)
    train(model, optimizer, 1)
    assert octavo.telemetry(model)["step"] == 0


@pytest.mark.parametrize("wrong", [-1, 2.5, "often", None])
def test_steps_that_are_none(wrong):
    with pytest.raises(octavo.InvalidError, match="record_every_n_steps: expected a number of steps from 0"):
        octavo.prepare(model_of(), None, overrides=te(), record_every_n_steps=wrong)


def test_a_trace_of_a_step(tmp_path):
    """trace.directory in this host: the verbs and kernels of the second step."""
    config = tmp_path / "octavo.toml"
    config.write_text(f'mixed_precision = "fp8"\nfp8.backend = "te"\n[trace]\ndirectory = "{tmp_path}/trace"\n')
    model = model_of()
    model, optimizer = octavo.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), str(config))
    train(model, optimizer, 3)
    file, = (tmp_path / "trace").iterdir()
    events = json.loads(file.read_text())
    forward = [e["args"] for e in events if e["name"] == "linear_forward"]
    assert forward == [{"linear": "0", "x": f"f32[{ROWS},{K}]"}, {"linear": "2", "x": f"f32[{ROWS},{N}]"}]
    assert [e["args"]["number"] for e in events if e["name"] == "step"] == [2]
    assert {"quantize", "gemm"} <= {e["name"] for e in events if e.get("cat") == "kernel"}
