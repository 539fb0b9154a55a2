"""What each rank of sharded_lightning_test.py runs."""
import logging
import warnings

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.data import DataLoader

import octavo
import tiny_gpt
from conftest import msamp, te
from fsdp_parts import plain
from octavo.lightning import OctavoPrecision
from torchrun import sample

STEPS, SAVED, ROWS, LAYERS = 4, 2, 8, 9


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gpt, self.losses = tiny_gpt.Gpt(), []

    def training_step(self, tokens, index):
        loss = self.gpt(tokens)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Sharded(Module):
    def configure_model(self):
        mesh = self.device_mesh["data_parallel"]
        for block in self.gpt.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.gpt, mesh=mesh)


def fit(module, strategy, folder, checkpoint=None, overrides=te("delayed"), gather=None, **settings):
    precision = OctavoPrecision(overrides=overrides, fsdp_gather=gather)
    saver = lightning.pytorch.callbacks.ModelCheckpoint(folder, filename="{step}", every_n_train_steps=SAVED,
                                                        save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", devices=2, strategy=strategy, plugins=[precision], callbacks=[saver],
        logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(folder), **settings)
    # One batch an epoch, so that a run may stop between any two.
    trainer.fit(module, DataLoader(tiny_gpt.text(2 * ROWS), batch_size=ROWS), ckpt_path=checkpoint)
    return {"losses": module.losses, "weights": {n: plain(p) for n, p in module.named_parameters()},
            "octavo": octavo.state_dict(module), "report": precision.report(),
            "is sharded": isinstance(module.gpt, FSDPModule)}


def mesh(**options):
    return ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1, **options)


def sharded(folder, gather=None, **options):
    """(a run, the same one resumed at step SAVED, whether its checkpoint is a folder)"""
    whole = fit(Sharded(), mesh(**options), folder, gather=gather)
    saved = folder / f"step={SAVED}.ckpt"
    return whole, fit(Sharded(), mesh(**options), folder, str(saved), gather=gather), saved.is_dir()


def refused(folder):
    try:
        fit(Sharded(), mesh(), folder, overrides=msamp("O2"))
    except octavo.OctavoError as e:
        return type(e).__name__, str(e)
    return None


def run(folder):
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    return {"ddp": fit(Module(), DDPStrategy(), folder / "ddp"),
            "shards": sharded(folder / "shards"),
            "one file": sharded(folder / "file", "fp8", save_distributed_checkpoint=False),
            "sample": sample("sharded_lightning", folder),
            "refused": refused(folder / "refused")}
