"""The state of a run as a pytree: every slot that lives from step to step."""
import dataclasses
import json

import jax
import jax.numpy as jnp
from jax import lax

from .. import _abi
from ..errors import InvalidError, StateError, UnsupportedError
from . import ffi
from .layout import accumulators
from .session import open_session
from .verbs import empty_record


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True, eq=False)
class State:
    """Scales, histories and accumulators, and with a backend that owns them weights, gradients and
    moments: name -> array. A pytree: jit it, donate it, save it with orbax. session: what the names
    mean; it is a constant of programs. Immutable; each function returns a new one."""
    session: object
    slots: dict

    def tree_flatten_with_keys(self):
        names = tuple(sorted(self.slots))
        return [(jax.tree_util.DictKey(n), self.slots[n]) for n in names], (self.session, names)

    @classmethod
    def tree_unflatten(cls, aux, leaves):
        return cls(aux[0], dict(zip(aux[1], leaves)))

    def __getitem__(self, name):
        """The Site of a linear, for octavo.jax.linear; the same in every state of the run. Raises InvalidError for an
        unknown name."""
        spec = self.session.specs.get(name)
        if spec is None:
            verdict = self.session.verdicts.get(name)
            raise InvalidError(
                f"linear {name}: expected one of {', '.join(self.session.specs) or 'none'}, found "
                + ("no such name; is this the state of another model?" if verdict is None else
                   f"one that is not converted: {verdict}; compute it with jax.numpy"))
        return spec.site

    @property
    def nonfinite(self):
        """Whether casts of this step met Inf or NaN, as a bool array []; gradients of such a step are NaN."""
        flags = [self.slots[self.session.key(slot)] for slot in self.session.slots
                 if slot.role == _abi.ROLE_NONFINITE]
        return jnp.stack([flag.max() for flag in flags]).max() > 0 if flags else jnp.zeros((), bool)

    @property
    def accepted(self):
        """The names that run through the backend."""
        return tuple(self.session.specs)

    @property
    def declined(self):
        """The names that are not converted; octavo.jax.report has the reasons."""
        return frozenset(self.session.verdicts) - frozenset(self.session.specs)

    def reads(self, spec, index=None):
        """The arrays of the slots that a linear's verbs read, slot id -> array; the index-th of stacked ones."""
        values = {id: self._of(spec, p) for id, p in spec.read.items()}
        return values if index is None else {
            id: v[index] if self.session.slots[id].owner_kind != _abi.OWNER_SESSION or spec.read[id].is_pooled else v
            for id, v in values.items()}

    def _of(self, spec, place):
        """The array of a place for one linear, with a leading dimension for stacked ones."""
        slot = self.session.slots[place.slot]
        value = self.slots[self.session.key(slot)]
        if not place.is_pooled:
            return value
        columns = value[0, place.first:place.first + place.size * spec.count]
        return columns.reshape(spec.count, place.size) if spec.count > 1 else columns

    def records(self):
        """(linear, an empty record) of all; gradient slots are in it as they are now, so that more micro-batches add to
        them."""
        return [(spec, empty_record(spec, {p.slot: self._of(spec, p) for p in spec.gradient_slots}))
                for spec in self.session.specs.values()]

    def merged(self, records):
        """The state with these records combined into its accumulators."""
        pieces, new = {}, dict(self.slots)
        for spec in self.session.specs.values():
            record = records[spec]
            for verb in ("quantize", "forward", "backward"):
                at = 0
                for p in accumulators(getattr(spec, verb)):
                    pieces.setdefault(p.slot, []).append((p, record[verb][..., at:at + p.size]))
                    at += p.size
            for id, gradient in record["gradient"].items():
                new[self.session.key(self.session.slots[id])] = gradient
        for id, parts in pieces.items():
            slot = self.session.slots[id]
            key, is_max = self.session.key(slot), slot.combine == _abi.COMBINE_MAX
            new[key] = _combine(new[key], _contribution(slot, parts, is_max), is_max)
        return State(self.session, new)


def _combine(a, b, is_max):
    return jnp.maximum(a, b) if is_max else a + b


def _contribution(slot, parts, is_max):
    """The records of all linears in one slot, in its shape."""
    if not parts[0][0].is_pooled:
        every = jnp.concatenate([v.reshape(-1) for _, v in parts])
        return (every.max() if is_max else every.sum()).reshape(1, 1)
    columns = {}
    for place, value in parts:
        before = columns.get(place.first)
        columns[place.first] = place, value if before is None else _combine(before[1], value, is_max)
    out, end = [], 0
    for _, (place, value) in sorted(columns.items()):
        out += [jnp.zeros(place.first - end, jnp.float32)] if place.first > end else []
        out.append(value.reshape(-1))
        end = place.first + value.size
    out += [jnp.zeros(slot.cols - end, jnp.float32)] if slot.cols > end else []
    return jnp.concatenate(out).reshape(1, slot.cols)


def init(linears, config=None, *, overrides=None, device=None, frozen=(), left_out=None, layers=None):
    """Opens a run for these linears and returns its State.

    linears: name -> the weight [N, K], or [L, N, K] of L linears that lax.scan goes over, as an array
    or, where the host keeps weights, a jax.ShapeDtypeStruct; config: the path of an octavo.toml or
    None; overrides: a dict with dotted keys; device: a platform, as "cpu", "gpu" or a plugin's, default: JAX's; frozen: names of
    weights without a gradient; left_out, layers: of octavo.jax.prepare and linen.prepare. A linear that the backend
    declines is not in `State.accepted`; its reason is in octavo.jax.report. Setup; one thread. Raises OctavoError.
    """
    session = open_session(linears, config, overrides, device, frozen, left_out, layers)
    slots = {}
    for slot in session.slots:
        if not session.is_kept(slot):
            continue
        key, dtype = session.key(slot), ffi.DTYPES.get(slot.dtype, jnp.uint8)
        count = 1 if slot.owner_kind == _abi.OWNER_SESSION else session.specs[
            session.parameter_names[slot.owner]].count
        stacked = (count,) if count > 1 else ()
        slots.setdefault(key, jnp.full((*stacked, slot.rows, slot.cols), slot.initial, dtype))
    state = State(session, slots)
    from .parameters import write_weights
    return write_weights(state, linears)


def save_checkpoint(state, directory, step=0):
    """Writes the FP8 state as the files of every host (docs/checkpoints.md): programs in C and on PyTorch load it with the
    same model, backend and options. directory: a separate one, which is created; step: the program's own count. With
    processes, on one of them. Raises StateError for a state that was donated, and UnsupportedError for one that is
    divided over devices."""
    check_alive(state)
    state.session.run.save(directory, _addresses(state.session, _whole(state)), step)


def load_checkpoint(state, directory):
    """(the State that save_checkpoint, or another host, wrote, its step). state: one of the same model, backend and
    options, which stays as it is. With processes, on each. Raises InvalidError for a damaged checkpoint and for another
    one, and what save_checkpoint raises."""
    check_alive(state)
    session = state.session
    arrays = {key: jnp.array(value, copy=True) for key, value in _whole(state).items()}
    step = session.run.load(directory, _addresses(session, arrays))
    for slot in session.slots:
        key = session.key(slot)
        if key in arrays and not slot.flags & _abi.SLOT_CHECKPOINT:
            arrays[key] = jnp.full_like(arrays[key], slot.initial)
    return State(session, {key: jax.device_put(value, state.slots[key].sharding) for key, value in arrays.items()}), step


def _whole(state):
    """{name: its array on one device}."""
    divided = [name for name, value in state.slots.items() if not value.is_fully_replicated]
    if divided:
        raise UnsupportedError(f"state: {divided[0]}: expected an array that each of its devices has whole, found one that "
                               "is divided; gather it by jax.device_put first")
    return {name: value.addressable_data(0) for name, value in state.slots.items()}


def _addresses(session, arrays):
    """The addresses of slots in these arrays, by id; None for slots that a checkpoint leaves out."""
    jax.block_until_ready(arrays)
    addresses = []
    for slot in session.slots:
        array = arrays.get(session.key(slot)) if slot.flags & _abi.SLOT_CHECKPOINT else None
        if array is None:
            addresses.append(None)
            continue
        spec = None if array.ndim == 2 else session.specs[session.parameter_names[slot.owner]]
        index = 0 if spec is None else slot.owner - spec.parameter
        addresses.append(array.unsafe_buffer_pointer() + index * slot.rows * slot.cols * array.dtype.itemsize)
    return addresses


def end_step(state, axis_name=None):
    """Derives the next scales and clears the accumulators: once a step, after the optimizer.

    state: a State of octavo.jax.value_and_grad; axis_name: the axes of shard_map or pmap over which
    the ranks hold parts of one batch, whose maxima are combined first, so that all derive one scale.
    Returns the next State, in the memory of `state` where a jit donates it. Any thread. Raises
    StateError for a state that was donated.
    """
    check_alive(state)
    session, slots = state.session, dict(state.slots)
    if axis_name is not None:
        for slot in session.slots:
            if slot.flags & _abi.SLOT_REDUCE:
                key = session.key(slot)
                reduce = lax.pmax if slot.combine == _abi.COMBINE_MAX else lax.psum
                slots[key] = reduce(slots[key], axis_name)
    if not session.end_step:
        return State(session, slots)
    values = {p.slot: slots[session.key(session.slots[p.slot])] for p in session.end_step}
    _, written, _ = ffi.verb("end_step", "end_step", (session.number, 0, 1), session.end_step, values,
                               workspace=None)
    slots.update({session.key(session.slots[id]): value for id, value in written.items()})
    return State(session, slots)


def check_alive(state):
    """Raises InvalidError unless `state` is a State, StateError for one whose arrays were donated."""
    if not isinstance(state, State):
        raise InvalidError("state: expected a State of octavo.jax.init, or a pytree that has one, such as the state of an "
                           f"optimizer of octavo.jax.with_state, found {type(state).__name__}")
    for name, value in state.slots.items():
        if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer) \
                and value.is_deleted():
            raise StateError(f"state: {name}: expected an array, found one that was donated to a "
                             "program; keep what the program returned, and pass that on")


def report(state, format="text"):
    """The request, every candidate, the chosen backend, and the placement of each layer. format: "text", "tree" or "json"."""
    session = state.session
    text, parts = session.run.report(format), {"left_out": session.left_out, "never_ran": {
        name: "no function in training called it" for name in session.specs if session.ran and name not in session.ran}}
    if format == "json":
        return json.dumps({**json.loads(text), **parts, "never_ran": list(parts["never_ran"])}, indent=2)
    lines = [text]
    for title, names in zip(("not converted", "never ran"), parts.values()):
        width = max(map(len, names), default=0)
        lines += [title, *(f"  {name:<{width}}  {reason}" for name, reason in names.items())] if names else []
    return "\n".join(lines)


def close(state):
    """Closes the run of a state; its programs fail afterwards. Idempotent."""
    state.session.close()
