"""One script, four precisions: fp32, bf16, and FP8 by te and by msamp; ends with a table and a page of curves.

  compare.py [--steps N] [--folder OUT]
"""
import json
import pathlib
import subprocess
import sys
import time

import octavo
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # plain/ uses the same model
import tiny_gpt

RUNS = {"fp32": {}, "bf16": {},
        "te": {"fp8.backend": "te", "fp8.te.recipe": "delayed"},
        "msamp": {"fp8.backend": "msamp", "fp8.msamp.opt_level": "O2"}}
ROWS = 16
EVERY = 10  # steps from one record of the casts to the next


def validation_loss(model):
    model.eval()
    with torch.no_grad():
        loss = sum(model(tokens).item() for tokens in tiny_gpt.batches(8, ROWS, seed=1)) / 8
    model.train()
    return loss


def train(name, overrides, steps, log):
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    if overrides:
        model, optimizer = octavo.prepare(model, optimizer, overrides=overrides, record_every_n_steps=EVERY)
    for step, tokens in enumerate(tiny_gpt.batches(steps, ROWS), 1):
        begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=name != "fp32"):
            loss = model(tokens)
        loss.backward()
        optimizer.step()
        seconds = time.perf_counter() - begin
        line = {"run": name, "step": step, "loss": loss.item(),
                "tokens_per_s": ROWS * tiny_gpt.CONTEXT / seconds}
        if overrides and step % EVERY == 1:
            line |= octavo.telemetry(model, flat=True)
        if step == steps:
            line["validation_loss"] = validation_loss(model)
        print(json.dumps(line), file=log)
    if overrides:
        backend, recipe = overrides.values()
        print(json.dumps({"run": name, "backend": backend, "recipe": recipe, "report": octavo.report(model)}), file=log)


def main():
    options = tiny_gpt.arguments()
    folder = pathlib.Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "metrics.jsonl", "w") as log:
        for name, overrides in RUNS.items():
            train(name, overrides, options.steps, log)
    return subprocess.run(["octavo", "report", folder, "--output", folder / "report.html"]).returncode


if __name__ == "__main__":
    sys.exit(main())
