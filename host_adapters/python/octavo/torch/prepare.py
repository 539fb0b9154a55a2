"""octavo.prepare: converts a plain model and its optimizer to FP8 training."""
from __future__ import annotations

import copyreg
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

import torch

from ..configuration import Config, Configuration
from ..errors import InvalidError, StateError, UnsupportedError, renamed
from . import ops, optimizer as optimizers
from .checkpoint.state import carry, snapshot
from .layers.attention import fast_paths
from .layers.converted import attach, detach
from .layers.discover import Choice, discover
from .models import has_converted, is_prepared, session_of
from .ranks import fsdp, owners, tensor_parallel
from .ranks.fsdp import GATHER_CHOICES, gather_of
from .ranks.groups import check_gpus, is_initialized, note_active_wrapper, wrapper_around
from .session import Session
from .slots import TRACED, Weight
from .steps import end
from .telemetry import Telemetry
from .weights import parameter
from .weights.gradient import GradientView, SlotGradient
from .weights.parameter import SlotParameter

Model = TypeVar("Model", bound=torch.nn.Module)
Optimizer = TypeVar("Optimizer", bound="torch.optim.Optimizer | None")


# octavo.restore: from a prepared model to the plain one.


def put_back(undo):
    """Gives modules their classes and attributes back: [(module, class, attributes)]."""
    for module, cls, attributes in reversed(undo):
        module.__class__ = cls
        module.__dict__.clear()
        module.__dict__.update(attributes)


def make_plain(model, session):
    """Makes the model plain. Returns a function that undoes it; the session stays open."""
    session.settle_all()
    undo = [(m, m.__class__, dict(m.__dict__)) for m in model.modules()]
    hooks = model._forward_pre_hooks
    own = [id for id, hook in hooks.items() if hook is note_active_wrapper]
    for id in own:
        del hooks[id]
    gradients = [(p, p.grad) for p in session.owned_parameters()]
    for module in model.modules():
        for name, value in module.__dict__.pop("octavo_plain_attributes", {}).items():
            setattr(module, name, value)
        detach(module)
    for p, gradient in gradients:
        p.grad = None
        parameter.give_back(p, session.read(p))
        p.grad = gradient.plain() if hasattr(gradient, "plain") else gradient

    def rollback():
        hooks.update(dict.fromkeys(own, note_active_wrapper))
        for p, gradient in gradients:
            p.grad = None
            parameter.adopt(session, p)
            p.grad = gradient
        put_back(undo)
        session.slots_changed()

    return rollback


def check_whole(session):
    """Raises UnsupportedError for a session of a sharded model: FSDP's own classes are made on top of
    the converted ones. Raises StateError where other ranks hold a part of its state."""
    if session is not None and not session.holds_all():
        raise StateError(
            "model: expected its whole state on this rank, found optimizer state that is sharded; do this inside of "
            "octavo.full_state(model), on every rank")
    if session is not None and session.is_sharded:
        raise UnsupportedError(
            "model: expected one that is not sharded, found fully_shard (FSDP2) around its converted "
            "layers; load its state dict into a new model, or call octavo.join for another optimizer")


def restore(model: Model) -> Model:
    """Makes a prepared model plain again, in place: torch's own modules and parameters with the current values.

    The FP8 state is gone; save it before with octavo.state_dict. The backend's Adam cannot step the model afterwards; make an
    optimizer of torch.

    Args:
        model: The model that octavo.prepare returned, not a wrapper of it.

    Returns:
        The same model.

    Raises:
        StateError: The model was not prepared, or other ranks hold a part of its state.
        UnsupportedError: fully_shard is around its layers.

    Example:
        >>> model = octavo.restore(model)
    """
    session = model.__dict__.get("octavo_session") if isinstance(model, torch.nn.Module) and is_prepared(model) else None
    if session is None:
        raise StateError("model: expected the model that octavo.prepare returned, found another one or a "
                         "wrapper; pass the model itself")
    check_whole(session)
    make_plain(model, session)
    session.close()
    return model


# What is in slots goes to another process by value: torch's own way would move the slots to shared memory, where
# two processes would write to them, and with them the copies that code makes for a moment, whose memory must stay until
# the other process has begun. Registered for the picklers of multiprocessing alone: Process, Queue, Pool and DataLoader.


class _Value:
    """A tensor that its pickle has the bytes of."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __reduce__(self):
        t = self._tensor.detach()
        return _received, (t.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), t.dtype, tuple(t.shape),
                           str(t.device))


def _received(data, dtype, shape, device):
    tensor = torch.empty(shape, dtype=dtype, device="cpu")
    if data:
        tensor.reshape(-1).view(torch.uint8).copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
    return tensor.to(device)


def _parameter(data, requires_grad):
    return torch.nn.Parameter(data, requires_grad)


def _session(session):
    state = session.__getstate__()
    state["tensors"] = [None if t is None else _Value(t) for t in state["tensors"]]
    return copyreg.__newobj__, (Session,), state


ForkingPickler.register(Session, _session)
ForkingPickler.register(SlotParameter, lambda p: (_parameter, (_Value(p), p.requires_grad)))
ForkingPickler.register(SlotGradient, lambda g: _Value(g.plain()).__reduce__())
ForkingPickler.register(GradientView, lambda v: _Value(v.plain()).__reduce__())


def _kind_of(thing):
    """The kind of a thing that is not an object of the expected class, for a message."""
    return f"the class {thing.__name__}; give an object of it" if isinstance(thing, type) else type(thing).__name__


def _check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise InvalidError(f"model: expected a torch.nn.Module, found {_kind_of(model)}")
    wrappers = {"DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule",
                "DataParallel", "DeepSpeedEngine"}
    found = wrappers.intersection(c.__name__ for c in type(model).__mro__)
    if found:
        raise StateError(f"model: expected the plain model, found {found.pop()}; call octavo.prepare "
                         "before wrapping or compiling it")
    if is_prepared(model) and "octavo_session" not in model.__dict__:
        part = next(n for n, m in model.named_modules() if "octavo_session" in m.__dict__)
        raise StateError(f"model: expected a plain model or one that octavo.prepare returned, found one "
                         f"whose part {part!r} is prepared already; call octavo.restore on the part "
                         "first")
    if not is_prepared(model) and has_converted(model):
        raise StateError("model: expected a plain model or one that octavo.prepare returned, found a part of one that is "
                         "prepared already; pass the whole model, or call octavo.restore on it first")


def _check_optimizer(model, optimizer):
    if optimizer is None:
        return
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidError(f"optimizer: expected a torch.optim.Optimizer or None, found "
                           f"{_kind_of(optimizer)}")
    own = {id(p) for p in model.parameters()}
    foreign = sum(id(p) not in own for g in optimizer.param_groups for p in g["params"])
    if foreign:
        raise InvalidError(f"optimizer: expected parameters of this model, found {foreign} of another "
                           "one; create the optimizer from model.parameters()")


def _shared_with(model, candidates, weight):
    """The name of an unconverted module that reads a weight; None without one."""
    converted = {id(m) for c in candidates for m in c.modules()}
    for name, module in model.named_modules():
        if id(module) in converted:
            continue
        if any(p is weight.parameter for p in module.parameters(recurse=False)):
            return name or type(module).__name__
    return None


def _open(model, config, choice, owners_of, functional):
    """Returns (Session, Discovery). If another module reads a weight that the backend would keep in
    slots, the linears of the weight are not converted and the session is opened again without
    them."""
    excluded, reasons = set(), {}
    while True:  # terminates: each round excludes at least one more linear
        found = discover(model, choice, excluded, functional)
        if tensor_parallel.is_in(model):
            tensor_parallel.assign(found.weights)
        pairs = [(name, weight) for c in found.candidates for name, weight in c.linears.values()]
        session = Session(config, _with_others(model, found), pairs, owners_of)
        conflicts = {}
        for w in session.weights:
            reader = None if w.is_native else _shared_with(model, found.candidates, w)
            if reader is not None:
                conflicts.update({n: f"its weight is shared with {reader}, which reads plain values"
                                  for n, own in pairs if own is w})
            elif len({v.is_native for v in session.weights_of(w.parameter)}) > 1:
                conflicts.update({n: "another part of its weight is not converted"
                                  for n, own in pairs if own.parameter is w.parameter})
        if not conflicts:
            for pattern in sorted(choice.unmatched):
                warnings.warn(f'octavo.prepare: skip: no layer matches "{pattern}"', stacklevel=5)
            session.left_out, session.functional, session.skip = {**found.left_out, **reasons}, functional, choice.skip
            return session, found
        session.close()
        excluded.update(conflicts)
        reasons.update(conflicts)


def _with_others(model, found):
    """The weights of the linears, and every other parameter that can be described as a matrix."""
    known = {id(w.parameter) for w in found.weights}
    weights = list(found.weights)
    for name, p in model.named_parameters():
        if (id(p) not in known and not torch.nn.parameter.is_lazy(p) and p.dtype in ops.DTYPES
                and p.numel() > 0):
            weights.append(Weight(name, p, is_linear=False))
    return weights


def _check_converts(session):
    """FP8 without a single layer in FP8 is an error."""
    if session.sites or not session.run.backend:
        return
    reasons = {**session.left_out, **{n: str(v) for n, v in session.verdicts.items()}}
    shown = "; ".join(f"{name}: {reason}" for name, reason in list(reasons.items())[:4])
    raise UnsupportedError(
        "the model: expected at least one linear layer that runs in FP8, found none"
        + (f" ({shown})" if shown else " (it has no linear layers)")
        + '; change the model, module_filter or the configuration, or set mixed_precision = "bf16"')


def _check_wrapper(session, model):
    """A DDP that exists would wait for gradients that are in slots from now on."""
    if session.needs_own_optimizer and is_initialized() and wrapper_around(model) is not None:
        raise StateError("model: expected a model that is not wrapped yet, since DistributedDataParallel "
                         f"must know which gradients backend {session.run.backend} keeps, found one "
                         "around it; call octavo.prepare first, then wrap the model")


@renamed("octavo.prepare", filter="module_filter=", gather="fsdp_gather=", telemetry="record_every_n_steps=",
         check_every="detect_writes=")
def prepare(model: Model, optimizer: Optimizer = None, config: Configuration = None, *, recipe: str | None = None,
            skip: Sequence[str] | None = None, module_filter: Callable[[torch.nn.Module, str], bool] | None = None,
            overrides: Mapping[str, Any] | None = None, group: Any = None, detect_writes: bool = True,
            fsdp_gather: str | None = None, record_every_n_steps: int = 0, shard_optimizer_state: bool | None = None,
            functional: Sequence[str] | None = None) -> tuple[Model, Optimizer]:
    """Converts the linear layers of a model to FP8, in place, and joins the optimizer.

    A step of any torch optimizer over the model's parameters updates the scales; without one, call octavo.step(model).
    For a model that is prepared already, this is the next stage: it takes the model, the optimizer and the configuration as
    they are now, and keeps the scales of layers that stay. Arguments that are None then keep their previous values. Moments in
    slots start anew for another optimizer; without one, the backend's previous Adam continues. Call it from one thread.

    Args:
        model: A torch.nn.Module, neither wrapped nor compiled; fully_shard may come before or after, parallelize_module
            before, and parameters may be without memory (meta).
        optimizer: A torch optimizer of its parameters, or None; octavo.join takes one that is made later.
        config: The path of an octavo.toml, a dict with its tables, an octavo.Config, or None for the defaults.
        recipe: "<backend>.<recipe>", such as "te.block" or "msamp.O2"; it counts before config.
        skip: Patterns of names of layers that are not converted, besides the patterns in layers.skip, which has "*head*" by default;
            overrides={"layers.skip": []} converts the head as well.
        module_filter: A function of (module, name): False leaves the module out.
        overrides: Dotted keys, {"fp8.te.margin": 1}, which count before config and recipe.
        group: The process group whose ranks train this model together; None: the group of the mesh of fully_shard or
            parallelize_module, or of the DistributedDataParallel that wraps it, if any.
        detect_writes: False where nothing writes a weight through `.data` or shared memory between two forwards of a step:
            the later ones then use its codes again without looking at its values, see octavo.refresh.
        fsdp_gather: How fully_shard gathers weights: as "values", the default, or "fp8", their codes, with
            bit-identical results; octavo.report names the layers whose values are gathered all the same, and why.
        record_every_n_steps: Every how many optimizer steps one keeps what casts record, for octavo.telemetry; 0: none does.
        shard_optimizer_state: True for a backend that keeps moments and master weights in slots: each rank of the group,
            by default of all ranks, holds them for its share of the parameters, steps these, and sends the others their
            weights; see octavo.full_state.
        functional: Names of parameters, or patterns such as "blocks.*.w_in", that are not weights of layers; the forward of
            their module gives them to torch.nn.functional.linear.

    Returns:
        (model, optimizer). The model is the same object. The optimizer is the same object if the backend leaves the weights
        in the model, otherwise the backend's Adam with the same groups.

    Raises:
        InvalidError: A malformed argument or configuration.
        UnsupportedError: No backend that the configuration allows can run here, or no layer of the model can.
        StateError: The model is wrapped, or sharded between the stages.
        After an error, model and optimizer are unchanged.

    Example:
        >>> model, optimizer = octavo.prepare(model, optimizer, recipe="te.block", skip=["embed.*"])
    """
    _check_model(model)
    _check_optimizer(model, optimizer)
    if not isinstance(record_every_n_steps, int) or record_every_n_steps < 0:
        raise InvalidError(f"record_every_n_steps: expected a number of steps from 0, found {record_every_n_steps!r}")
    if not isinstance(detect_writes, bool):
        raise InvalidError(f"detect_writes: expected True or False, found {detect_writes!r}")
    if shard_optimizer_state not in (None, False, True):
        raise InvalidError(f"shard_optimizer_state: expected True, False or None, found {shard_optimizer_state!r}")
    if fsdp_gather not in (None, *GATHER_CHOICES):
        raise InvalidError(f'fsdp_gather: expected "values" or "fp8", found {fsdp_gather!r}')
    before = model.__dict__.get("octavo_session")
    check_whole(before)
    if before is None:
        made = _convert(model, optimizer, Config.of(config, overrides, recipe), Choice(module_filter, skip or ()), group,
                        fsdp_gather, bool(shard_optimizer_state), tuple(functional or ()))
        _watch(session_of(model), detect_writes, record_every_n_steps)
        return made
    config = before.config if config is None else Config.of(config)
    choice = Choice(module_filter, before.skip if skip is None else skip)
    if group is None and (before.owners is None or before.owners.is_named):
        group = before.group
    if shard_optimizer_state is None:
        shard_optimizer_state = before.owners is not None
    kept, rollback = snapshot(before), make_plain(model, before)
    try:
        model, joined = _convert(model, optimizer, Config.of(config, overrides, recipe), choice, group,
                                 fsdp_gather or ("fp8" if before.gather is not None else None),
                                 shard_optimizer_state, before.functional if functional is None else tuple(functional))
    except BaseException:
        rollback()
        raise
    after = session_of(model)
    carry(after, kept)
    if optimizer is not None and joined is not optimizer:
        after.clear_moments(p for group in joined.param_groups for p in group["params"])
    after.step_state.count_skipped(before.skipped_steps)
    _watch(after, detect_writes, record_every_n_steps)
    for adam in optimizers.adams_of(before):
        if optimizer is None and after.needs_own_optimizer:
            adam.session = after
    before.close()
    return model, joined


def _watch(session, detect_writes, record_every_n_steps):
    session.telemetry = Telemetry(session, record_every_n_steps)
    session.flags.since[TRACED] = not detect_writes


def _convert(model, optimizer, config, choice, group, gather, shards, functional):
    ranks = owners.group_for(shards, group)
    session, found = _open(model, config, choice, lambda opened: None if ranks is None else owners.Owners(
        opened, ranks, group is not None), functional)
    session.group = group if ranks is None else ranks
    undo, taken, converted, hook = [], [], [], None
    layouts = [(w.parameter, w.parameter.data) for w in found.weights if w.transposed]
    try:
        check_gpus(session, session.group)
        _check_converts(session)
        _check_wrapper(session, model)
        fsdp.check_all(session)
        tensor_parallel.check(session)
        fsdp.check_rest(session, ((w.name, w.parameter) for w in session.weights))
        session.gather = gather_of(session, gather, model,
                                   lambda w: _shared_with(model, found.candidates, w))
        joined = optimizers.joined(session, optimizer)
        multiplied = {id(weights[0].parameter): weights for weights in session.of_linears()}
        for candidate in found.candidates:
            sites = {part: session.sites.get(name)
                     for part, (name, _) in candidate.linears.items()}
            if all(site is None for site in sites.values()):
                continue
            modules = candidate.modules()
            undo += [(m, m.__class__, dict(m.__dict__)) for m in modules]
            candidate.converter.apply(candidate.module, sites)
            for module in modules:
                attach(module, session, _own_weights(multiplied, module))
            converted.append(candidate.module)
        session.unplaced.clear()
        for module, attribute, value in fast_paths(model, converted):
            undo.append((module, module.__class__, dict(module.__dict__)))
            module.__dict__.setdefault("octavo_plain_attributes", {})[attribute] = getattr(
                module, attribute)
            setattr(module, attribute, value)
        for p in session.owned_parameters():
            taken.append((p, parameter.take(session, p)))
        model.octavo_session = session
        session.holder = weakref.ref(model)
        hook = model.register_forward_pre_hook(note_active_wrapper)
        fsdp.prepared(session)
    except BaseException:
        model.__dict__.pop("octavo_session", None)
        if hook is not None:
            hook.remove()
        for p, values in taken:
            parameter.give_back(p, values)
        for p, data in layouts:
            p.data = data
        put_back(undo)
        session.close()
        raise
    return model, joined


def _own_weights(multiplied, module):
    return {name: multiplied[id(p)] for name, p in module.named_parameters(recurse=False)
            if id(p) in multiplied}


def refresh(model: torch.nn.Module) -> None:
    """The next forward quantizes every weight again.

    Only needed after code wrote through `parameter.data` or memory that torch shares, where octavo.prepare had
    detect_writes=False, between two evaluations in FP8, and for steps without an optimizer on a GPU. Everything else is
    detected.

    Args:
        model: A prepared model.

    Raises:
        StateError: The model was not prepared.

    Example:
        >>> octavo.refresh(model)
    """
    session_of(model).refresh()


def step(model: torch.nn.Module) -> None:
    """Updates the scales as a step of an optimizer does, for training without one.

    Does nothing if no forward ran since the last step.

    Args:
        model: A prepared model.

    Raises:
        StateError: The model was not prepared.

    Example:
        >>> octavo.step(model)
    """
    end(session_of(model))
