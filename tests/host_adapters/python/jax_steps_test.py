"""Steps with Inf and NaN under optax and nnx, and what else programs do with a State: copies, files, other derivatives."""
import copy
import pickle
import subprocess
import sys

import flax.serialization
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import octavo
import octavo.jax as oj
from jax_parts import batch, loss, mlp, overrides, same, train_step, weights


def spoiled(p, x, factor):
    """A loss whose dy has Inf where the factor has."""
    return jnp.mean((mlp(p, x) * factor)**2)


@pytest.mark.parametrize("wrap", [lambda tx: tx, lambda tx: optax.apply_if_finite(tx, 5),
                                  lambda tx: optax.MultiSteps(tx, 2).gradient_transformation(),
                                  lambda tx: optax.chain(optax.clip_by_global_norm(1.0), tx)],
                         ids=["adam", "apply_if_finite", "MultiSteps", "chain"])
def test_a_step_with_inf_changes_nothing_and_is_counted(wrap):
    p = weights()
    optimizer = oj.with_state(wrap(optax.adam(1e-1)), oj.init(p, overrides=overrides()))
    carried = optimizer.init(p)

    @jax.jit
    def step(p, carried, x, factor):
        value, gradients = oj.value_and_grad(spoiled)(carried, p, x, factor)
        updates, carried = optimizer.update(gradients, carried, p)
        return optax.apply_updates(p, updates), carried

    for i in range(4):
        p, carried = step(p, carried, batch(i), 1.0)
    for factor in (jnp.inf, jnp.nan):
        q, after = step(p, carried, batch(9), factor)
        assert same(p, q) and same(carried.inner, after.inner)
        assert int(after.skipped) == int(carried.skipped) + 1 and not bool(after.octavo.nonfinite)
        q, after = step(q, after, batch(4), 1.0)
        q, after = step(q, after, batch(5), 1.0)
        assert not same(p, q) and int(after.skipped) == 1 and jnp.isfinite(q["up"]).all()


def test_without_with_state_such_gradients_are_nan_for_guards_of_optax_and_nnx():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.up, self.down = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

        def __call__(self, x):
            return self.down(nnx.relu(self.up(x)))

    model = Net(nnx.Rngs(0))
    state = oj.prepare(model, overrides=overrides())
    optimizer = nnx.Optimizer(model, optax.apply_if_finite(optax.adam(1e-1), 5), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, state, x, factor):
        graph, p = nnx.split(model)
        value, gradients, state = oj.value_and_grad(lambda p: jnp.mean((nnx.merge(graph, p)(x) * factor)**2))(state, p)
        optimizer.update(model, gradients)
        return value, oj.end_step(state)

    losses = []
    for i, factor in enumerate((1.0, jnp.inf, 1.0, 1.0, 1.0, 1.0)):
        before = jax.tree.map(jnp.copy, nnx.state(model, nnx.Param))
        value, state = step(model, optimizer, state, batch(), factor)
        losses.append(float(value))
        assert same(before, nnx.state(model, nnx.Param)) is (i == 1)
    assert int(optimizer.opt_state.total_notfinite[...]) == 1 and losses[-1] < losses[0] / 2

    carrying = nnx.Optimizer(model, oj.with_state(optax.adam(1e-1), state), wrt=nnx.Param)
    with pytest.raises(octavo.InvalidError, match="value_and_grad.*octavo.jax.end_step"):
        carrying.update(model, nnx.state(model, nnx.Param))


def test_optax_extra_arguments_and_wrappers_around():
    p, state = weights(), oj.init(weights(), overrides=overrides())
    inner = optax.chain(optax.sgd(1e-2), optax.contrib.reduce_on_plateau(patience=1, cooldown=0, factor=0.5))
    optimizer = oj.with_state(inner, state)
    carried = optimizer.init(p)
    for _ in range(4):
        value, gradients = oj.value_and_grad(loss)(carried, p, batch())
        updates, carried = optimizer.update(gradients, carried, p, value=jnp.float32(1))
    assert float(carried.inner[1].scale) < 1
    around = optax.apply_if_finite(optimizer, 5)
    with pytest.raises(octavo.InvalidError, match=r"wrap inside: octavo.jax.with_state\(optax.apply_if_finite"):
        oj.value_and_grad(loss)(around.init(p), p, batch())


def test_copies_and_files_of_a_state():
    state, p = oj.init(weights(), overrides=overrides()), weights()
    step = jax.jit(train_step)
    for i in range(2):
        _, p, state = step(state, p, batch(i))
    expected = step(state, p, batch(2))
    new = oj.init(weights(), overrides=overrides())
    for found in (copy.deepcopy(state), copy.copy(state), pickle.loads(pickle.dumps(state)),
                  flax.serialization.from_bytes(new, flax.serialization.to_bytes(state)),
                  flax.serialization.from_state_dict(new, flax.serialization.to_state_dict(state))):
        assert same(step(found, p, batch(2)), expected)
    assert pickle.loads(pickle.dumps(state)).session is state.session
    other = oj.init(weights({"up": (48, 32), "down": (32, 48), "more": (32, 32)}), overrides=overrides())
    with pytest.raises(octavo.InvalidError, match=r"w/amax: expected \[1, 3\].*found \[1, 2\].*another model"):
        flax.serialization.from_bytes(other, flax.serialization.to_bytes(state))
    with pytest.raises(octavo.InvalidError, match="expected dy/amax, .*, found x.*another"):
        flax.serialization.from_state_dict(new, {"x": np.zeros(1)})


def test_a_pickle_opens_its_run_in_another_process(tmp_path):
    state = oj.init(weights(), overrides=overrides())
    value, p, state = train_step(state, weights(), batch())
    (tmp_path / "state").write_bytes(pickle.dumps((state, p)))
    program = (f"import pickle, sys; sys.path.insert(0, {str(__file__.rsplit('/', 1)[0])!r})\n"
               "import jax, numpy as np; from jax_parts import batch, train_step\n"
               f"state, p = pickle.load(open({str(tmp_path / 'state')!r}, 'rb'))\n"
               "print(np.asarray(train_step(state, p, batch(1))[2].slots['x/amax_history'])[-1].tobytes().hex())")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert found == np.asarray(train_step(state, p, batch(1))[2].slots["x/amax_history"])[-1].tobytes().hex()


def test_other_derivatives_are_errors_with_the_remedy():
    p, state = weights(), oj.init(weights(), overrides=overrides())
    with pytest.raises(octavo.UnsupportedError, match="linear up: expected reverse-mode.*jax.grad, vjp or jacrev"):
        oj.record(lambda p: jax.jvp(lambda p: loss(p, batch()), (p,), (p,)))(state, p)
    with pytest.raises(octavo.UnsupportedError, match="linear (up|down): expected a first derivative"):
        oj.record(jax.grad(lambda x: (jax.grad(lambda x: oj.linear("up", x, p["up"]).sum()**2)(x)**2).sum()))(state, batch()[0])
    for function in (lambda p: oj.record(loss)(state, p, batch())[0], lambda p: oj.value_and_grad(loss)(state, p, batch())[0]):
        with pytest.raises(octavo.UnsupportedError, match="differentiate inside of the function given"):
            jax.grad(function)(p)
    # Evaluation is differentiable once: its product is JAX's own here, and the backend's with FP8.
    plain = jax.grad(lambda p: jnp.mean((jax.nn.relu(batch() @ p["up"].T) @ p["down"].T - batch())**2))(p)
    for state, error in ((state, 1e-5), (oj.init(p, overrides=overrides("current", **{
            "fp8.te.use_autocast_during_eval": True})), 0.2)):
        found = jax.grad(lambda p, state=state: oj.evaluate(loss)(state, p, batch()))(p)
        for name in p:
            assert float(jnp.linalg.norm(found[name] - plain[name])) <= error * float(jnp.linalg.norm(plain[name]))


def test_exported_programs_have_the_bits():
    p, state = weights(), oj.init(weights(), overrides=overrides())
    step = jax.jit(lambda slots, p, x: (lambda v, q, s: (v, q, s.slots))(*train_step(oj.State(state.session, slots), p, x)))
    with pytest.raises(ValueError, match="custom call"):
        jax.export.export(step)(state.slots, p, batch())
    exported = jax.export.export(step, disabled_checks=oj.export_checks())(state.slots, p, batch())
    assert same(exported.call(state.slots, p, batch()), step(state.slots, p, batch()))
