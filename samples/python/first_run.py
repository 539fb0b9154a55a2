"""GPT-2 of transformers in FP8: on a GPU where torch has one, otherwise on the CPU. Weights are random, so nothing is
downloaded; the text is the source of torch.nn.functional. docs/first_run.md quotes it."""
import argparse
import pathlib

import octavo
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=768)
    given = parser.parse_args()
    text = torch.frombuffer(bytearray(pathlib.Path(torch.nn.functional.__file__).read_bytes()), dtype=torch.uint8)
    torch.manual_seed(0)
    # [prepare]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = GPT2Config(n_layer=12, n_embd=given.width, n_head=given.width // 64, n_positions=128,
                        vocab_size=256, bos_token_id=0, eos_token_id=0)  # a token is a byte
    model = GPT2LMHeadModel(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model, optimizer = octavo.prepare(model, optimizer, recipe="te.delayed")
    # [/prepare]
    # [train]
    for step in range(given.steps):
        starts = torch.randint(0, len(text) - 128, (4,))
        tokens = torch.stack([text[i:i + 128] for i in starts]).long().to(device)
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)
    print(octavo.report(model))
    # [/train]


if __name__ == "__main__":
    main()
