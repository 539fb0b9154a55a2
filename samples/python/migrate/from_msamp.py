"""A training of MS-AMP, moved to Octavo."""
import pathlib
import sys

import octavo
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import tiny_gpt

CONFIG = pathlib.Path(__file__).with_suffix(".toml")


def main(steps):
    """Trains, and returns the model and its losses."""
    losses = []
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer = octavo.prepare(model, optimizer, CONFIG)
    for tokens in tiny_gpt.batches(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


if __name__ == "__main__":
    print(octavo.report(main(tiny_gpt.arguments().steps)[0]))
