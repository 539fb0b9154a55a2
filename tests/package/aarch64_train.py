"""Trains two layers with each recipe of te and with msamp, and prints a hash of the weights for each.

Every value is a product, a sum in Octavo's order, or an elementwise step that rounds once, so the processor decides nothing:
tests/package/aarch64_torch_test.sh compares what two of them print. With te the optimizer is torch's SGD, whose rate is a
power of two here; msamp has one of its own.
"""
import hashlib
import pathlib
import platform
import sys
import tempfile

import octavo
import torch

RECIPES = {f"te {recipe}": f'backend = "te"\n[fp8.te]\nrecipe = "{recipe}"\n'
           for recipe in ("delayed", "current", "block", "mx", "rowwise")}
RECIPES |= {f"msamp {level}": f'backend = "msamp"\n[fp8.msamp]\nopt_level = "{level}"\n' for level in ("O1", "O2")}
STEPS, RATE = 5, 1 / 1024


def made(generator, shape, largest):
    """Cubes of integers: exact, and of many magnitudes, so that each recipe rounds in its own way."""
    return (torch.randint(-4096, 4097, shape, generator=generator) ** 3).float() * (largest / 2 ** 36)


def trained(text, folder):
    config = pathlib.Path(folder, "octavo.toml")
    config.write_text(f"[fp8]\n{text}")
    generator = torch.Generator().manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 32))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(made(generator, parameter.shape, 1 / 8))
    kind = torch.optim.AdamW if "msamp" in text else torch.optim.SGD
    model, optimizer = octavo.prepare(model, kind(model.parameters(), lr=RATE), config)
    for _ in range(STEPS):
        out = model(made(generator, (40, 64), 4))
        out.backward(made(generator, out.shape, 1))
        optimizer.step()
        optimizer.zero_grad()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().float().numpy().tobytes())
    return digest.hexdigest()


if __name__ == "__main__":
    print(f"octavo {octavo.version()}, torch {torch.__version__}, {platform.machine()}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in RECIPES.items():
            print(name, trained(text, folder), flush=True)
