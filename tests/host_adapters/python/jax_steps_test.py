"""Steps with Inf and NaN under optax and nnx, and what else programs do with a State: copies, files, other derivatives."""
import copy
import importlib.util
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
from conftest import msamp
from jax_parts import batch, loss, mlp, overrides, same, train_step, weights
from torchrun import apart

apart("equinox")


def spoiled(p, x, factor):
    """A loss whose dy has Inf where the factor has."""
    return jnp.mean((mlp(p, x) * factor)**2)


TWICE = {"should_skip_update_fn": optax.skip_not_finite}
GUARDS = {
    "adam": lambda state: oj.with_state(optax.adam(1e-1), state),
    "apply_if_finite inside": lambda state: oj.with_state(optax.apply_if_finite(optax.adam(1e-1), 5), state),
    "apply_if_finite around": lambda state: optax.apply_if_finite(oj.with_state(optax.adam(1e-1), state), 5),
    "MultiSteps inside": lambda state: oj.with_state(optax.MultiSteps(optax.adam(1e-1), 2), state),
    "MultiSteps around": lambda state: optax.MultiSteps(oj.with_state(optax.adam(1e-1), state), 2, **TWICE),
    "chain inside": lambda state: oj.with_state(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-1)), state),
    "chain around": lambda state: optax.chain(optax.clip_by_global_norm(1.0), oj.with_state(optax.adam(1e-1), state)),
    "hyperparameters": lambda state: optax.inject_hyperparams(lambda lr: oj.with_state(optax.adam(lr), state))(1e-1)}


def states_of(carried):
    """The State in an optimizer's state, and how many steps it left out."""
    is_one = lambda value: hasattr(value, "octavo")  # noqa: E731
    (found,) = filter(is_one, jax.tree.leaves(carried, is_leaf=is_one))
    return found.octavo, int(found.skipped)


@pytest.mark.parametrize("guard", GUARDS)
def test_a_step_with_inf_changes_nothing(guard):
    """With octavo.jax.with_state inside of optax's guards and around them: training goes on as without that step."""
    optimizer = GUARDS[guard](oj.init(weights(), overrides=overrides()))

    @jax.jit
    def step(p, carried, x, factor):
        value, gradients, carried = oj.value_and_grad(spoiled)(carried, p, x, factor)
        updates, carried = optimizer.update(gradients, carried, p)
        return optax.apply_updates(p, updates), carried

    def run(factors):
        p = weights()
        carried = optimizer.init(p)
        for i, factor in factors:
            before = p
            p, carried = step(p, carried, batch(i), factor)
            assert jnp.isfinite(factor) or same(p, before)
            assert not bool(states_of(carried)[0].nonfinite)
        return p, carried

    good = [(i, 1.0) for i in range(6)]
    p, carried = run(good)
    q, after = run([*good[:2], (9, jnp.inf), (8, jnp.nan), *good[2:4], (9, jnp.inf), *good[4:]])
    assert same(p, q) and not same(p, weights())
    # What is left out around it never comes to it, and is counted by optax.
    assert states_of(after)[1] == (0 if guard in ("apply_if_finite around", "MultiSteps around") else 3)
    for name in ("session/x/scale", "session/w/scale", "session/dy/scale"):
        assert same(states_of(after)[0].slots[name], states_of(carried)[0].slots[name])
        assert float(jnp.abs(states_of(after)[0].slots[name] - 1).min()) > 0


def test_a_guard_that_would_keep_nan_is_an_error():
    p, state = weights(), oj.init(weights(), overrides=overrides())
    around = optax.MultiSteps(oj.with_state(optax.sgd(1.0), state), 2)
    with pytest.raises(octavo.InvalidError, match=r"should_skip_update_fn.*skip_not_finite.*wrap inside: octavo.jax.with_state"):
        oj.value_and_grad(loss)(around.init(p), p, batch())
    with pytest.raises(octavo.InvalidError, match="pytree that has one.*found tuple"):
        oj.value_and_grad(loss)(optax.sgd(1.0).init(p), p, batch())


class Net(nnx.Module):
    def __init__(self, rngs, linear=nnx.Linear):
        self.up, self.down = linear(32, 64, rngs=rngs), linear(64, 32, rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


@pytest.mark.parametrize("place", ["outside", "with_state", "around", "msamp"])
def test_nnx_optimizer_carries_the_state_or_leaves_it_to_the_program(place):
    """In `outside`, gradients of NaN are for optax's guard."""
    def losses(place, count=6):
        is_msamp = place == "msamp"
        model = Net(nnx.Rngs(0), *[oj.Linear] * is_msamp)
        state = oj.prepare(model, overrides={"layers.min_gain": "off", **msamp()} if is_msamp else overrides())
        tx = {"outside": lambda: optax.apply_if_finite(optax.adam(1e-1), 5),
              "with_state": lambda: oj.with_state(optax.adam(1e-1), state),
              "around": lambda: optax.apply_if_finite(oj.with_state(optax.adam(1e-1), state), 5),
              "msamp": lambda: oj.with_state(optax.adam(1e-1), state, oj.adam(1e-1))}[place]()
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

        @nnx.jit
        def step(model, optimizer, state, x, factor):
            graph, p = nnx.split(model)
            carrier = state if place == "outside" else optimizer
            value, gradients, after = oj.value_and_grad(
                lambda p: jnp.mean((nnx.merge(graph, p)(x) * factor)**2))(carrier, p)
            optimizer.update(model, gradients)
            assert place == "outside" or after is optimizer
            return value, oj.end_step(after) if place == "outside" else state

        found = []
        for i in range(count):
            is_bad = i == 1
            before = jax.tree.map(jnp.copy, nnx.state(model, nnx.Param))
            value, state = step(model, optimizer, state, batch(), jnp.inf if is_bad else 1.0)
            found.append(float(value))
            assert same(before, nnx.state(model, nnx.Param)) is is_bad
        carried = nnx.as_pure(optimizer.opt_state)
        if place in ("outside", "around"):
            assert int(carried.total_notfinite) == 1
        else:
            assert int(carried.skipped) == 1 and not bool(carried.octavo.nonfinite)
        return found

    found = losses(place)
    assert found[-1] < found[0] / 2 and found[1] == jnp.inf
    if place == "with_state":
        np.testing.assert_allclose(found, losses("around"), rtol=1e-4)


def test_optax_extra_arguments():
    p, state = weights(), oj.init(weights(), overrides=overrides())
    inner = optax.chain(optax.sgd(1e-2), optax.contrib.reduce_on_plateau(patience=1, cooldown=0, factor=0.5))
    optimizer = oj.with_state(inner, state)
    carried = optimizer.init(p)
    for _ in range(4):
        value, gradients, carried = oj.value_and_grad(loss)(carried, p, batch())
        updates, carried = optimizer.update(gradients, carried, p, value=jnp.float32(1))
    assert float(carried.inner[1].scale) < 1


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
    with pytest.raises(octavo.InvalidError, match="expected session/dy/amax, .*, found x.*another"):
        flax.serialization.from_state_dict(new, {"x": np.zeros(1)})


def test_a_pickle_opens_its_run_in_another_process(tmp_path):
    state = oj.init(weights(), overrides=overrides())
    value, p, state = train_step(state, weights(), batch())
    (tmp_path / "state").write_bytes(pickle.dumps((state, p)))
    program = (f"import pickle, sys; sys.path.insert(0, {str(__file__.rsplit('/', 1)[0])!r})\n"
               "import jax, numpy as np; from jax_parts import batch, train_step\n"
               f"state, p = pickle.load(open({str(tmp_path / 'state')!r}, 'rb'))\n"
               "print(np.asarray(train_step(state, p, batch(1))[2].slots['session/x/amax_history'])[-1].tobytes().hex())")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert found == np.asarray(train_step(state, p, batch(1))[2].slots["session/x/amax_history"])[-1].tobytes().hex()


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


E4M3 = {"fp8.te.fp8_format": "E4M3"}
E4M3_FOR_UP = {"layers.rule.0.match": "up", "layers.rule.0.fp8.te.fp8_format": "E4M3"}


@pytest.mark.skipif(not importlib.util.find_spec("flatbuffers"),
                    reason="flatbuffers is not installed: tests/environment/install.sh jax equinox")
@pytest.mark.parametrize("own, other", [({}, {}), ({}, E4M3), (E4M3_FOR_UP, {"layers.rule.0.match": "down"})],
                         ids=["equal", "format", "rule"])
def test_an_exported_evaluation_in_another_process(own, other, tmp_path):
    """It runs on a run with the same options, also next to others, and on no other one: those have the same slots."""
    config = overrides("current", **{"fp8.te.use_autocast_during_eval": True}, **own)
    sizes = {"up": (48, 32), "down": (32, 48)}  # no run of another test is equal
    p, state = weights(sizes), oj.init(weights(sizes), overrides=config)
    evaluation = jax.jit(lambda slots, p, x: oj.evaluate(mlp)(oj.State(state.session, slots), p, x))
    exported = jax.export.export(evaluation, disabled_checks=oj.export_checks())(state.slots, p, batch())
    (tmp_path / "program").write_bytes(exported.serialize())
    program = (f"import pathlib, sys; sys.path.insert(0, {str(__file__.rsplit('/', 1)[0])!r})\n"
               "from torchrun import apart; apart('equinox')\n"
               "import jax, jax.export, numpy as np, octavo.jax as oj; from jax_parts import batch, weights\n"
               f"before = oj.init(weights({sizes}), overrides={overrides('current', **E4M3)!r})\n"
               f"state = oj.init(weights({sizes}), overrides={ {**config, **other}!r})\n"
               f"program = jax.export.deserialize(bytearray(pathlib.Path({str(tmp_path / 'program')!r}).read_bytes()))\n"
               f"print(np.asarray(program.call(state.slots, weights({sizes}), batch())).tobytes().hex())")
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if other:
        assert found.returncode and "octavo status 3" in found.stderr and "expected the number of an open run" in found.stderr
    else:
        assert found.stdout.strip() == np.asarray(evaluation(state.slots, p, batch())).tobytes().hex(), found.stderr
