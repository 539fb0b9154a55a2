"""Gives the operations of a traced function the arrays of a state, and takes what they record into the next one.

`record` and `evaluate` trace a function whose operations only name their linears, and compute it again with the
state as an argument. So JAX's traces hold no state, and each call uses the one that it was given.
"""
import contextlib
import functools

import jax
from jax import lax
from jax.extend import core

from ..errors import InvalidError, UnsupportedError
from .linear import OPERATIONS, around, bind, is_bound, linear_p, run, tangent_p, unbound

_P = core.primitives


class Binding:
    """The arrays of states for the linears of a trace. records: linear -> what it recorded, None: evaluation."""

    def __init__(self, states, records, specs):
        self.states, self.records, self.specs = states, records, specs

    def run(self, jaxpr, consts, values):
        """The results of a jaxpr."""
        env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *values)))
        for eqn in jaxpr.eqns:
            given = [v.val if isinstance(v, core.Literal) else env[v] for v in eqn.invars]
            with eqn.ctx.manager:
                out = self._equation(eqn, given)
            env.update(zip(eqn.outvars, out if eqn.primitive.multiple_results else [out]))
        return [v.val if isinstance(v, core.Literal) else env[v] for v in jaxpr.outvars]

    def closed(self, closed, *values):
        return self.run(closed.jaxpr, closed.consts, values)

    def _equation(self, eqn, values):
        if eqn.primitive in OPERATIONS:
            return self._operation(eqn.primitive, values, **eqn.params)
        used = self.specs.of(eqn)
        if not used:
            return eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
        rule = _RULES.get(eqn.primitive) or _RULES.get(eqn.primitive.name)
        if rule is None:
            raise UnsupportedError(
                f"linear {used[0].name}: expected it in jit, grad, checkpoint, scan, while_loop, cond, custom_vjp or "
                f"vmap, found {eqn.primitive.name} around it; " + (
                    "call octavo.jax.value_and_grad, record or evaluate inside of the function given to shard_map"
                    if eqn.primitive.name == "shard_map" else "compute it outside"))
        return rule(self, used, values, **eqn.params)

    def _operation(self, primitive, values, spec, tree, static):
        operands = jax.tree.unflatten(tree, values)
        if spec.session not in self.states or is_bound(operands):  # of an evaluate around this one, or inside
            return primitive.bind(*values, spec=spec, tree=tree, static=static)
        if primitive is tangent_p:
            raise unbound(primitive, spec)
        state = self.states[spec.session]
        index = operands.pop("index", None)
        reads = state.reads(spec, index)
        if self.records is None:
            if primitive is linear_p and spec.evaluates_plain:
                return [_plain(**operands)]
            return bind(primitive, spec, static, reads=reads, **operands)
        record = self.records[spec]
        out, new = run(primitive, spec, static, operands, reads, record if index is None else _at(record, index))
        self.records[spec] = new if index is None else jax.tree.map(lambda a, b: a.at[index].set(b), record, new)
        return out

    def carried(self, used):
        """The records of these linears as the carry of a loop."""
        return None if self.records is None else [self.records[spec] for spec in used]

    def inside(self, used, carried):
        """A Binding for the body of a loop or a branch."""
        return Binding(self.states, None if carried is None else dict(zip(used, carried)), self.specs)

    def after(self, used, carried):
        if carried is not None:
            self.records.update(zip(used, carried))


def _at(tree, index):
    return jax.tree.map(lambda value: value[index], tree)


def _plain(x, weight, bias=None):
    """The host's precision is JAX's own product."""
    y = lax.dot_general(x, weight.astype(x.dtype), (((x.ndim - 1,), (1,)), ((), ())))
    return y if bias is None else y + bias.astype(x.dtype)


class _Specs:
    """The linears of some sessions in equations, each looked at once."""

    def __init__(self, sessions):
        self._sessions, self._found = sessions, {}

    def of(self, eqn):
        """Linears inside of an equation's jaxprs, in order."""
        found = {}
        for jaxpr in core.jaxprs_in_params(eqn.params):
            found.update(self.inside(jaxpr))
        return tuple(found)

    def inside(self, jaxpr):
        """The uses in a jaxpr."""
        if jaxpr not in self._found:
            self._found[jaxpr] = {}
            for eqn in jaxpr.eqns:
                own = self._own(**eqn.params) if eqn.primitive in OPERATIONS else self.of(eqn)
                self._found[jaxpr].update(dict.fromkeys(own))
        return self._found[jaxpr]

    def _own(self, spec, tree, static):
        operands = jax.tree.unflatten(tree, range(tree.num_leaves))
        return () if spec.session not in self._sessions or is_bound(operands) else (spec,)


def _constrained(values, shardings):
    return [lax.with_sharding_constraint(v, s) if isinstance(s, jax.sharding.Sharding) else v
            for v, s in zip(values, shardings)]


def _jit(binding, used, values, *, jaxpr, in_shardings, out_shardings, **_):
    return _constrained(binding.closed(jaxpr, *_constrained(values, in_shardings)), out_shardings)


def _call(binding, used, values, *, call_jaxpr, **_):
    return binding.closed(call_jaxpr, *values)


def _custom(binding, used, values, *, call_jaxpr, **_):
    """A function with a derivative of the program's, which JAX has taken where it is in `record`."""
    return _once(binding, used, lambda inner, *v: inner.closed(call_jaxpr, *v), values)


def _once(binding, used, body, values):
    """body with the binding, for a derivative that cannot be taken any more."""
    def function(carried, *inner_values):
        inner = binding.inside(used, carried)
        out = body(inner, *inner_values)
        return inner.carried(used), out

    function = jax.custom_jvp(function)

    @function.defjvp
    def refuse(primals, tangents):
        raise UnsupportedError(f"linear {used[0].name}: expected no derivative through octavo.jax.evaluate of a function "
                               "with a custom derivative around it, found one; give it to octavo.jax.value_and_grad with "
                               "a separate state")

    carried, out = function(binding.carried(used), *values)
    binding.after(used, carried)
    return out


def _remat(binding, used, values, *, jaxpr, prevent_cse, differentiated, policy):
    if differentiated:
        each = prevent_cse if isinstance(prevent_cse, tuple) else (prevent_cse,) * len(values)
        behind = iter(lax.optimization_barrier([v for v, is_kept in zip(values, each) if is_kept]))
        return binding.run(jaxpr, (), [next(behind) if is_kept else v for v, is_kept in zip(values, each)])

    @functools.partial(jax.checkpoint, prevent_cse=prevent_cse is not False, policy=policy)
    def recomputed(carried, *inner_values):
        inner = binding.inside(used, carried)
        return inner.run(jaxpr, (), inner_values), inner.carried(used)

    out, carried = recomputed(binding.carried(used), *values)
    binding.after(used, carried)
    return out


def _scan(binding, used, values, *, jaxpr, num_consts, num_carry, length, reverse, unroll, **_):
    consts, rest = values[:num_consts], values[num_consts:]
    carry, xs = rest[:num_carry], rest[num_carry:]

    def body(both, x):
        inner = binding.inside(used, both[0])
        out = inner.closed(jaxpr, *consts, *both[1], *x)
        return (inner.carried(used), out[:num_carry]), out[num_carry:]

    (carried, carry), ys = lax.scan(body, (binding.carried(used), carry), xs, length, reverse, unroll)
    binding.after(used, carried)
    return [*carry, *ys]


def _while(binding, used, values, *, cond_jaxpr, cond_nconsts, body_jaxpr, body_nconsts):
    of_cond, of_body = values[:cond_nconsts], values[cond_nconsts:cond_nconsts + body_nconsts]

    def condition(both):  # what it computes is no training
        return binding.inside(used, None).closed(cond_jaxpr, *of_cond, *both[1])[0]

    def body(both):
        inner = binding.inside(used, both[0])
        out = inner.closed(body_jaxpr, *of_body, *both[1])
        return inner.carried(used), out

    carried, out = lax.while_loop(condition, body, (binding.carried(used), values[cond_nconsts + body_nconsts:]))
    binding.after(used, carried)
    return out


def _cond(binding, used, values, *, branches, **_):
    def branch(closed):
        def taken(carried, *inner_values):
            inner = binding.inside(used, carried)
            return inner.closed(closed, *inner_values), inner.carried(used)
        return taken

    index, *rest = values
    out, carried = lax.switch(index, [branch(closed) for closed in branches], binding.carried(used), *rest)
    binding.after(used, carried)
    return out


_RULES = {_P.jit_p: _jit, _P.closed_call_p: _call, _P.call_p: _call, _P.custom_jvp_call_p: _custom,
          _P.custom_vjp_call_p: _custom, _P.remat_p: _remat, _P.scan_p: _scan, _P.while_p: _while, _P.cond_p: _cond}


def called(function, states, args, is_recorded):
    """(function(*args) with the operations of these states, {linear: what it recorded}). states: session -> State."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(around((tuple(states), *around.value)))
        for session in states:
            stack.enter_context(session.tracing())
        closed, shapes = jax.make_jaxpr(lambda *a: function(*a), return_shape=True)(*args)
    specs = _Specs(states)
    used = specs.inside(closed.jaxpr)
    for session in states:
        if session.specs and not any(spec.session is session for spec in used):
            raise InvalidError(f"state: expected a function that runs at least one of {', '.join(session.specs)}, found "
                               "none; is this the state of another model?")
        if is_recorded:
            session.ran.update(spec.name for spec in used)
    records = dict(pair for state in states.values() for pair in state.records()) if is_recorded else None
    binding = Binding(states, records, specs)
    out = binding.run(closed.jaxpr, closed.consts, jax.tree.leaves(args))
    return jax.tree.unflatten(jax.tree.structure(shapes), out), records


def by_session(states):
    """session -> State. Raises InvalidError for two of one session."""
    out = {}
    for state in states:
        if state.session in out:
            raise InvalidError("state: expected states of different runs, found two of one; give one of them to "
                               "octavo.jax.evaluate, for a separate function")
        out[state.session] = state
    return out
