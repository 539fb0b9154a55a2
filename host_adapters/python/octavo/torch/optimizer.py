"""The backend's Adam, which replaces torch's where weights or gradients are in slots."""
from __future__ import annotations

import weakref
from collections.abc import Iterable

import torch

from .. import _abi
from ..errors import InvalidError, StateError, UnsupportedError
from .device import is_captured
from .models import holder_of, is_a, is_dtensor, session_of
from .ranks import ddp, fsdp
from .ranks.fsdp import Rest, adopt_rest
from .slots import BACKWARD, CAPTURED
from .steps import disable
from .weights.gradient import SlotGradient


# Moments between the backend's slots and the states of torch's Adam and AdamW.

_ROLES = {"exp_avg": _abi.ROLE_EXP_AVG, "exp_avg_sq": _abi.ROLE_EXP_AVG_SQ}
_KEYS = {"step", *_ROLES}
PART = "octavo_part"  # in a state: which rank's, where others hold the rest
_REMEDY = "load a state of torch.optim.AdamW or Adam for the same parameters in the same order"


def _parameters(adam):
    return [p for group in adam.param_groups for p in group["params"]]


def _counters(session):
    """{id of a Weight: its step count, i32[1]}."""
    return {s.owner: session.tensors[s.id] for s in session.slots
            if s.role == _abi.ROLE_COUNTER and s.owner_kind == _abi.OWNER_PARAMETER}


def _order(state_dict):
    return [i for group in state_dict["param_groups"] for i in group["params"]]


def _is_here(session, p):
    """Whether this rank holds the moments of a parameter."""
    return all(session.can_read(p, role) for role in (*_ROLES.values(), _abi.ROLE_COUNTER))


def check_moments(adam, state_dict):
    """{position: {"step": int, "exp_avg": tensor, "exp_avg_sq": tensor}} of parameters whose moments are in slots;
    empty where the state has groups of other sizes, which torch refuses. Raises StateError."""
    state, parameters = state_dict.get("state", {}), _parameters(adam)
    order = _order(state_dict)
    if len(order) != len(parameters):
        return {}
    found = {}
    for at, (key, p) in enumerate(zip(order, parameters)):
        if not adam.session.weights_of(p):
            continue
        if key not in state:
            if PART in state_dict and _is_here(adam.session, p):
                raise StateError(f"optimizer state of parameter {at}: expected its moments, which this rank holds, found "
                                 f"only those on {state_dict[PART]}; save inside of octavo.full_state(model)")
            continue
        where, own = f"optimizer state of parameter {at}", state[key]
        if set(own) != _KEYS:
            raise StateError(f"{where}: expected step, exp_avg and exp_avg_sq, found {', '.join(map(str, own))}; {_REMEDY}")
        step = float(own["step"])
        if not 0 <= step < 2**31 or step != int(step):
            raise StateError(f"{where}: expected a whole number of steps below 2^31, found {step}; {_REMEDY}")
        for name in _ROLES:
            value = own[name]
            shape = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            if shape != tuple(p.shape):
                raise StateError(f"{where}: expected {name} of shape {tuple(p.shape)}, found {shape}; {_REMEDY}")
            if not value.isfinite().all() or (name == "exp_avg_sq" and (value < 0).any()):
                raise StateError(f"{where}: expected finite moments and no second one below 0, found another value "
                                 f"in {name}; load an earlier state")
        found[at] = {**own, "step": int(step)}
    return found


def other_states(adam, state_dict):
    """The state without the moments of parameters that have them in slots."""
    kept = {key for key, p in zip(_order(state_dict), _parameters(adam)) if not adam.session.weights_of(p)}
    return {**state_dict, "state": {key: own for key, own in state_dict["state"].items() if key in kept}}


@torch.no_grad()
def write_moments(adam, found):
    """Writes what check gave; other parameters start anew. Slots that hold these values already keep their codes, and
    slots that another rank holds are written there."""
    session = adam.session
    counters = _counters(session)
    for at, p in enumerate(_parameters(adam)):
        if at in found and _has(session, counters, p, found[at]):
            continue
        session.clear_moments([p])
        if at not in found:
            continue
        for name, role in _ROLES.items():
            if session.can_read(p, role):
                session.write(p, found[at][name].to(p.device), role)
        for w in session.weights_of(p) if session.can_read(p, _abi.ROLE_COUNTER) else ():
            if w.id in counters:
                counters[w.id].fill_(found[at]["step"])


def _step(session, counters, p):
    return max((int(counters[w.id]) for w in session.weights_of(p) if w.id in counters), default=0)


def _has(session, counters, p, own):
    return _is_here(session, p) and _step(session, counters, p) == own["step"] and all(
        torch.equal(session.read(p, role), own[name].to(p.device, p.dtype)) for name, role in _ROLES.items())


def read_moments(adam):
    """{position: state} of the parameters whose moments this rank holds, on the CPU."""
    session, found = adam.session, {}
    counters = _counters(session)
    for at, p in enumerate(_parameters(adam)):
        if any(w.id in counters for w in session.weights_of(p)) and _is_here(session, p):
            found[at] = {"step": torch.tensor(float(_step(session, counters, p)), device="cpu"),
                         **{name: session.read(p, role).cpu() for name, role in _ROLES.items()}}
    return found


_adams = weakref.WeakSet()
_RATE, _FACTOR = 0, 5  # OCTAVO_HYPER_LR, OCTAVO_HYPER_GRAD_SCALE
_READ = ("lr", "beta1", "beta2", "eps", "weight_decay", "grad_scale")


class Adam(torch.optim.Optimizer):
    """Adam or AdamW on the backend's own formats: octavo.optimizer/2.

    octavo.prepare makes it from a torch Adam or AdamW. The two share their parameter groups, so
    schedulers created before or after see the same lr. Moments and step counts are in slots; octavo.state_dict
    has their bits, and state_dict() their values. Use it from one thread.
    """

    _rest = None

    def __init__(self, session, source, rest=None):
        self.session = session
        self._source, self._rest = source, rest
        groups = source.param_groups
        super().__init__(groups, {k: groups[0][k] for k in ("lr", "betas", "eps", "weight_decay")})
        self.param_groups = groups  # the list itself: a group that is added to either is one of both
        self._start()

    def _start(self):
        self.octavo_found_inf = True  # it takes found_inf: see steps.py
        self._pinned, self._of_graphs = None, []
        self._has_looked = False  # for fully_shard of what it steps
        _adams.add(self)

    def __getstate__(self):
        # The session first: copies of its parameters then know that it is copied, too.
        return {"session": self.session, **super().__getstate__(), "_source": None}

    def __setstate__(self, state):
        super().__setstate__(state)
        self._start()

    @disable
    def load_state_dict(self, state_dict):
        """Loads the groups, moments and steps of a state of this class, or of torch's Adam or AdamW. Schedulers
        created for the original optimizer use the groups as well. Parameters without moments there start anew.

        The backend rounds moments to its formats; where slots have these values already, as after
        octavo.load_state_dict, no bit changes. Raises StateError before anything changes."""
        found = check_moments(self, state_dict)
        super().load_state_dict(other_states(self, state_dict))
        write_moments(self, found)
        if self._source is not None:
            self._source.param_groups = self.param_groups

    @disable
    def state_dict(self):
        """The state that torch's AdamW or Adam loads: the groups, and per parameter `step`, `exp_avg` and `exp_avg_sq`,
        in the parameter's shape and dtype, on the CPU. With shard_optimizer_state it has what this rank holds, and
        inside of octavo.full_state all."""
        own = super().state_dict()
        part = {} if self.session.holds_all() else {PART: self.session.owners.label()}
        return {**own, "state": {**own["state"], **read_moments(self)}, **part}

    @disable
    @torch.no_grad()
    def step(self, closure=None):
        """Steps every parameter that has a gradient. Returns the loss of the closure, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        session = self.session
        if session.is_closed:
            raise StateError("optimizer: expected a prepared model, found one that octavo.restore made "
                             "plain again, or that was prepared for another optimizer; use that one")
        if self._changes_nothing():
            if self._rest is not None:
                self._rest.step(self)
            return loss
        if session.owners is not None:
            session.owners.check_step()
        if not self._has_looked and self._source is not None:
            self._source.state.clear()  # its moments are in slots, or in the state of this one
        if not self._has_looked and self._rest is None:
            model = holder_of(session)
            fsdp.check_rest(session, () if model is None else model.named_parameters())
            self._has_looked = True
        ids, rows, among = [], [], []
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            rate = group["lr"]
            if not isinstance(rate, torch.Tensor) or rate.device.type == "cpu":
                rate = float(rate)
            for p in group["params"]:
                weights = session.weights_of(p)
                if not weights and self._is_unknown(p):
                    raise StateError("optimizer: expected the parameters that it had when the model was prepared, found "
                                     f"another one, of shape {tuple(p.shape)}; prepare again after adding parameters")
                among += weights
                factor = _factor(p, weights)
                if factor is None:
                    continue
                for w in weights:
                    if not session.steps(w):
                        continue
                    rows.append([rate, beta1, beta2, group["eps"], group["weight_decay"], factor,
                                 0.0, 0.0])
                    ids.append(w.id)
        if ids or session.owners is not None:
            session.optimizer_step(ids, self._hyper(rows) if ids else None,
                                   getattr(self, "found_inf", session.nonfinite), among)
        if is_captured(session.device):  # each replay adds to its gradients
            for group in self.param_groups:
                for p in group["params"]:
                    session.drop_graph_gradient(p)
        if self._rest is not None:
            self._rest.step(self)
        return loss

    def _is_unknown(self, p):
        return p.requires_grad and (self._rest is None or not is_dtensor(p))

    def _hyper(self, rows):
        """The rows as float32 on the device. Rates and factors that are tensors stay there."""
        late = {}
        for column in (_RATE, _FACTOR):
            values = [row[column] for row in rows]
            if any(isinstance(v, torch.Tensor) for v in values):
                late[column] = values
        numbers = [[0.0 if isinstance(v, torch.Tensor) else v for v in row] for row in rows] if (
            late) else rows
        hyper = self._to_device(torch.tensor(numbers, dtype=torch.float32, device="cpu"))
        for column, values in late.items():
            hyper[:, column] = torch.stack([
                v.reshape(()).float() if isinstance(v, torch.Tensor) else hyper[i, column]
                for i, v in enumerate(values)])
        return hyper

    def _to_device(self, values):
        """Without waiting. A CUDA graph reads the host's memory in each replay, so it keeps its own buffer, which the step
        before has allocated."""
        device = self.session.device
        if device.type != "cuda":
            return values.to(device)
        if is_captured(device):
            if self._pinned is None or self._pinned.shape != values.shape:
                raise StateError("optimizer: expected a step with the same parameters before the one "
                                 "that is captured, found none; warm up as torch.cuda.graph describes")
            self._of_graphs.append(self._pinned.copy_(values))
            values, self._pinned = self._pinned, None
        else:
            if self._pinned is None or self._pinned.shape != values.shape:
                self._pinned = torch.empty(values.shape, device="cpu", pin_memory=True)
            values = values.pin_memory()  # torch keeps it until the copy is done
        return values.to(device, non_blocking=True)

    def _changes_nothing(self):
        """Whether this is the step with zeros that torch.distributed.checkpoint makes, so that an optimizer allocates its
        state. The state here exists, so that step must not change it."""
        since = self.session.flags.since
        return not since[BACKWARD] and not since[CAPTURED] and all(
            float(group["lr"]) == 0 for group in self.param_groups)


def _factor(p, weights):
    """The factor of the stored gradient, 1.0 or a tensor; None without a gradient."""
    if not weights:
        return None
    if isinstance(p.grad, SlotGradient):
        p.grad.complete()
        factor = p.grad.factor
        return factor.item() if factor.device.type == "cpu" else factor
    return None if p.grad is None else 1.0


def adams_of(session):
    """The backend's optimizers that step this session."""
    return [adam for adam in _adams if adam.session is session]


def _refuse(session, optimizer, expected, remedy):
    raise UnsupportedError(f"optimizer: backend {session.run.backend} keeps weights or gradients in its "
                           f"own format; expected {expected}, found {type(optimizer).__name__}"
                           f"({_settings(optimizer)}); {remedy}")


def _settings(optimizer):
    named = ("weight_decay", "amsgrad", "maximize")
    return ", ".join(f"{k}={optimizer.defaults[k]}" for k in named if k in optimizer.defaults)


def joined(session, optimizer):
    """The optimizer that steps the model of this session: the same one, or the backend's Adam.
    Raises UnsupportedError, InvalidError or StateError if the backend's Adam cannot replace it."""
    if not session.needs_own_optimizer or optimizer is None:
        return optimizer
    if isinstance(optimizer, Adam):
        optimizer.session = session
        return optimizer
    model = holder_of(session)
    has_rest = model is not None and adopt_rest(session, model, optimizer)
    unknown = [str(p.dtype) for g in optimizer.param_groups for p in g["params"]
               if p.requires_grad and not session.weights_of(p) and not (has_rest and is_dtensor(p))]
    if unknown:
        raise InvalidError(f"optimizer: expected parameters in float32, bfloat16 or float16, found "
                           f"{', '.join(sorted(set(unknown)))}; backend {session.run.backend} cannot "
                           "step them: convert them before octavo.prepare")
    remedy = 'use torch.optim.AdamW or Adam, or fp8.backend = "te", which steps with any optimizer'
    if type(optimizer) not in (torch.optim.Adam, torch.optim.AdamW):
        if is_a(optimizer, "ZeroRedundancyOptimizer"):
            remedy = "use torch.optim.AdamW with octavo.prepare(shard_optimizer_state=True)"
        _refuse(session, optimizer, "Adam or AdamW", remedy)
    have, hyper = session.run.algorithm() or ("none", set())
    if have not in ("adam", "adamw"):
        _refuse(session, optimizer, f"the optimizer {have}, which is what it steps by", remedy)
    for group in optimizer.param_groups:
        missing = [k for k in _READ if k not in hyper and (k != "weight_decay" or group[k] != 0)]
        if missing or hyper - set(_READ):
            _refuse(session, optimizer, f"the hyperparameters that its {have} reads, {', '.join(sorted(hyper))}", remedy)
        if group.get("amsgrad") or group.get("maximize"):
            _refuse(session, optimizer, "amsgrad=False and maximize=False", remedy)
        decoupled = type(optimizer) is torch.optim.AdamW or group.get("decoupled_weight_decay")
        wanted = "adamw" if decoupled else "adam"
        if group["weight_decay"] != 0 and have != wanted:
            _refuse(session, optimizer, f"the weight decay of {have}",
                    f'set fp8.{session.run.backend}.optimizer = "{wanted}"' if "optimizer" in session.run.options()
                    else f'use torch.optim.{"AdamW" if have == "adamw" else "Adam"}')
    if adams_of(session):  # another stage
        session.clear_moments([p for group in optimizer.param_groups for p in group["params"]])
    joined = Adam(session, optimizer, Rest(optimizer) if has_rest else None)
    if optimizer.state:  # in the middle of a run, or after a framework has loaded a checkpoint
        joined.load_state_dict(optimizer.state_dict())
    return joined


def clip_grad_norm_(model: torch.nn.Module | Iterable[torch.Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False) -> torch.Tensor:
    """Clips gradients as torch.nn.utils.clip_grad_norm_(model.parameters(), ...) does.

    For a compiled model under DistributedDataParallel, it averages gradients in slots over the ranks first; call it on every
    rank then.

    Args:
        model: A prepared model, or parameters as in torch.
        max_norm, norm_type, error_if_nonfinite: As in torch.

    Returns:
        The norm before clipping.

    Example:
        >>> octavo.clip_grad_norm_(model, 1.0)
    """
    if isinstance(model, torch.nn.Module):
        session = session_of(model)
        ddp.before_clip(session)
        model = model.parameters()
    return torch.nn.utils.clip_grad_norm_(model, max_norm, norm_type, error_if_nonfinite)


# An optimizer that was made after octavo.prepare.


def join(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Joins an optimizer that was made after octavo.prepare, as fully_shard and to_empty need it, which replace parameters.

    Args:
        model: A prepared model.
        optimizer: A torch optimizer of its parameters as they are now.

    Returns:
        The optimizer to use: the same one if the backend leaves the weights in the model, otherwise the backend's Adam.

    Raises:
        StateError: The optimizer has the parameters from before fully_shard.
        OctavoError: As octavo.prepare for an optimizer.

    Example:
        >>> optimizer = octavo.join(model, torch.optim.AdamW(model.parameters()))
    """
    session = session_of(model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidError(f"optimizer: expected a torch.optim.Optimizer, found {type(optimizer).__name__}")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if session.is_sharded:
        fsdp.follow(session)
        fsdp.check_optimizer(session, parameters)
    own = {id(p) for p in model.parameters()}
    foreign = sum(id(p) not in own for p in parameters)
    if foreign:
        raise InvalidError(f"optimizer: expected parameters of this model as it is now, found {foreign} "
                           "others; create the optimizer from model.parameters() after fully_shard and "
                           "to_empty")
    return joined(session, optimizer)
