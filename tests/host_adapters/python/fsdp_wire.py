"""The bytes that fully_shard gathers, by gather and recipe. Two processes print
docs/results/fsdp_gather.csv:

    torchrun --nproc-per-node 2 tests/host_adapters/python/fsdp_wire.py
"""
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import octavo
from conftest import te

RECIPES = ("delayed", "current", "block", "mx")
N, K, LAYERS = 256, 512, 3


class Counting:
    """While entered: what this rank gives to all-gathers, and the elements of its all-reduces of maxima."""

    def __enter__(self):
        self.gathered, self.maxima = [], []
        self._plain = dist.all_gather_into_tensor, dist.all_reduce

        def all_gather(output, given, *args, **kwargs):
            self.gathered.append(given.numel() * given.element_size())
            return self._plain[0](output, given, *args, **kwargs)

        def all_reduce(tensor, op=dist.ReduceOp.SUM, *args, **kwargs):
            if op == dist.ReduceOp.MAX:
                self.maxima.append(tensor.numel())
            return self._plain[1](tensor, op, *args, **kwargs)
        dist.all_gather_into_tensor, dist.all_reduce = all_gather, all_reduce
        return self

    def __exit__(self, *_):
        dist.all_gather_into_tensor, dist.all_reduce = self._plain


def model_of(recipe, gather, dtype, options):
    """Linears without bias, so that all that is gathered is weights."""
    torch.manual_seed(0)
    layers = [nn.Linear(*((K, N) if i % 2 == 0 else (N, K)), bias=False) for i in range(LAYERS)]
    model = nn.Sequential(*layers).to(dtype)
    overrides = te(recipe, **options)
    # [gather]
    octavo.prepare(model, overrides=overrides, fsdp_gather=gather)
    # [/gather]
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, octavo.join(model, torch.optim.SGD(model.parameters(), lr=0.1))


def step(model, optimizer, parts=1):
    optimizer.zero_grad()
    for part in range(parts):
        x = torch.randn(32, K, generator=torch.Generator().manual_seed(part + dist.get_rank()))
        model(x).square().mean().backward()
    optimizer.step()


def counted(recipe, gather, parts=1, dtype=torch.float32, **options):
    """Of the second step: {"gathered": bytes of each all-gather, "maxima": elements of each all-reduce}."""
    model, optimizer = model_of(recipe, gather, dtype, options)
    step(model, optimizer, parts)
    with Counting() as seen:
        step(model, optimizer, parts)
    return {"gathered": seen.gathered, "maxima": seen.maxima}


def wire_run():
    found = {(recipe, gather): counted(recipe, gather) for recipe in RECIPES for gather in ("values", "fp8")}
    found["bfloat16"] = counted("delayed", "values", dtype=torch.bfloat16)
    found["square"] = counted("mx", "fp8", mxfp8_2d_quantization=True)
    found["accumulated"] = {gather: counted("delayed", gather, parts=3) for gather in ("values", "fp8")}
    return found


def table(found):
    """What wire_run found as CSV: the bytes that each rank gives, in all gathers of a step."""
    values = sum(found["delayed", "values"]["gathered"])
    rows = [("values, float32", values), ("values, bfloat16", sum(found["bfloat16"]["gathered"]))]
    rows += [(f"codes, {recipe}", sum(found[recipe, "fp8"]["gathered"])) for recipe in RECIPES]
    rows.append(("codes, mx with `mxfp8_2d_quantization`", sum(found["square"]["gathered"])))
    return ["gathered,bytes,of float32",
            *(f'"{name}",{count},{count / values:.4f}' for name, count in rows)]


def main():
    dist.init_process_group("gloo")
    lines = table(wire_run())
    if dist.get_rank() == 0:
        print("\n".join(lines))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # as in ddp_ranks.py: no thread of gloo outlives the interpreter


if __name__ == "__main__":
    main()
