"""An Accelerate program with mixed_precision="fp8", moved to Octavo."""
import pathlib
import sys

import octavo
import torch
from octavo.accelerate import Accelerator
from torch.utils.data import DataLoader

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_gpt

CONFIG = pathlib.Path(__file__).with_name("from_te.toml")


def main(steps):
    """Trains, and returns the model and its losses."""
    losses = []
    accelerator = Accelerator(mixed_precision="fp8", octavo_config=CONFIG, cpu=True)
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(tiny_gpt.text(steps * 16), batch_size=16)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for tokens in loader:
        loss = model(tokens)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


if __name__ == "__main__":
    print(octavo.report(main(tiny_gpt.arguments().steps)[0]))
