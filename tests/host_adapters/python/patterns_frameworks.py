"""Usage patterns: Accelerate and Lightning."""
import contextlib
import logging
import tempfile
import warnings

import accelerate
import lightning
import torch
from lightning.pytorch import callbacks
from torch.utils.data import DataLoader, TensorDataset

import octavo.accelerate
from octavo.lightning import OctavoPrecision
from conftest import kind
from patterns import (PLAIN, STEPS, adamw, batch, boundaries, check_fp8, error, follows,
                      is_prepared, network, pattern, start, values)
from patterns_averages import close

for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
ACCELERATE, LIGHTNING = "Accelerate", "Lightning"


@contextlib.contextmanager
def accelerator(**settings):
    """Accelerate keeps its settings for the process; here they end with the block."""
    try:
        yield accelerate.Accelerator(**{"mixed_precision": "bf16", "cpu": kind() == "cpu", **settings})
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.state.GradientState._reset_state()


def prepared(a, prepare, *rest):
    """octavo.accelerate.prepare of the model of all patterns, or the plain accelerator.prepare."""
    model = network()
    if prepare.overrides is None:
        return a.prepare(model, adamw(model), *rest)
    return octavo.accelerate.prepare(a, model, adamw(model), *rest, overrides=prepare.overrides)


def accelerated(a, model, optimizer, batches, clip=None, scheduler=None):
    losses = []
    for x, target in batches:
        with a.accumulate(model):
            loss = error(lambda x: model(x).float(), x, target)
            a.backward(loss)
            if clip and a.sync_gradients:
                assert a.clip_grad_norm_(model.parameters(), clip) > 0
            optimizer.step()
            if scheduler:
                scheduler.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def accelerating(settings, clip=None, parts=1, steps=STEPS):
    def run(prepare):
        runs = []
        for p in (prepare, PLAIN):
            with accelerator(**settings) as a:
                model, optimizer = prepared(a, p)
                halves = list(zip(*(t.chunk(parts) for t in batch())))
                runs.append(accelerated(a, model, optimizer, halves * steps, clip))
                plain = a.unwrap_model(model)
                check_fp8(plain, boundaries(plain), steps)
        follows(*(r[::parts] for r in runs))
    return run


pattern(ACCELERATE, "octavo.accelerate.prepare, bf16")(accelerating({}))
pattern(ACCELERATE, "octavo.accelerate.prepare, full precision")(accelerating(
    {"mixed_precision": "no"}))
pattern(ACCELERATE, "gradient accumulation (accelerator.accumulate)")(accelerating(
    {"gradient_accumulation_steps": 2}, parts=2))
pattern(ACCELERATE, "accelerator.clip_grad_norm_")(accelerating({}, clip=0.05))


@pattern(ACCELERATE, "octavo.prepare, then accelerator.prepare")
def prepared_first(prepare):
    runs = []
    for p in (prepare, PLAIN):
        with accelerator() as a:
            model, optimizer = a.prepare(*start(p))
            runs.append(accelerated(a, model, optimizer, [batch()] * STEPS))
    follows(*runs)


@pattern(ACCELERATE, "accelerator.prepare, then octavo.prepare")
def prepared_last(prepare):
    with accelerator() as a:
        model = network()
        model, optimizer = a.prepare(model, adamw(model))
        model, optimizer = prepare(model, optimizer)
        losses = accelerated(a, model, optimizer, [batch()] * STEPS)
        assert losses[-1] < 0.9 * losses[0]


@pattern(ACCELERATE, "save_state and load_state: the same bits afterwards")
def save_state(prepare):
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for loads in (False, True):
            with accelerator() as a:
                model, optimizer = prepared(a, prepare)
                if loads:
                    a.load_state(folder)
                else:
                    accelerated(a, model, optimizer, [batch()] * 5)
                    a.save_state(folder)
                losses = accelerated(a, model, optimizer, [batch()] * 5)
                results.append((losses, values(a.unwrap_model(model))))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(v, results[1][1][k]) for k, v in results[0][1].items())


@pattern(ACCELERATE, "save_model, get_state_dict and unwrap_model")
def save_model(prepare):
    with accelerator() as a, tempfile.TemporaryDirectory() as folder:
        model, optimizer = prepared(a, prepare)
        accelerated(a, model, optimizer, [batch()] * 5)
        expected = values(a.unwrap_model(model))
        plain = network()
        plain.load_state_dict(a.get_state_dict(model))
        close(values(plain), expected, writes=0)
        a.save_model(model, folder)
        accelerate.load_checkpoint_in_model(plain, folder)
        close(values(plain), expected, writes=0)


@pattern(ACCELERATE, "a scheduler and a DataLoader in accelerator.prepare")
def scheduled(prepare):
    runs = []
    for p in (prepare, PLAIN):
        with accelerator() as a:
            model = network()
            optimizer = adamw(model)
            scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer,
                                                          lambda step: 1 / (1 + step / 8))
            loader = DataLoader(TensorDataset(*(t.repeat(STEPS, 1) for t in batch())), 64)
            if p.overrides:
                made = octavo.accelerate.prepare(a, model, optimizer, loader, scheduler,
                                                 overrides=p.overrides)
            else:
                made = a.prepare(model, optimizer, loader, scheduler)
            runs.append(accelerated(a, *made[:3], scheduler=made[3]))
            assert made[1].param_groups[0]["lr"] == 1e-2 / (1 + STEPS / 8)
    follows(*runs)


@pattern(ACCELERATE, "fp16 with the accelerator's GradScaler")
def fp16(prepare):
    with accelerator(mixed_precision="fp16") as a:
        a.scaler = torch.amp.GradScaler(kind(), init_scale=2.0**12)  # made for GPUs only
        model, optimizer = prepared(a, prepare)
        losses = accelerated(a, model, optimizer, [batch()] * STEPS, clip=1.0)
        assert losses[-1] < 0.9 * losses[0]


class Module(lightning.LightningModule):
    """The model of all patterns; settings of Lightning's own optimizer loop as arguments."""

    def __init__(self, optimizer=adamw, schedules=False):
        super().__init__()
        self.net, self.losses, self.make, self.schedules = network(), [], optimizer, schedules

    def training_step(self, rows, index):
        loss = error(lambda x: self.net(x).float(), *rows)
        self.losses.append(loss.item())
        self.log("loss", loss)
        return loss

    def validation_step(self, rows, index):
        self.log("val", error(lambda x: self.net(x).float(), *rows))

    def configure_optimizers(self):
        optimizer = self.make(self.net)
        if not self.schedules:
            return optimizer
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def fit(prepare, module=None, epochs=STEPS // 4, checkpoint=None, **settings):
    """Four steps an epoch, each with the same 64 rows. Returns the module and its Trainer."""
    module = module or Module()
    precision = ({"plugins": [OctavoPrecision(overrides=prepare.overrides)]} if prepare.overrides
                 else {"precision": "bf16-mixed"})
    trainer = lightning.Trainer(**{
        "max_epochs": epochs, "accelerator": "cpu", "devices": 1, "logger": False,
        "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False,
        **precision, **settings})
    loader = DataLoader(TensorDataset(*(t.repeat(4, 1) for t in batch())), batch_size=64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on workers of the data loader
        trainer.fit(module, loader, DataLoader(TensorDataset(*batch()), 64), ckpt_path=checkpoint)
    return module, trainer


def fitting(steps=STEPS, make=Module, **settings):
    def run(prepare):
        runs = []
        for p in (prepare, PLAIN):
            module, _ = fit(p, make(), **{k: v() for k, v in settings.items()})
            runs.append(module.losses)
            if is_prepared(module):
                check_fp8(module, boundaries(module), steps)
        follows(*runs)
    return run


pattern(LIGHTNING, "OctavoPrecision")(fitting())
pattern(LIGHTNING, "a scheduler")(fitting(make=lambda: Module(schedules=True)))
pattern(LIGHTNING, "gradient clipping by norm")(fitting(gradient_clip_val=lambda: 0.05))
pattern(LIGHTNING, "gradient clipping by value")(fitting(
    gradient_clip_val=lambda: 1e-3, gradient_clip_algorithm=lambda: "value"))
pattern(LIGHTNING, "accumulate_grad_batches")(fitting(
    STEPS // 2, accumulate_grad_batches=lambda: 2))
pattern(LIGHTNING, "GradientAccumulationScheduler")(fitting(
    4 + 2 * (STEPS // 4 - 1), callbacks=lambda: [callbacks.GradientAccumulationScheduler({1: 2})]))
pattern(LIGHTNING, "SGD")(fitting(make=lambda: Module(
    lambda m: torch.optim.SGD(m.parameters(), lr=0.5))))
