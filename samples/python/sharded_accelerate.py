"""Hugging Face Accelerate with FSDP2: torchrun --nproc-per-node 2 sharded_accelerate.py

Accelerate shards only on GPUs. On CPUs it averages gradients instead.
"""
import pathlib
import sys

import octavo.accelerate
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.utils.data import DataLoader

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt


def main():
    arguments = tiny_gpt.arguments()
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Block"],
        state_dict_type="SHARDED_STATE_DICT")
    accelerator = Accelerator(mixed_precision="bf16", cpu=not torch.cuda.is_available(), fsdp_plugin=plugin)
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    made = model, optimizer, DataLoader(tiny_gpt.text(arguments.steps * 16), batch_size=8)
    model, optimizer, loader = octavo.accelerate.prepare(accelerator, *made, config=tiny_gpt.CONFIG)
    for step, tokens in enumerate(loader):
        loss = model(tokens)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0 or step == len(loader) - 1:
            accelerator.print(f"step {step} loss {loss.item():.4f}")
    accelerator.print(octavo.report(model))
    accelerator.save_state(arguments.folder)


if __name__ == "__main__":
    main()
