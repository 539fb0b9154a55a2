"""Lightning with ModelParallelStrategy (FSDP2): torchrun --nproc-per-node 2 sharded_lightning.py"""
import pathlib
import sys

import lightning
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from octavo.lightning import OctavoPrecision
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gpt = tiny_gpt.Gpt()

    def configure_model(self):
        mesh = self.device_mesh["data_parallel"]
        for block in self.gpt.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(self.gpt, mesh=mesh)

    def training_step(self, tokens, index):
        loss = self.gpt(tokens)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    arguments = tiny_gpt.arguments()
    loader = DataLoader(tiny_gpt.text(arguments.steps * 16), batch_size=8)
    trainer = lightning.Trainer(
        max_steps=arguments.steps, accelerator="auto", devices=2, logger=False, enable_progress_bar=False,
        strategy=ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1),
        default_root_dir=arguments.folder, gradient_clip_val=1.0,
        plugins=[OctavoPrecision(tiny_gpt.CONFIG, fsdp_gather="fp8")],
    )
    trainer.fit(Module(), loader)
    print(trainer.precision_plugin.report())
    print(f"loss {trainer.callback_metrics['loss'].item():.4f}")


if __name__ == "__main__":
    main()
