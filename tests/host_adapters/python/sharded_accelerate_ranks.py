"""What each rank of sharded_accelerate_test.py runs."""
import accelerate
import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import DistributedType
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

import octavo
import octavo.accelerate
import tiny_gpt
from conftest import msamp, te
from fsdp_parts import plain
from octavo.accelerate import Accelerator as OctavoAccelerator
from torchrun import sample, sharding_on_cpus

STEPS, SAVED = 4, 2


def plugin(**options):
    return FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Block"],
        state_dict_type="SHARDED_STATE_DICT", **{"cpu_ram_efficient_loading": False, **options})


def made():
    model = tiny_gpt.Gpt()
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def accelerator_of(make=Accelerator, mixed_precision="no", octavo_options=(), **options):
    """Accelerate keeps its settings for the process: each run begins without."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=False)
    accelerate.state.GradientState._reset_state()
    accelerate.PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    return make(mixed_precision=mixed_precision, cpu=True, fsdp_plugin=plugin(**options), **dict(octavo_options))


def train(model, optimizer, steps, backward=torch.Tensor.backward, first=0, clip=None):
    losses = []
    for step in range(first, first + steps):
        tokens = tiny_gpt.text(8, seed=2 * step + dist.get_rank())
        optimizer.zero_grad()
        loss = model(tokens)
        backward(loss)
        if clip is not None:
            clip(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def outcome(model, losses):
    inner = getattr(model, "module", model)
    weights = {n.replace("_checkpoint_wrapped_module.", ""): plain(p) for n, p in inner.named_parameters()}
    return {"losses": losses, "weights": weights,
            "octavo": octavo.state_dict(inner), "report": octavo.report(inner)}


def prepared(a, gather=None):
    return octavo.accelerate.prepare(a, *made(), overrides=te("delayed"), fsdp_gather=gather)


def run_of(gather=None, **options):
    a = accelerator_of(**options)
    model, optimizer = prepared(a, gather)
    assert isinstance(model, FSDPModule) and a.is_fsdp2
    return outcome(model, train(model, optimizer, STEPS, a.backward))


def ddp():
    model, optimizer = made()
    octavo.prepare(model, overrides=te("delayed"))
    wrapped = DistributedDataParallel(model)
    return outcome(model, train(wrapped, optimizer, STEPS))


def by_hand():
    """bf16 with clipping, as the next one. Its policy is that of Accelerate."""
    options = {"mp_policy": accelerator_of(mixed_precision="bf16").state.fsdp_plugin.mixed_precision_policy}
    model, _ = made()
    octavo.prepare(model, overrides=te("delayed"))
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    optimizer = octavo.join(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    return outcome(model, train(model, optimizer, STEPS, clip=torch.nn.utils.clip_grad_norm_))


def class_of_octavo():
    """mixed_precision="fp8" of octavo.accelerate.Accelerator."""
    config = octavo.Config.of(None, te("delayed"))
    a = accelerator_of(OctavoAccelerator, "fp8", {"octavo_config": config, "octavo_fsdp_gather": "fp8"})
    model, optimizer = a.prepare(*made())
    return outcome(model, train(model, optimizer, STEPS, a.backward, clip=a.clip_grad_norm_))


def resumed(folder):
    """(the steps after save_state, the same after load_state in a fresh model, the names of the files)."""
    a = accelerator_of()
    model, optimizer = prepared(a, "fp8")
    train(model, optimizer, SAVED, a.backward)
    a.save_state(str(folder / "state"))
    whole = outcome(model, train(model, optimizer, STEPS - SAVED, a.backward, first=SAVED))
    b = accelerator_of()
    model, optimizer = prepared(b, "fp8")
    b.load_state(str(folder / "state"))
    again = outcome(model, train(model, optimizer, STEPS - SAVED, b.backward, first=SAVED))
    return whole, again, sorted(p.name for p in (folder / "state").iterdir())


def refused():
    """What a backend that cannot be sharded says; the model stays plain."""
    a = accelerator_of()
    model, optimizer = made()
    try:
        octavo.accelerate.prepare(a, model, optimizer, overrides=msamp("O2"))
    except octavo.OctavoError as e:
        return type(e).__name__, str(e), "octavo_session" in vars(model), isinstance(model, FSDPModule)
    return None


def run(folder):
    with sharding_on_cpus():
        accelerate.PartialState(cpu=True)
        found = {"sample": sample("sharded_accelerate", folder)}
        return {**found, "ddp": ddp(), "values": run_of(activation_checkpointing=True),
                "gather": run_of("fp8", cpu_ram_efficient_loading=True),
                "by hand": by_hand(), "class": class_of_octavo(),
                "resumed": resumed(folder), "refused": refused()}
