"""DeepSpeed's ZeRO 2: torchrun --nproc-per-node 2 sharded_deepspeed.py"""
import pathlib
import sys

import deepspeed
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt

SETTINGS = {"train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0, "zero_optimization": {"stage": 2},
            "zero_allow_untested_optimizer": True, "bf16": {"enabled": True}}


def main():
    arguments = tiny_gpt.arguments()
    deepspeed.init_distributed("nccl" if torch.cuda.is_available() else "gloo")
    rank = torch.distributed.get_rank()
    model = tiny_gpt.Gpt()
    made = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=3e-3)}
    engine, *_ = deepspeed.initialize(**made, config=SETTINGS)
    for step, tokens in enumerate(tiny_gpt.batches(arguments.steps, rows=8, seed=rank)):
        loss = engine(tokens.to(engine.device))
        engine.backward(loss)
        engine.step()
        if rank == 0 and (step % 20 == 0 or step == arguments.steps - 1):
            print(f"step {step} loss {loss.item():.4f}")
    engine.save_checkpoint(arguments.folder)


if __name__ == "__main__":
    main()
