"""Accelerate's hooks and its loop, Lightning's modules and callbacks."""
import contextlib
import tempfile

import accelerate
import lightning
import torch
from torch import nn

from stranger import adamw, batches, error, fit, mlp, program, tail, unseen

TE = ("delayed", "current", "block")


@contextlib.contextmanager
def accelerator(**arguments):
    """Accelerate keeps its settings for the process."""
    try:
        yield accelerate.Accelerator(cpu=True, **arguments)
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.state.GradientState._reset_state()


@program("AlignDevicesHook on each layer, then octavo.prepare", apart=0.032, arms=TE)
def aligned(run):
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module
    model = mlp()
    for module in model:
        add_hook_to_module(module, AlignDevicesHook(execution_device="cpu", io_same_device=True))
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run), **unseen(model, run)}


@program("octavo.prepare, then AlignDevicesHook on each layer", apart=0.032, arms=TE)
def aligned_after(run):
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    for module in model:
        add_hook_to_module(module, AlignDevicesHook(execution_device="cpu", io_same_device=True))
    return {"loss": fit(model, optimizer, run), **unseen(model, run)}


@program("a forward on the instance that calls the one of before", apart=0.014, arms=TE)
def instance(run):
    model = mlp()
    for module in (model[0], model[2]):
        old = module.forward
        module.forward = lambda x, old=old: old(x) * 1.5
    model, optimizer = run.prepare(model, adamw(model.parameters()))
    return {"loss": fit(model, optimizer, run)}


@program("cpu_offload of a frozen backbone (its weights on meta)", apart=0.028, arms=TE, counts="Weights come and go.",
         moves="Weights come and go.")
def offloaded(run):
    backbone, head = mlp(32, 64, 64).requires_grad_(False), mlp(64, 16)
    accelerate.cpu_offload(backbone, execution_device=torch.device("cpu"))
    model = nn.Sequential(backbone, head)
    model, optimizer = run.prepare(model, adamw(head.parameters()))
    return {"loss": fit(model, optimizer, run)}


@program("Accelerator: accumulate, clip_grad_norm_, a scheduler, save_state and load_state", apart=0.139,
         arms=("delayed", "current", "msamp"))
def loop(run):
    with accelerator(gradient_accumulation_steps=2) as a:
        model = mlp()
        run.watch(model)
        optimizer = adamw(model.parameters(), 1e-2)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
        if run.arm is None:
            model, optimizer, scheduler = a.prepare(model, optimizer, scheduler)
        else:
            import octavo.accelerate
            model, optimizer, scheduler = octavo.accelerate.prepare(a, model, optimizer, scheduler, overrides=run.overrides)
        losses = []
        with tempfile.TemporaryDirectory() as folder:
            for i, (x, y) in enumerate(batches(run, 60)):
                with a.accumulate(model):
                    loss = error(model, x, y)
                    a.backward(loss)
                    if a.sync_gradients:
                        a.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                losses.append(loss.item())
                if i == 39:
                    a.save_state(folder)
                if i == 49:
                    a.load_state(folder)
        return {"loss": tail(losses), **unseen(a.unwrap_model(model), run)}


class Module(lightning.LightningModule):
    def __init__(self, run):
        super().__init__()
        self.net, self.run_, self.losses = mlp(), run, []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = error(self, *batch)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return adamw(self.parameters(), 1e-2)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(list(batches(self.run_, 20)), batch_size=None)


def _lightning(run, module, epochs=3, **arguments):
    """Trains. Returns the module."""
    run.watch(module)
    plugins = []
    if run.arm is not None:
        from octavo.lightning import OctavoPrecision
        plugins = [OctavoPrecision(overrides=run.overrides)]
    with tempfile.TemporaryDirectory() as folder:
        lightning.Trainer(max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
                          enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder,
                          plugins=plugins, **arguments).fit(module)
    return module


@program("Lightning: automatic optimization, accumulate_grad_batches, gradient_clip_val", apart=0.035)
def automatic(run):
    module = _lightning(run, Module(run), accumulate_grad_batches=2, gradient_clip_val=1.0)
    return {"loss": tail(module.losses), **unseen(module.net, run)}


class Gan(Module):
    """Manual optimization, toggled optimizers."""

    def __init__(self, run):
        super().__init__(run)
        self.automatic_optimization = False
        self.critic, self.gaps = mlp(16, 64, 1), []

    def configure_optimizers(self):
        return adamw(self.net.parameters(), 2e-3), adamw(self.critic.parameters(), 2e-3)

    def training_step(self, batch, index):
        (x, y), (first, second) = batch, self.optimizers()
        bce = nn.functional.binary_cross_entropy_with_logits
        self.toggle_optimizer(first)
        fake = self.net(x)
        loss = 0.1 * bce(self.critic(fake), torch.ones(len(x), 1)) + nn.functional.mse_loss(fake, y)
        first.zero_grad()
        self.manual_backward(loss)
        first.step()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        gap = bce(self.critic(y), torch.ones(len(x), 1)) + bce(self.critic(fake.detach()), torch.zeros(len(x), 1))
        second.zero_grad()
        self.manual_backward(gap)
        second.step()
        self.untoggle_optimizer(second)
        self.losses.append(loss.item())
        self.gaps.append(gap.item())


@program("Lightning: a GAN with manual optimization and toggle_optimizer", apart=0.073, arms=TE)
def gan(run):
    module = _lightning(run, Gan(run))
    return {"loss": tail(module.losses), "gap": tail(module.gaps), **unseen(module.net, run)}


@program("Lightning: StochasticWeightAveraging", apart=0.030, arms=TE)
def swa(run):
    module = _lightning(run, Module(run), 6, callbacks=[lightning.pytorch.callbacks.StochasticWeightAveraging(
        swa_lrs=5e-3, swa_epoch_start=3, device=torch.device("cpu"))])
    return {"loss": tail(module.losses), **unseen(module.net, run)}


@program("Lightning: EMAWeightAveraging, validated with the average", apart=0.029, arms=TE)
def ema(run):
    class Validated(Module):
        valid = ()

        def validation_step(self, batch, index):
            self.valid = (*self.valid, error(self, *batch).item())

        def val_dataloader(self):
            return torch.utils.data.DataLoader(list(batches(self.run_, 2, unseen=True)), batch_size=None)
    average = lightning.pytorch.callbacks.EMAWeightAveraging(decay=0.9)
    module = _lightning(run, Validated(run), 4, callbacks=[average], num_sanity_val_steps=0)
    return {"loss": tail(module.losses), "valid": tail(module.valid, 4), **unseen(module.net, run)}


@program("Lightning: BackboneFinetuning", apart=0.007, arms=TE,
         counts="It is prepared again when the backbone is unfrozen.")
def backbone(run):
    class Tuned(Module):
        def __init__(self, run):
            super().__init__(run)
            self.backbone, self.head = nn.Sequential(self.net[0], self.net[1]), self.net[2]

        def configure_optimizers(self):
            return adamw([p for p in self.parameters() if p.requires_grad], 5e-3)
    module = _lightning(run, Tuned(run), 4, callbacks=[lightning.pytorch.callbacks.BackboneFinetuning(
        unfreeze_backbone_at_epoch=2, lambda_func=lambda e: 1.5, backbone_initial_ratio_lr=0.5)])
    return {"loss": tail(module.losses), **unseen(module.net, run)}


@program("Lightning Fabric: setup, backward, clip_gradients", apart=0.031)
def fabric(run):
    model = mlp()
    model, optimizer = run.prepare(model, adamw(model.parameters(), 1e-2))
    f = lightning.Fabric(accelerator="cpu", devices=1)
    wrapped = f.setup_module(model)
    losses = []
    for x, y in batches(run, 40):
        loss = error(wrapped, x, y)
        optimizer.zero_grad()
        f.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return {"loss": tail(losses), **unseen(model, run)}
