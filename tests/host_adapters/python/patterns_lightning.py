"""Usage patterns: callbacks, checkpoints and loops of Lightning."""
import tempfile

import lightning
import torch
from lightning.pytorch import callbacks

from patterns import PLAIN, STEPS, adamw, batch, boundaries, error, follows, pattern, values
from patterns_averages import close
from patterns_frameworks import LIGHTNING, Module, fit

AREA = LIGHTNING


@pattern(AREA, "StochasticWeightAveraging")
def swa(prepare):
    runs = []
    for p in (prepare, PLAIN):
        module, _ = fit(p, callbacks=[callbacks.StochasticWeightAveraging(
            5e-3, swa_epoch_start=0.5, annealing_epochs=1)])
        runs.append((module.losses, values(module)))
    follows(runs[0][0], runs[1][0])
    for name, value in runs[0][1].items():
        apart = (value - runs[1][1][name]).norm() / runs[1][1][name].norm()
        assert apart < 0.1, name


@pattern(AREA, "ModelCheckpoint, and fit(ckpt_path=...)")
def resumed(prepare):
    with tempfile.TemporaryDirectory() as folder:
        def run(checkpoint=None):
            saver = callbacks.ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1)
            return fit(prepare, checkpoint=checkpoint, callbacks=[saver], enable_checkpointing=True,
                       default_root_dir=folder)[0]
        whole, again = run(), run(f"{folder}/epoch=1.ckpt")
    assert again.losses == whole.losses[-len(again.losses):] and len(again.losses) == STEPS - 8
    assert all(torch.equal(v, values(again)[k]) for k, v in values(whole).items())


@pattern(AREA, "load_from_checkpoint into a plain module")
def loaded(prepare):
    with tempfile.TemporaryDirectory() as folder:
        module, trainer = fit(prepare)
        trainer.save_checkpoint(f"{folder}/last.ckpt")
        plain = Module.load_from_checkpoint(f"{folder}/last.ckpt")
    close(values(plain), values(module), writes=0)


@pattern(AREA, "EarlyStopping on the validation loss")
def early_stopping(prepare):
    module, trainer = fit(prepare, callbacks=[callbacks.EarlyStopping(
        "val", stopping_threshold=0.5, mode="min")], epochs=20)
    assert trainer.callback_metrics["val"] < 0.5 and len(module.losses) < 80


@pattern(AREA, "the validation loss")
def validated(prepare):
    module, trainer = fit(prepare)
    plain = Module()
    plain.load_state_dict(values(module))
    found = trainer.callback_metrics["val"].item()
    # validation in bf16 autocast, the twin in float32: two casts and two roundings
    assert abs(error(plain.net).item() - found) < 0.02


class Manual(Module):
    """Manual optimization, two optimizers."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self):
        return [adamw(self.net[0]), adamw(self.net[2])]

    def training_step(self, rows, index):
        loss = error(lambda x: self.net(x).float(), *rows)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()
        self.losses.append(loss.item())


@pattern(AREA, "manual optimization with two optimizers")
def manual(prepare):
    follows(*(fit(p, Manual())[0].losses for p in (prepare, PLAIN)))


@pattern(AREA, "torch.optim.LBFGS")
def lbfgs(prepare):
    module, _ = fit(prepare, Module(lambda m: torch.optim.LBFGS(
        m.parameters(), lr=0.5, max_iter=4)))
    assert module.losses[-1] < 0.5 * module.losses[0]


@pattern(AREA, "Fabric: octavo.prepare, then fabric.setup")
def fabric(prepare):
    def run(p):
        own = lightning.Fabric(accelerator="cpu", devices=1)
        model = Module().net
        model, optimizer = own.setup(*p(model, adamw(model)))
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = error(model, *batch())
            own.backward(loss)
            own.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses
    follows(run(prepare), run(PLAIN))


class Halves(callbacks.WeightAveraging):
    """EMA as Lightning's documentation has it, with a decay that a short run feels."""

    def __init__(self):
        super().__init__(avg_fn=lambda own, new, count: own + (new - own) * 0.5)


@pattern(AREA, "EMA with the WeightAveraging callback")
def weight_averaging(prepare):
    runs = []
    for p in (prepare, PLAIN):
        module, _ = fit(p, callbacks=[Halves()])
        runs.append((module.losses, values(module)))
        module, _ = fit(p)
        runs.append((module.losses, values(module)))
    follows(runs[0][0], runs[2][0])
    # The averaged weights replace the others at the end, for both twins.
    for averaged, last in (runs[:2], runs[2:]):
        assert any(not torch.equal(v, last[1][k]) for k, v in averaged[1].items())
    for name, value in runs[0][1].items():
        apart = (value - runs[2][1][name]).norm() / runs[2][1][name].norm()
        assert apart < 0.1, name


@pattern(AREA, "a second fit of the same module")
def second(prepare):
    runs = []
    for p in (prepare, PLAIN):
        module, _ = fit(p, epochs=2)
        before = boundaries(module)
        fit(p, module, epochs=3)
        assert not before or boundaries(module) - before == 12
        runs.append(module.losses)
    follows(*runs)
