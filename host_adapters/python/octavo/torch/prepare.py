"""octavo.prepare: converts a plain model and its optimizer to FP8 training."""
import torch

from ..errors import InvalidError, StateError
from ..run import Config
from . import ddp, ops
from . import optimizer as optimizers
from .attention import fast_paths
from .converted import attach
from .discover import discover
from .prepared import is_prepared, session_of
from .session import Session
from .slots import Weight


def _check_model(model):
    if not isinstance(model, torch.nn.Module):
        raise InvalidError(f"model: expected a torch.nn.Module, found {type(model).__name__}")
    wrappers = {"DistributedDataParallel", "FullyShardedDataParallel", "OptimizedModule",
                "DataParallel"}
    found = wrappers.intersection(c.__name__ for c in type(model).__mro__)
    if found:
        raise StateError(f"model: expected the plain model, found {found.pop()}; call octavo.prepare "
                         "before wrapping or compiling it")
    if is_prepared(model):
        raise StateError("model: prepared already; call octavo.prepare once per model")


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
    """The name of an unconverted module that reads a weight; None if there is none."""
    converted = {id(m) for c in candidates for m in c.modules()}
    for name, module in model.named_modules():
        if id(module) in converted:
            continue
        if any(p is weight.parameter for p in module.parameters(recurse=False)):
            return name or type(module).__name__
    return None


def _open(model, config, accept):
    """Returns (Session, Discovery). If another module reads a weight that the backend would keep in
    slots, the linears of the weight stay with the host and the session is opened again without
    them."""
    excluded, reasons = set(), {}
    while True:  # terminates: each round excludes at least one more linear
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
                conflicts.update({n: "another part of its weight stays with the host"
                                  for n, own in pairs if own.parameter is w.parameter})
        if not conflicts:
            session.left_out = {**found.left_out, **reasons}
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


def prepare(model, optimizer=None, config=None, *, filter=None, overrides=None):
    """Converts the linear layers of a model to FP8, in place, and joins the optimizer.

    model: a torch.nn.Module, neither wrapped nor compiled. optimizer: a torch optimizer of its
    parameters, or None. config: the path of an octavo.toml, or None for the defaults. overrides: a
    dict with precedence over the file: {"fp8.te.recipe": "delayed"}. filter(module, name) -> bool:
    return False to exclude a module.

    Returns (model, optimizer). The model is the same object. The optimizer is the same object if
    the backend leaves the weights in the model, otherwise the backend's Adam with the same groups.
    Each optimizer.step() updates the scales; without an optimizer, call octavo.step(model).

    On an OctavoError, model and optimizer are unchanged. Call it from one thread.
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
    """Quantizes every weight again. Only needed after code wrote through `parameter.data`, which
    cannot be detected. In-place changes of parameters, loading and steps are detected."""
    session_of(model).quantize_all()


def step(model):
    """Updates the scales as an optimizer step does, for training without a torch optimizer."""
    session_of(model).end_step()
