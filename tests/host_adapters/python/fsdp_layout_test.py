"""`octavo estimate --mesh` has the bytes of ranks that this machine does not have: meshes of 8, 64 and 512 ranks, whose other ranks
torch's process group "fake" stands for. It exchanges nothing, so no step runs; memory is that of a model as it begins."""
import json
import subprocess

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import octavo
from conftest import session, te
from octavo.__main__ import program

WIDTH, OUT, WORDS, LAYERS = 96, 100, 50, 3  # rows that 8 shards do not divide, and fewer rows than 512 ranks
SHAPES = {"linears": [{"name": "up", "n": 3 * WIDTH, "k": WIDTH, "bias": True, "count": LAYERS},
                      {"name": "down", "n": WIDTH, "k": 3 * WIDTH, "bias": True, "count": LAYERS},
                      {"name": "head", "n": OUT, "k": WIDTH, "bias": True}],
          "parameters": [{"name": "embed", "rows": WORDS, "cols": WIDTH}]}


def sharded(mesh, recipe):
    model = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, WIDTH),
        *(torch.nn.Sequential(torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(3 * WIDTH, WIDTH)) for _ in range(LAYERS)),
        torch.nn.Linear(WIDTH, OUT))
    octavo.prepare(model, overrides=te(recipe))
    for part in model[1:-1]:
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def planned(folder, mesh, recipe):
    (folder / "shapes.json").write_text(json.dumps(SHAPES))
    done = subprocess.run([program(), "estimate", folder / "shapes.json", "--set", "layers.skip=[]",
                           "--mesh", "x".join(map(str, mesh)), "--parallel", "fsdp",
                           "--backend", f"te:recipe={recipe}", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["columns"][0]["fullest"]["bytes"]


@pytest.mark.parametrize("recipe", ["delayed", "block", "mx"])
@pytest.mark.parametrize("mesh", [(8,), (8, 8), (512,)], ids=str)
def test_a_plan_has_the_bytes_of_a_rank(tmp_path, mesh, recipe):
    expected, world = planned(tmp_path, mesh, recipe), torch.Size(mesh).numel()
    for rank in (0, world - 1):
        dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
        try:
            model = sharded(init_device_mesh("cpu", mesh, mesh_dim_names=("replicate", "shard")[-len(mesh):]), recipe)
            weights = sum(p.to_local().untyped_storage().nbytes() for p in model.parameters())
            slots = sum(t.untyped_storage().nbytes() for t in session(model).tensors if t is not None)
        finally:
            dist.destroy_process_group()
        assert (weights, slots) == (expected["weight"], expected["fp8_state"] + expected["weight_cache"]), rank
