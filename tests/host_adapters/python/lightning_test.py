"""Octavo under Lightning: OctavoPrecision."""
import logging
import pathlib
import sys
import warnings

import pytest
import torch
from torch.utils.data import DataLoader

import fake_device
import octavo
from conftest import kind, msamp, session, te
from octavo import _abi
from octavo.errors import StateError, UnsupportedError
from octavo.torch import ops

lightning = pytest.importorskip("lightning", reason="lightning is not installed")
from octavo.lightning import OctavoPrecision  # noqa: E402  needs lightning

sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "samples" / "python"))
import tiny_gpt  # noqa: E402

for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
STEPS, ROWS, LAST = 200, 16, 40
LAYERS = 9  # linears of tiny_gpt, all of them
BACKENDS = {"te": te("delayed"), "msamp": msamp("O2")}


class Module(lightning.LightningModule):
    def __init__(self, schedule=False, optimizer=torch.optim.AdamW):
        super().__init__()
        self.gpt = tiny_gpt.Gpt()
        self.losses, self.norms, self.rates, self.autocast = [], [], [], set()
        self.schedule, self.optimizer = schedule, optimizer

    def training_step(self, tokens, index):
        is_on = torch.is_autocast_enabled(kind())
        self.autocast.add(torch.get_autocast_dtype(kind()) if is_on else None)
        loss = self.gpt(tokens)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, tokens, index):
        self.log("validation", self.gpt(tokens))

    def on_before_optimizer_step(self, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])

    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        total = sum(p.grad.norm().item()**2 for p in self.parameters() if p.grad is not None)
        self.norms.append(total**0.5)

    def configure_optimizers(self):
        optimizer = self.optimizer(self.parameters(), lr=3e-3)
        if not self.schedule:
            return optimizer
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


def fit(module, steps, folder, checkpoint=None, batches=None, **settings):
    """batches: of an epoch; without it one epoch has all steps."""
    settings = {"gradient_clip_val": 1.0, "enable_checkpointing": False, "logger": False, **settings}
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=1, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=str(folder), **settings)
    loader = DataLoader(tiny_gpt.text((batches or steps) * ROWS), batch_size=ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on workers of the data loader
        trainer.fit(module, loader, ckpt_path=checkpoint)
    return trainer


def plugins(backend="te", **settings):
    return {"plugins": [OctavoPrecision(overrides=BACKENDS[backend])], **settings}


@pytest.fixture(scope="module")
def bf16(tmp_path_factory):
    """The last losses of the same training without Octavo."""
    module = Module()
    fit(module, STEPS, tmp_path_factory.mktemp("bf16"), precision="bf16-mixed")
    return sum(module.losses[-LAST:]) / LAST


@pytest.mark.parametrize("backend", BACKENDS)
def test_final_loss_is_that_of_bf16(bf16, backend, tmp_path):
    module = Module()
    fit(module, STEPS, tmp_path, **plugins(backend))
    final = sum(module.losses[-LAST:]) / LAST
    assert module.losses[0] > 1.5 * bf16 > 1.5
    assert final == pytest.approx(bf16, rel=0.01)
    assert final != bf16
    assert module.autocast == {torch.bfloat16}
    number = session(module).number
    assert ops.calls(number, _abi.VERB_FORWARD) == LAYERS * STEPS
    assert ops.calls(number, _abi.VERB_END_STEP) == STEPS


def everything(module):
    return {**octavo.state_dict(module), **{k: v.clone() for k, v in module.state_dict().items()}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_resuming_gives_the_same_bits(backend, tmp_path):
    def run(checkpoint=None):
        module = Module(schedule=True)
        saver = lightning.pytorch.callbacks.ModelCheckpoint(
            tmp_path, filename="{step}", every_n_train_steps=4, save_top_k=-1)
        fit(module, 8, tmp_path, checkpoint, batches=1, callbacks=[saver],
            enable_checkpointing=True, **plugins(backend))
        return module

    whole = run()
    resumed = run(str(tmp_path / "step=4.ckpt"))
    assert resumed.losses == whole.losses[4:]
    assert resumed.rates == whole.rates[4:]
    a, b = everything(whole), everything(resumed)
    assert a.keys() == b.keys() and len(a) > 20
    for key in a:
        assert torch.equal(a[key].view(torch.uint8), b[key].view(torch.uint8)), key
    saved = torch.load(tmp_path / "step=4.ckpt", weights_only=False)
    assert "OctavoPrecision" in saved


@pytest.mark.parametrize("backend", BACKENDS)
def test_schedules_and_clipping_reach_the_optimizer_that_steps(backend, tmp_path):
    module = Module(schedule=True)
    fit(module, 4, tmp_path, **plugins(backend, gradient_clip_val=0.01))
    assert module.rates == pytest.approx([3e-3 / (1 + i) for i in range(4)])
    assert module.norms == pytest.approx([0.01] * 4, rel=1e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_on_the_cpu_goes_to_the_device_first(backend, tmp_path):
    with torch.device("cpu"):
        module = fake_device.movable(Module())
    fit(module, 1, tmp_path, **plugins(backend))
    assert session(module).device.type == kind()
    assert ops.calls(session(module).number, _abi.VERB_END_STEP) == 1


def test_accumulated_batches_are_one_step(tmp_path):
    for backend in BACKENDS:
        module = Module()
        fit(module, 3, tmp_path, **plugins(backend, accumulate_grad_batches=2, max_epochs=2))
        number = session(module).number
        assert ops.calls(number, _abi.VERB_BACKWARD) == LAYERS * len(module.losses)
        assert len(module.losses) > ops.calls(number, _abi.VERB_END_STEP) == 3


def test_a_step_with_inf_is_skipped(tmp_path):
    """The mark is set during the step's own backward, inside Lightning's closure."""
    module = Module()
    count = []

    def mark(gradient):
        count.append(1)
        if len(count) == 2:
            session(module).nonfinite.fill_(1)

    module.gpt.norm.weight.register_hook(mark)
    before = []
    module.on_before_optimizer_step = lambda _: before.append(module.gpt.norm.weight.clone())
    fit(module, 4, tmp_path, **plugins())
    assert session(module).skipped_steps == 1
    assert not torch.equal(before[0], before[1])
    assert torch.equal(before[1], before[2])
    assert not torch.equal(before[2], before[3])


def test_validation_and_a_second_fit_use_the_same_conversion(tmp_path):
    module = Module()
    trainer = fit(module, 2, tmp_path, **plugins())
    first = session(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = trainer.validate(module, DataLoader(tiny_gpt.text(16), batch_size=16),
                                  verbose=False)
    assert 0 < result[0]["validation"] < 5
    fit(module, 2, tmp_path, **plugins())
    assert session(module) is first
    assert ops.calls(first.number, _abi.VERB_END_STEP) == 4


def test_the_report_names_every_layer(tmp_path):
    plugin = OctavoPrecision(overrides=te())
    with pytest.raises(StateError, match="trainer.fit"):
        plugin.report()
    fit(Module(), 1, tmp_path, plugins=[plugin])
    assert plugin.report().count(" fp8 ") >= LAYERS


def test_optimizers_that_cannot_be_joined_are_refused(tmp_path):
    with pytest.raises(UnsupportedError, match="LBFGS"):
        fit(Module(optimizer=torch.optim.LBFGS), 1, tmp_path, **plugins("te"))
    with pytest.raises(UnsupportedError, match="AdamW"):
        fit(Module(optimizer=torch.optim.SGD), 1, tmp_path, **plugins("msamp"))


class Kept(lightning.pytorch.loggers.logger.DummyLogger):
    def __init__(self):
        super().__init__()
        self.steps = {}

    def log_metrics(self, metrics, step=None):
        if any(name.startswith("octavo/") for name in metrics):
            assert step not in self.steps
            self.steps[step] = metrics


def test_telemetry_goes_to_the_loggers(tmp_path):
    logger = Kept()
    precision = OctavoPrecision(overrides=te(telemetry=True), record_every_n_steps=2)
    fit(Module(), 5, tmp_path, plugins=[precision], logger=logger)
    assert sorted(logger.steps) == [0, 2, 4]
    assert all(20 < metrics["octavo/sqnr_db/w/gpt.head.weight"] < 40 for metrics in logger.steps.values())


class Finetuned(lightning.LightningModule):
    """A backbone that BackboneFinetuning freezes, and a head."""

    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU())
        self.head, self.losses = torch.nn.Linear(64, 32), []

    def training_step(self, x, index):
        loss = (self.head(self.backbone(x)).float() - x.roll(1, 1)).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW([p for p in self.parameters() if p.requires_grad], lr=1e-2)


def finetuned(**settings):
    """(losses, movement of the backbone in each epoch)."""
    torch.manual_seed(3)
    module, moved = Finetuned(), []
    weights = [module.backbone[0].weight.detach().clone()]

    class Look(lightning.Callback):
        def on_train_epoch_end(self, trainer, module):
            weights.append(module.backbone[0].weight.detach().clone())
            moved.append((weights[-1] - weights[-2]).norm().item())

    callbacks = [lightning.pytorch.callbacks.BackboneFinetuning(
        unfreeze_backbone_at_epoch=1, backbone_initial_ratio_lr=1.0, should_align=False), Look()]
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=callbacks,
                                enable_progress_bar=False, enable_model_summary=False, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(module, DataLoader(torch.randn(256, 32), batch_size=32))
    return module.losses, moved


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backbone_that_is_unfrozen_trains(backend):
    losses, moved = finetuned(precision="bf16-mixed")
    mine, its = finetuned(plugins=[OctavoPrecision(overrides=BACKENDS[backend])])
    assert moved[0] == 0 and moved[1] > 1
    assert its == pytest.approx(moved, rel=0.05, abs=0.01)  # slots of msamp round frozen weights, too
    assert mine == pytest.approx(losses, rel=0.05)
