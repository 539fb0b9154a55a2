"""Products of each layer along a recorded training in bfloat16: how far FP8 is from fp64.

    python tests/host_adapters/python/trajectory.py --record   # trains, writes the operands
    python tests/host_adapters/python/trajectory.py --write    # measures, writes the numbers and the page

The training is that of samples/python/tiny_gpt.py under bfloat16 autocast. At two of its steps, every
linear's weight, x and dy were kept in tests/data. A layer with these operands is prepared with each
backend, and y, dx and dw are compared with the products in fp64. Nothing feeds back, so no number
depends on chaos, and each is the same on every CPU.
"""
import dataclasses
import json
import math
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "samples/python")]
import octavo  # noqa: E402  after the path
import tiny_gpt  # noqa: E402
from conftest import msamp, session, te  # noqa: E402

OPERANDS, NUMBERS = ROOT / "tests/data/trajectory.safetensors", ROOT / "tests/data/trajectory.json"
PAGE = ROOT / "docs/results/trajectory.md"
STEPS, ROWS = (2, 60), 64  # early, where the loss falls fast, and late; rows of x and dy that are kept
RECIPES = {**{f"te {r}": te(r) for r in ("delayed", "current", "block", "mx", "rowwise")},
           **{f"te {r}, stochastic": te(r, gradient_rounding="stochastic") for r in ("delayed", "mx")},
           **{f"msamp {level}": msamp(level) for level in ("O1", "O2", "O3")}}
PRODUCTS = ("y", "dx", "dw")


@dataclasses.dataclass
class Operands:
    """x [M, K] and dy [M, N] in float32, weight [N, K]."""
    weight: torch.Tensor
    x: torch.Tensor
    dy: torch.Tensor

    def products(self):
        w, x, dy = self.weight.double(), self.x.double(), self.dy.double()
        return {"y": x @ w.T, "dx": dy @ w, "dw": dy.T @ x}


def record():
    """Trains, and writes the operands of each layer in bfloat16, which x and dy have anyway."""
    model = tiny_gpt.Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    layers = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    found = {}
    for step, tokens in enumerate(tiny_gpt.batches(max(STEPS) + 1)):
        kept = {}
        hooks = _keep(layers, kept) if step in STEPS else []
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        for hook in hooks:
            hook.remove()
        for name, (x, dy) in kept.items():
            for what, value in (("w", layers[name].weight.detach()), ("x", x[:ROWS]), ("dy", dy[:ROWS])):
                found[f"{step}/{name}/{what}"] = value.bfloat16().contiguous()
        optimizer.step()
    save_file(found, OPERANDS)


def recorded():
    """{(step, layer): Operands}."""
    tensors = load_file(OPERANDS)
    names = dict.fromkeys(name.rpartition("/")[0] for name in tensors)
    return {name: Operands(*(tensors[f"{name}/{what}"].float() for what in ("w", "x", "dy"))) for name in names}


def _keep(layers, kept):
    hooks = []
    for name, module in layers.items():
        def forward(module, args, y, name=name):
            x = args[0].detach().float().flatten(0, -2)
            y.register_hook(lambda dy: kept.update({name: (x, dy.float().flatten(0, -2))}))
        hooks.append(module.register_forward_hook(forward))
    return hooks


def found_by(overrides, o, plant=None):
    """The products of one layer in FP8. plant(session): changes slots before its forward."""
    n, k = o.weight.shape
    model = nn.Sequential(nn.Linear(k, n, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(o.weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    model, optimizer = octavo.prepare(model, optimizer, overrides=overrides, detect_writes=False)
    step(model, optimizer, o)  # delayed scaling derives its scales from this one
    if plant is not None:
        with torch.no_grad():
            model(o.x)  # quantizes the weight
        plant(session(model))
    out = step(model, optimizer, o)
    session(model).close()
    return out


def step(model, optimizer, o):
    optimizer.zero_grad()
    x = o.x.clone().requires_grad_()
    y = model(x)
    y.backward(o.dy)
    out = {"y": y.detach().double(), "dx": x.grad.double(), "dw": _gradient(model[0].weight)}
    optimizer.step()
    return out


def _gradient(weight):
    gradient = weight.grad
    return gradient.double() if type(gradient) is torch.Tensor else gradient.plain().double()


def compare(found, exact):
    """(gain, dB): the factor by which `found` is too large, and the ratio of signal to the rest."""
    signal = exact.square().sum()
    if signal == 0:
        return 1.0, math.inf
    gain = (found * exact).sum() / signal
    noise = (found - exact).square().sum()
    return gain.item(), 10 * math.log10(signal / noise) if noise > 0 else math.inf


def measure():
    """{recipe: {product: {"step/layer": [gain, dB]}}}."""
    found = {recipe: {product: {} for product in PRODUCTS} for recipe in RECIPES}
    for name, o in recorded().items():
        exact = o.products()
        for recipe, overrides in RECIPES.items():
            for product, value in found_by(overrides, o).items():
                found[recipe][product][name] = [round(v, 5) for v in compare(value, exact[product])]
    return found


def table(numbers):
    """Recipes with equal figures share a row."""
    rows = {}
    for recipe, products in numbers.items():
        lowest = [f"{min(db for _, db in products[p].values()):.1f}" for p in PRODUCTS]
        gains = [f"{min(g for g, _ in products[p].values()):.4f} to {max(g for g, _ in products[p].values()):.4f}"
                 for p in PRODUCTS]
        rows.setdefault(" | ".join(lowest + gains), []).append(recipe)
    lines = ["| Recipe | y, dB | dx, dB | dw, dB | y, gain | dx, gain | dw, gain |", "|---|---|---|---|---|---|---|"]
    return "\n".join(lines + [f"| {'; '.join(recipes)} | {row} |" for row, recipes in rows.items()]) + "\n"


def write():
    numbers = measure()
    NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition("| Recipe |")
    PAGE.write_text(head + table(numbers) + rest[rest.index("\n\n") + 1:], encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] not in (["--record"], ["--write"]):
        sys.exit(__doc__)
    record() if sys.argv[1] == "--record" else write()
