"""A training loop with Hugging Face Accelerate and gradient accumulation."""
import pathlib
import sys

import octavo.accelerate
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt


def main():
    arguments = tiny_gpt.arguments()
    accelerator = Accelerator(mixed_precision="bf16", cpu=True, gradient_accumulation_steps=2)
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(tiny_gpt.text(arguments.steps * 16), batch_size=8)
    made = model, optimizer, loader
    model, optimizer, loader = octavo.accelerate.prepare(accelerator, *made, config=tiny_gpt.CONFIG)
    for step, tokens in enumerate(loader):
        with accelerator.accumulate(model):
            loss = model(tokens)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if step % 40 == 0 or step == len(loader) - 1:
            accelerator.print(f"batch {step} loss {loss.item():.4f}")
    accelerator.print(octavo.report(model))
    accelerator.save_state(arguments.folder)


if __name__ == "__main__":
    main()
