"""What each rank of sharded_state_test.py runs: octavo.accelerate.Accelerator with optimizer state on one rank each,
and what the glue of other frameworks says to such a model."""
import types

import accelerate
import torch

import octavo
from conftest import msamp
from octavo.accelerate import Accelerator
from sharded_accelerate_ranks import made, train
from shard_state_ranks import said, whole

STEPS, SAVED = 4, 2


def reset():
    """Accelerate keeps its settings for the process: each run begins without."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=False)
    accelerate.state.GradientState._reset_state()


def prepared(shards):
    reset()
    model, optimizer = made()
    config = octavo.Config.of(None, msamp("O3"))
    accelerator = Accelerator(mixed_precision="fp8", octavo_config=config, octavo_shard_optimizer_state=shards, cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    return accelerator, model, optimizer


def run_of(folder, shards):
    a, model, optimizer = prepared(shards)
    losses = train(model, optimizer, SAVED, a.backward, clip=a.clip_grad_norm_)
    a.save_state(str(folder / f"saved-{shards}"))
    exported = {n: t.clone() for n, t in a.get_state_dict(model).items()}
    losses += train(model, optimizer, STEPS - SAVED, a.backward, first=SAVED)
    return {"losses": losses, "exported": exported, **whole(model)}


def resumed(folder, saved, shards):
    """From what another run has saved, in a model with other weights."""
    a, model, optimizer = prepared(shards)
    train(model, optimizer, 1, a.backward, first=77)
    a.load_state(str(folder / f"saved-{saved}"))
    return {"losses": train(model, optimizer, STEPS - SAVED, a.backward, first=SAVED), **whole(model)}


def refusals():
    from octavo.lightning import OctavoPrecision
    from octavo.transformers import OctavoCallback

    def sharded():
        model, optimizer = made()
        return octavo.prepare(model, optimizer, overrides=msamp("O2"), shard_optimizer_state=True)

    reset()
    plain = accelerate.Accelerator(cpu=True)
    found = {"accelerate": said(octavo.accelerate.prepare, plain, *sharded()),
             "transformers": said(lambda: OctavoCallback().on_init_end(None, None, None, sharded()[0])),
             "lightning": said(lambda: OctavoPrecision().convert_module(sharded()[0]))}
    reset()
    a = Accelerator(mixed_precision="fp8", octavo_shard_optimizer_state=True, cpu=True)
    model, optimizer = made()
    found["te"] = said(a.prepare, model, optimizer)
    found["te is plain"] = "octavo_session" not in vars(model) and type(model.head) is torch.nn.Linear
    with_fsdp2 = types.SimpleNamespace(is_fsdp2=True, device_placement=False)
    found["fsdp2"] = said(octavo.accelerate._prepare, with_fsdp2, None, made(), {"shard_optimizer_state": True}, "saved")
    return found


def run(folder):
    accelerate.PartialState(cpu=True)
    found = {shards: run_of(folder, shards) for shards in (None, True)}
    for saved, shards in ((True, True), (True, None), (None, True)):
        found[saved, shards] = resumed(folder, saved, shards)
    return {**found, "refusals": refusals()}
