"""A training loop of plain PyTorch."""
import pathlib
import sys

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt


def main():
    steps = tiny_gpt.arguments().steps
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step, tokens in enumerate(tiny_gpt.batches(steps)):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
