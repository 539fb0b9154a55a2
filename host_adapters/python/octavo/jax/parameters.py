"""Parameters that the backend keeps in slots: their values, in and out."""
import functools

import jax
import jax.numpy as jnp

from .. import _abi
from ..errors import InvalidError
from . import ffi
from .layout import places


def optimizer_list(session, spec):
    """The places that a parameter's optimizer takes."""
    return places(session.run, session.slots, _abi.VERB_OPTIMIZER_STEP, _abi.OWNER_PARAMETER,
                  spec.parameter)


def optimizer_bytes(session, spec):
    """The workspace of the optimizer's verbs, for one parameter or all that are stacked."""
    return ffi.optimizer_bytes(session.number, spec.parameter, spec.count)


def _values(state, spec, i):
    """Every slot of a parameter's list, also those that are not of the state; the i-th of stacked."""
    session, out = state.session, {}
    for p in optimizer_list(session, spec):
        slot = session.slots[p.slot]
        if not session.is_kept(slot) or p.is_pooled:
            out[p.slot] = jnp.zeros(p.shape, p.dtype)
        else:
            value = state.slots[session.key(slot)]
            stacked = spec.count > 1 and slot.owner_kind != _abi.OWNER_SESSION
            out[p.slot] = value[i] if stacked else value
    return out


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _write(session, spec, i, plain, values):
    _, written, _ = ffi.verb(
        "write_parameter", f"linear {spec.name}", (session.number, spec.parameter + i, 1), optimizer_list(session, spec),
        values, [plain], workspace=ffi.optimizer_bytes(session.number, spec.parameter + i, 1),
        flags=_abi.ROLE_WEIGHT, access=_abi.ACCESS_UPDATE)
    return written


def write_weights(state, weights):
    """The state with these values in the slots of weights that the backend owns."""
    session, slots = state.session, dict(state.slots)
    for name, spec in session.specs.items():
        if not spec.owns_weight:
            continue
        weight = weights[name]
        if isinstance(weight, jax.ShapeDtypeStruct):
            raise InvalidError(f"linear {name}: expected the values of its weight, which "
                               f"{session.run.backend} keeps in slots, found a shape; pass the array")
        each = jnp.asarray(weight).reshape(spec.count, spec.n, spec.k)
        written = [_write(session, spec, i, each[i], _values(state, spec, i))
                   for i in range(spec.count)]
        for id in written[0]:
            slot = session.slots[id]
            if session.is_kept(slot) and slot.owner_kind != _abi.OWNER_SESSION:
                values = [w[id] for w in written]
                slots[session.key(slot)] = jnp.stack(values) if spec.count > 1 else values[0]
    return type(state)(session, slots)


def read_parameter(state, name, role=_abi.ROLE_WEIGHT):
    """The plain values of a parameter that the backend keeps in slots, in the dtype of octavo.jax.init.
    role: _abi.ROLE_WEIGHT, MASTER_WEIGHT, GRADIENT, EXP_AVG or EXP_AVG_SQ. Returns [N, K], or
    [L, N, K]. Any thread. Raises InvalidError where the host keeps it."""
    session, spec = state.session, state.session.specs.get(name)
    if spec is None or not spec.owns_weight:
        raise InvalidError(f"linear {name}: expected one whose weight the backend keeps, found "
                           + ("no such name" if spec is None else "one of the host's parameters"))
    out = []
    for i in range(spec.count):
        (plain,), _, _ = ffi.verb(
            "read_parameter", f"linear {spec.name}", (session.number, spec.parameter + i, 1), optimizer_list(session, spec),
            _values(state, spec, i), results=[jax.ShapeDtypeStruct((spec.n, spec.k), spec.dtype)],
            workspace=ffi.optimizer_bytes(session.number, spec.parameter + i, 1), flags=role,
            access=_abi.ACCESS_READ)
        out.append(plain)
    return jnp.stack(out) if spec.count > 1 else out[0]
