"""Moments between the backend's slots and the states of torch's Adam and AdamW."""
import torch

from .. import _abi
from ..errors import StateError

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


def check(adam, state_dict):
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
                raise StateError(f"optimizer state of parameter {at}: expected its moments, which this rank holds, found those "
                                 f"of {state_dict[PART]} alone; save inside of octavo.full_state(model)")
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


def others(adam, state_dict):
    """The state without the moments of parameters that have them in slots."""
    kept = {key for key, p in zip(_order(state_dict), _parameters(adam)) if not adam.session.weights_of(p)}
    return {**state_dict, "state": {key: own for key, own in state_dict["state"].items() if key in kept}}


@torch.no_grad()
def write(adam, found):
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


def read(adam):
    """{position: state} of the parameters whose moments this rank holds, on the CPU."""
    session, found = adam.session, {}
    counters = _counters(session)
    for at, p in enumerate(_parameters(adam)):
        if any(w.id in counters for w in session.weights_of(p)) and _is_here(session, p):
            found[at] = {"step": torch.tensor(float(_step(session, counters, p)), device="cpu"),
                         **{name: session.read(p, role).cpu() for name, role in _ROLES.items()}}
    return found
