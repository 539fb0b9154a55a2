"""What each rank of deepspeed_test.py runs."""
import deepspeed
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import octavo
import octavo.deepspeed
import tiny_gpt
from conftest import msamp, session, te
from octavo import _abi
from octavo.torch import ops
from torchrun import sample

STEPS, ROWS, STAGES = 4, 8, (0, 1, 2, 3)


def settings(stage, parts=1, **options):
    """stage3_param_persistence_threshold=0: all parameters are gathered, also small ones."""
    return {"train_micro_batch_size_per_gpu": ROWS, "gradient_accumulation_steps": parts, "gradient_clipping": 0.0,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "zero_allow_untested_optimizer": True, **options}


def made(seed=0):
    model = tiny_gpt.Gpt(seed)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def engine_of(stage, parts=1, overrides=te("delayed"), seed=0, **options):
    model, optimizer = made(seed)
    engine, *_ = octavo.deepspeed.initialize(model=model, optimizer=optimizer, config=settings(stage, parts, **options),
                                             overrides=overrides)
    return model, engine


def tokens_of(step, parts=1):
    return tiny_gpt.text(ROWS * parts, seed=2 * step + dist.get_rank()).split(ROWS)


def train(engine, steps, parts=1, first=0):
    losses = []
    for step in range(first, first + steps):
        for tokens in tokens_of(step, parts):
            loss = engine(tokens)
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
    return losses


def outcome(model, losses):
    return {"losses": losses, "weights": {"none": torch.zeros(1)}, "octavo": octavo.state_dict(model),
            "report": octavo.report(model), "boundaries": ops.calls(session(model).number, _abi.VERB_END_STEP)}


def ddp():
    model, optimizer = made()
    octavo.prepare(model, overrides=te("delayed"))
    wrapped, losses = DistributedDataParallel(model), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = wrapped(tokens_of(step)[0])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return outcome(model, losses)


def run_of(stage, parts=1, **options):
    model, engine = engine_of(stage, parts, **options)
    return outcome(model, train(engine, STEPS, parts))


def infinite(stage, hidden):
    """Inf on rank 1 in the second of three steps: [weights before it, after it, at the end, skipped steps].
    hidden: a cast to FP8 meets it, so that no gradient shows it; else DeepSpeed finds it in a gradient."""
    model, engine = engine_of(stage)
    train(engine, 1)

    def weight():
        with deepspeed.zero.GatheredParameters(list(model.parameters()), enabled=stage == 3):
            return model.blocks[0].up.weight.detach().clone()

    before, handle = weight(), None
    if dist.get_rank() == 1 and hidden:
        session(model).nonfinite.fill_(1)  # what such a cast notes
    elif dist.get_rank() == 1:
        handle = model.norm.register_forward_hook(lambda module, args, out: out * float("inf"))
    train(engine, 1, first=1)
    if handle is not None:
        handle.remove()
    after = weight()
    train(engine, 1, first=2)
    return before, after, weight(), session(model).skipped_steps


def resumed(folder, stage):
    """(the last steps of a run, the same after its checkpoint was loaded)"""
    folder = str(folder / f"stage{stage}")
    model, engine = engine_of(stage)
    train(engine, 2)
    # [save]
    engine.save_checkpoint(folder, client_state={"octavo": octavo.state_dict(model)})
    # [/save]
    whole = outcome(model, train(engine, STEPS - 2, first=2))
    model, engine = engine_of(stage, seed=7)
    # [load]
    _, saved = engine.load_checkpoint(folder)
    octavo.load_state_dict(model, saved["octavo"])
    # [/load]
    return whole, outcome(model, train(engine, STEPS - 2, first=2))


def said(call):
    try:
        call()
    except octavo.OctavoError as e:
        return type(e).__name__, str(e)
    return None


def refusals():
    def without_octavo():
        model, optimizer = made()
        octavo.prepare(model, overrides=te("delayed"))
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings(1))
        train(engine, 2)

    def partitioned():
        with deepspeed.zero.Init(config_dict_or_path=settings(3)):
            model = tiny_gpt.Gpt()
        octavo.deepspeed.initialize(model=model, config=settings(3), overrides=te("delayed"))

    def sharded():
        model, _ = octavo.prepare(made()[0], overrides=msamp("O2"), shard_optimizer_state=True)
        octavo.deepspeed.initialize(model=model, config=settings(1))

    model, optimizer = made()
    found = {"sharded": said(sharded), "msamp": said(lambda: octavo.deepspeed.initialize(
        model=model, optimizer=optimizer, config=settings(1), overrides=msamp("O2")))}
    found["plain"] = "octavo_session" not in vars(model) and type(model.head) is torch.nn.Linear
    found["fp16"] = said(lambda: engine_of(1, fp16={"enabled": True}))
    found["no model"] = said(lambda: octavo.deepspeed.initialize(config=settings(1)))
    found["without octavo"] = said(without_octavo)
    found["engine"] = said(lambda: octavo.prepare(deepspeed.initialize(
        model=made()[0], config=settings(0))[0], overrides=te("delayed")))
    found["zero.Init"] = said(partitioned)
    return found


def run(folder):
    # DeepSpeed would compile, for a minute, an all-reduce in shared memory for its inference.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed("gloo")
    found = {"sample": sample("sharded_deepspeed", folder), "ddp": ddp()}
    found.update({stage: run_of(stage) for stage in STAGES})
    found.update({(stage, "parts"): run_of(stage, parts=2) for stage in (2, 3)})
    found.update({(stage, hidden): infinite(stage, hidden) for stage, hidden in ((1, False), (2, True), (3, True))})
    return {**found, "bf16": run_of(3, bf16={"enabled": True}), "resumed": resumed(folder, 3), "refusals": refusals()}
