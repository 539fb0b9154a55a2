"""A LightningModule and Lightning's Trainer."""
import pathlib
import sys

import lightning
import torch
from octavo.lightning import OctavoPrecision
from torch.utils.data import DataLoader

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.gpt = tiny_gpt.Gpt()

    def training_step(self, tokens, index):
        loss = self.gpt(tokens)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main():
    arguments = tiny_gpt.arguments()
    loader = DataLoader(tiny_gpt.text(arguments.steps * 16), batch_size=16)
    trainer = lightning.Trainer(
        max_steps=arguments.steps, accelerator="cpu", logger=False, enable_progress_bar=False,
        default_root_dir=arguments.folder, gradient_clip_val=1.0,
        plugins=[OctavoPrecision(tiny_gpt.CONFIG)],
    )
    trainer.fit(Module(), loader)
    print(trainer.precision_plugin.report())
    print(f"loss {trainer.callback_metrics['loss'].item():.4f}")


if __name__ == "__main__":
    main()
