"""Octavo under Accelerate: octavo.accelerate, and octavo.prepare before accelerator.prepare."""
import pathlib
import sys

import pytest
import torch

import fake_device
import octavo
from conftest import kind, msamp, session, te
from octavo import _abi
from octavo.errors import UnsupportedError
from octavo.torch import ops

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")
import octavo.accelerate  # noqa: E402  needs accelerate

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"))
import tiny_gpt  # noqa: E402

STEPS, LAST = 200, 40
LAYERS = 9  # linears of tiny_gpt, all of them
BACKENDS = {"te": te("delayed"), "msamp": msamp("O2")}


@pytest.fixture(autouse=True)
def one_accelerator():
    """Accelerate keeps its settings for the process: each test begins without."""
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def accelerator(**settings):
    settings = {"mixed_precision": "bf16", "cpu": kind() == "cpu", **settings}
    return accelerate.Accelerator(**settings)


def made(lr=3e-3):
    model = tiny_gpt.Gpt()
    return model, torch.optim.AdamW(model.parameters(), lr=lr)


def train(a, model, optimizer, loader):
    losses = []
    for tokens in loader:
        with a.accumulate(model):
            loss = model(tokens)
            a.backward(loss)
            if a.sync_gradients:
                a.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def final(losses):
    return sum(losses[-LAST:]) / LAST


@pytest.fixture(scope="module")
def bf16():
    """The last losses of the same training without Octavo."""
    a = accelerator()
    model, optimizer = a.prepare(*made())
    return final(train(a, model, optimizer, tiny_gpt.batches(STEPS)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_final_loss_is_that_of_bf16(bf16, backend):
    a = accelerator()
    model, optimizer = octavo.accelerate.prepare(a, *made(), overrides=BACKENDS[backend])
    losses = train(a, model, optimizer, tiny_gpt.batches(STEPS))
    assert losses[0] > 1.5 * bf16 > 1.5
    assert final(losses) == pytest.approx(bf16, rel=0.01)
    assert final(losses) != bf16
    number = session(model).number
    assert len(session(model).sites) == LAYERS
    assert ops.calls(number, _abi.VERB_FORWARD) == LAYERS * STEPS
    assert ops.calls(number, _abi.VERB_END_STEP) == STEPS


@pytest.mark.parametrize("backend", BACKENDS)
def test_octavo_prepare_before_accelerator_prepare_trains_the_same(backend):
    a = accelerator()
    ours = octavo.accelerate.prepare(a, *made(), overrides=BACKENDS[backend])
    expected = train(a, *ours, tiny_gpt.batches(6))
    model, optimizer = octavo.prepare(*made(), overrides=BACKENDS[backend])
    model, optimizer = a.prepare(model, optimizer)
    assert train(a, model, optimizer, tiny_gpt.batches(6)) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_on_the_cpu_goes_to_the_device_first(backend):
    a = accelerator()
    with torch.device("cpu"):
        model, optimizer = made()
    model, optimizer = octavo.accelerate.prepare(a, fake_device.movable(model), optimizer,
                                                 overrides=BACKENDS[backend])
    train(a, model, optimizer, tiny_gpt.batches(1))
    assert session(model).device.type == kind()
    assert ops.calls(session(model).number, _abi.VERB_END_STEP) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_accumulation_steps_once_for_several_batches(backend):
    a = accelerator(gradient_accumulation_steps=3)
    model, optimizer = octavo.accelerate.prepare(a, *made(), overrides=BACKENDS[backend])
    plain = a.unwrap_model(model)
    assert isinstance(plain, tiny_gpt.Gpt)
    before = {k: v.clone() for k, v in plain.state_dict().items()}
    train(a, model, optimizer, tiny_gpt.batches(2))
    assert all(torch.equal(before[k], v) for k, v in plain.state_dict().items())
    train(a, model, optimizer, tiny_gpt.batches(4))
    assert ops.calls(session(plain).number, _abi.VERB_END_STEP) == 2
    assert ops.calls(session(plain).number, _abi.VERB_BACKWARD) == 6 * LAYERS
    assert not torch.equal(before["head.weight"], plain.state_dict()["head.weight"])


def test_clipping_bounds_the_gradient():
    for overrides in BACKENDS.values():
        a = accelerator()
        model, optimizer = octavo.accelerate.prepare(a, *made(), overrides=overrides)
        a.backward(model(tiny_gpt.text(8)))
        norm = a.clip_grad_norm_(model.parameters(), 0.01)
        again = a.clip_grad_norm_(model.parameters(), 1e9)
        assert norm > 0.02
        assert again.item() == pytest.approx(0.01, rel=1e-3)


def everything(model, optimizer):
    return {**octavo.state_dict(model), **{k: v.clone() for k, v in model.state_dict().items()},
            **{f"group {k}": torch.tensor([v]) for k, v in optimizer.param_groups[0].items()
               if isinstance(v, (int, float))}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_save_state_and_load_state_are_bit_identical(backend, tmp_path):
    def start():
        a = accelerator()
        return a, *octavo.accelerate.prepare(a, *made(), overrides=BACKENDS[backend])

    tokens = list(tiny_gpt.batches(8))
    a, model, optimizer = start()
    train(a, model, optimizer, tokens[:4])
    a.save_state(str(tmp_path))
    saved = everything(model, optimizer)
    losses = train(a, model, optimizer, tokens[4:])
    expected = everything(model, optimizer)

    b, other, its_optimizer = start()
    b.load_state(str(tmp_path))
    loaded = everything(other, its_optimizer)
    assert saved.keys() == loaded.keys()
    for key, value in saved.items():
        assert torch.equal(value.view(torch.uint8), loaded[key].view(torch.uint8)), key
    assert train(b, other, its_optimizer, tokens[4:]) == losses
    after = everything(other, its_optimizer)
    for key, value in expected.items():
        assert torch.equal(value.view(torch.uint8), after[key].view(torch.uint8)), key
    assert not torch.equal(saved["head.weight"], after["head.weight"])


def test_accelerates_own_fp8_is_refused():
    class Fp8Accelerator:
        """Stands for Accelerator(mixed_precision="fp8"), which itself asks for packages and devices
        that need not be here."""
        mixed_precision = "fp8"

        def prepare(self, *objects):
            raise AssertionError("prepared")

    assert_refused(Fp8Accelerator(), 'found mixed_precision "fp8".*choose bf16')


def test_what_the_launcher_exports_for_fp8_is_refused(monkeypatch):
    """By this variable Accelerate converts models whatever the precision of the script is."""
    a = accelerator()
    monkeypatch.setenv("ACCELERATE_FP8_BACKEND", "AO")
    assert_refused(a, "found ACCELERATE_FP8_BACKEND=AO: Accelerate itself .*octavo run")


def assert_refused(accelerator, match):
    model, optimizer = made()
    before = {n: type(m) for n, m in model.named_modules()}
    with pytest.raises(UnsupportedError, match=match):
        octavo.accelerate.prepare(accelerator, model, optimizer, overrides=te())
    assert {n: type(m) for n, m in model.named_modules()} == before
    assert "octavo_session" not in vars(model)


@pytest.mark.parametrize("name, match", [
    ("FSDP", r"found FullyShardedDataParallelPlugin\(fsdp_version=1\); set fsdp_version=2"),
    ("DEEPSPEED", "found DEEPSPEED;.*octavo.deepspeed.initialize"), ("MEGATRON_LM", "found MEGATRON_LM; leave")])
def test_plugins_that_octavo_does_not_follow_are_refused(name, match):
    class Plugged:
        """Stands for an Accelerator with one of these plugins, which ask for packages and devices that need
        not be here."""
        mixed_precision, is_fsdp2 = "no", False
        distributed_type = accelerate.DistributedType[name]

        def prepare(self, *objects):
            raise AssertionError("prepared")

    assert_refused(Plugged(), match)
