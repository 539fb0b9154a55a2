"""Octavo with DeepSpeed: ZeRO 1, 2 and 3, and without ZeRO.

    engine, optimizer, loader, scheduler = octavo.deepspeed.initialize(model=model, optimizer=optimizer, config=settings,
                                                                       octavo_config="octavo.toml")

replaces deepspeed.initialize. The ranks combine their maxima, each optimizer step is a boundary of the FP8 state, and a step
whose backward met Inf or NaN changes nothing, as everywhere else. Checkpoints carry the FP8 state as client_state:

    engine.save_checkpoint(folder, client_state={"octavo": octavo.state_dict(model)})
    _, saved = engine.load_checkpoint(folder)
    octavo.load_state_dict(model, saved["octavo"])
"""
import inspect
import json
import os
import weakref

import deepspeed
import torch

from .errors import InvalidError, UnsupportedError, renamed
from .files import text_of
from .torch import steps
from .torch.models import session_of
from .torch.prepare import prepare, restore
from .torch.ranks.owners import expect_whole


_engines = weakref.WeakKeyDictionary()   # session -> a reference to its engine
_left_out = weakref.WeakKeyDictionary()  # session -> the engine's count that _forget_left_out has seen


@renamed("octavo.deepspeed.initialize", filter="octavo_module_filter=")
def initialize(*args, octavo_config=None, octavo_recipe=None, octavo_skip=None, octavo_module_filter=None, overrides=None,
               **kwargs):
    """Calls octavo.prepare, then deepspeed.initialize, and returns what the latter does.

    Takes the arguments of deepspeed.initialize. octavo_config, octavo_recipe, octavo_skip, octavo_module_filter,
    overrides: as in octavo.prepare without octavo_. With bf16 in DeepSpeed's configuration the model is cast before. Call it on
    every rank.

    Raises UnsupportedError for a backend that keeps weights or gradients in its own format, for fp16, pipelines
    and models of deepspeed.zero.Init, and the errors of octavo.prepare. The model is plain after an error, also after one that
    DeepSpeed raises.
    """
    given = inspect.signature(deepspeed.initialize).bind(*args, **kwargs).arguments
    model, optimizer, config = given.get("model"), given.get("optimizer"), given.get("config")
    if config is None:
        config = given.get("config_params") or getattr(given.get("args"), "deepspeed_config", None)
    _check(model)
    expect_whole(model, "deepspeed", "its engine steps other parameters")
    if _is_on(config, "fp16"):
        raise UnsupportedError("deepspeed: expected bf16 or full precision, found fp16, whose loss scaling leaves out "
                               "steps where no optimizer sees it; enable bf16 in its place")
    if _is_on(config, "bf16"):
        model.to(torch.bfloat16)
    prepare(model, optimizer if isinstance(optimizer, torch.optim.Optimizer) else None, octavo_config,
            recipe=octavo_recipe, skip=octavo_skip, module_filter=octavo_module_filter, overrides=overrides)
    try:
        session = session_of(model)
        session.expect_weights_in_model("deepspeed", "ZeRO", "use DistributedDataParallel")
        made = deepspeed.initialize(*args, **kwargs)
    except BaseException:
        restore(model)
        raise
    engine = made[0]
    session.group = engine.data_parallel_group
    stepped = engine.optimizer
    while stepped is not None and not isinstance(stepped, torch.optim.Optimizer):
        stepped = getattr(stepped, "optimizer", None)
    if stepped is not None:
        steps.follow(session, model, stepped)
    _engines[session] = weakref.ref(engine)
    model.register_forward_pre_hook(_forget_left_out)
    return made


def _forget_left_out(model, args):
    """DeepSpeed leaves out a step whose gradients it finds infinite, before it calls the optimizer. The next step does not
    count the values that casts recorded in that one."""
    session = session_of(model)
    engine = _engines.get(session, lambda: None)()
    if engine is not None and engine.skipped_steps > _left_out.get(session, 0):
        session.step_state.count_skipped(engine.skipped_steps - _left_out.get(session, 0))
        _left_out[session] = engine.skipped_steps
        steps.forget(session)


def _check(model):
    if not isinstance(model, torch.nn.Module):
        raise InvalidError(f"deepspeed: expected model=<a torch.nn.Module>, found {type(model).__name__}; name it in "
                           "the call of octavo.deepspeed.initialize")
    if isinstance(model, deepspeed.PipelineModule):
        raise UnsupportedError("deepspeed: expected a model without pipeline stages, found a PipelineModule; leave the "
                               "pipeline out")
    partitioned = next((n for n, p in model.named_parameters() if hasattr(p, "ds_tensor")), None)
    if partitioned is not None:
        raise UnsupportedError(f"{partitioned}: expected a whole parameter, found one that deepspeed.zero.Init has "
                               "partitioned; make the model outside of it, and let ZeRO 3 partition it")


def _is_on(config, name):
    if isinstance(config, (str, os.PathLike)):
        config = json.loads(text_of(config))
    part = config.get(name) if isinstance(config, dict) else None
    return bool(part and part.get("enabled"))
