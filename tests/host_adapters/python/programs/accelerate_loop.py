"""A program as Accelerate's guides write them. It knows nothing of Octavo."""
import argparse
import json

import torch
from accelerate import Accelerator
from accelerate.utils import TERecipeKwargs, set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed_precision", choices=["no", "bf16", "fp8"])
    parser.add_argument("--amax_history_len", type=int, help="makes a recipe")
    parser.add_argument("--losses", required=True)
    arguments = parser.parse_args()
    handlers = [TERecipeKwargs(amax_history_len=arguments.amax_history_len)] if arguments.amax_history_len else None
    accelerator = Accelerator(cpu=True, mixed_precision=arguments.mixed_precision, kwargs_handlers=handlers)
    set_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
    inputs = torch.randn(256, 32)
    loader = DataLoader(TensorDataset(inputs, inputs.roll(1, 1)), batch_size=16)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    losses = []
    for x, y in loader:
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    if accelerator.is_main_process:
        with open(arguments.losses, "w", encoding="utf-8") as file:
            json.dump({"ranks": accelerator.num_processes, "losses": losses}, file)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
