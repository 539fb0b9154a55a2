"""octavo.prepare: from a plain model and optimizer to ones that train in FP8."""
import torch

from ..errors import InvalidError, StateError
from ..run import Config
from . import ddp
from . import optimizer as optimizers
from .attention import fast_paths
from .converted import attach
from .discover import discover
from .session import Session
from .slots import Weight


def session_of(model):
    """The session of a prepared model, also through DDP, Accelerate or torch.compile.

    Raises StateError for a model that was not prepared.
    """
    for module in model.modules():
        session = module.__dict__.get("octavo_session")
        if session is not None:
            return session
    raise StateError(f"{type(model).__name__}: expected a model that octavo.prepare returned, found "
                     "one that was not prepared")


def _check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise InvalidError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
    wrappers = {"DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule",
                "DataParallel"}
    found = wrappers.intersection(c.__name__ for c in type(model).__mro__)
    if found:
        raise StateError(f"model: expected the plain model, found {found.pop()}; call octavo.prepare "
                         "before wrapping or compiling it")
    if any("octavo_session" in m.__dict__ for m in model.modules()):
        raise StateError("model: it is prepared already; octavo.prepare is called once per model")


def _check_optimizer(model, optimizer):
    if optimizer is None:
        return
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidError(f"optimizer: expected a torch.optim.Optimizer or None, found "
                           f"{type(optimizer).__name__}")
    own = {id(p) for p in model.parameters()}
    foreign = sum(id(p) not in own for g in optimizer.param_groups for p in g["params"])
    if foreign:
        raise InvalidError(f"optimizer: expected parameters of this model, found {foreign} of another "
                           "one; create the optimizer from model.parameters()")


def _shared_with(model, candidates, weight):
    """Name of a module that reads a weight without being converted; None without one."""
    converted = {id(m) for c in candidates for m in c.modules()}
    for name, module in model.named_modules():
        if id(module) in converted:
            continue
        if any(p is weight.parameter for p in module.parameters(recurse=False)):
            return name or type(module).__name__
    return None


def _open(model, config, accept):
    """(Session, Discovery). A weight that the backend would keep itself, but that another module
    reads, leaves its linears with the host: then the session is opened again without them."""
    excluded, reasons = set(), {}
    while True:  # ends: each round excludes at least one linear more
        found = discover(model, accept, excluded)
        pairs = [(name, weight) for c in found.candidates for name, weight in c.linears.values()]
        session = Session(config, _with_others(model, found), pairs)
        conflicts = {}
        for w in session.weights:
            reader = None if w.is_native else _shared_with(model, found.candidates, w)
            if reader is not None:
                conflicts.update({n: f"its weight is shared with {reader}, which reads plain values"
                                  for n, own in pairs if own is w})
            elif len({v.is_native for v in session.weights_of(w.parameter)}) > 1:
                conflicts.update({n: "another piece of its weight stays with the host"
                                  for n, own in pairs if own.parameter is w.parameter})
        if not conflicts:
            session.left_out = {**found.left_out, **reasons}
            return session, found
        session.close()
        excluded.update(conflicts)
        reasons.update(conflicts)


def _with_others(model, found):
    """The linears' weights and every other parameter that can be one row or a matrix."""
    from . import ops
    known = {id(w.parameter) for w in found.weights}
    weights = list(found.weights)
    for name, p in model.named_parameters():
        if (id(p) not in known and not torch.nn.parameter.is_lazy(p) and p.dtype in ops.DTYPES
                and p.numel() > 0):
            weights.append(Weight(name, p, is_linear=False))
    return weights


def prepare(model, optimizer=None, config=None, *, filter=None, overrides=None):
    """Turns a model's linear layers into FP8 ones, in place, and joins the optimizer.

    config: path of an octavo.toml, or None for defaults; overrides: {"fp8.te.recipe": "delayed"}
    above it. filter(module, name) -> bool keeps a module out when it answers False.
    Returns (model, optimizer): the same model; the same optimizer where the backend leaves weights
    in the model, else the backend's Adam with the same groups. After each optimizer.step() scales
    are updated; without an optimizer call octavo.step(model).

    All or nothing: on an OctavoError the model and the optimizer are as they were. One thread.
    """
    _check_model(model)
    _check_optimizer(model, optimizer)
    session, found = _open(model, Config.of(config, overrides), filter)
    undo, taken, converted = [], [], []
    layouts = [(w.parameter, w.parameter.data) for w in found.weights if w.transposed]
    try:
        joined = optimizers.join(session, optimizer)
        for candidate in found.candidates:
            sites = {part: session.sites.get(name)
                     for part, (name, _) in candidate.linears.items()}
            if all(site is None for site in sites.values()):
                continue
            modules = candidate.modules()
            undo += [(m, m.__class__, dict(m.__dict__)) for m in modules]
            candidate.converter.apply(candidate.module, sites)
            for module in modules:
                attach(module, session, _own_weights(session, module))
            converted.append(candidate.module)
        for module, attribute, value in fast_paths(model, converted):
            undo.append((module, module.__class__, dict(module.__dict__)))
            setattr(module, attribute, value)
        taken = optimizers.take_weights(session)
        session.quantize_all()
        model.octavo_session = session
    except BaseException:
        optimizers.give_back(taken + layouts)
        for module, cls, attributes in reversed(undo):
            module.__class__ = cls
            module.__dict__.clear()
            module.__dict__.update(attributes)
        session.close()
        raise
    model.register_load_state_dict_post_hook(_after_load)
    ddp.ignore_slots(model, session)
    optimizers.hook(session, joined)
    return model, joined


def _own_weights(session, module):
    own = {name: session.weights_of(p) for name, p in module.named_parameters(recurse=False)}
    return {name: weights for name, weights in own.items() if weights}


def _after_load(model, incompatible):
    session_of(model).quantize_all()


def refresh(model):
    """Quantizes every weight anew. Due only after code wrote through `parameter.data`, which changes
    values without a trace; in-place changes of parameters, loading and steps are noticed."""
    session_of(model).quantize_all()


def step(model):
    """What an optimizer step does to scales: for training without a torch optimizer."""
    session_of(model).end_step()
