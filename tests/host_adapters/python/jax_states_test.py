"""Two and three states in one program, through functions that JAX keeps traces of: each call uses the state that it was
given, and forward records whether or not a gradient flows. What is right comes from products and maxima of plain JAX."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import octavo
import octavo.jax as oj
from jax_parts import batch, call, loss, mlp, overrides, same, train_step, weights

IN_FP8 = {"fp8.te.use_autocast_during_eval": True}
cached = {"jit": jax.jit(mlp), "checkpoint": jax.checkpoint(mlp), "both": jax.jit(jax.checkpoint(jax.jit(mlp)))}


def fresh(scale=1.0, seed=0, **more):
    """A state and its parameters, after steps with inputs of this size: its scales fit them alone."""
    p = jax.tree.map(lambda w: w * scale, weights(seed=seed))
    state = oj.init(p, overrides=overrides(**more))
    return trained(state, p, scale), p


def trained(state, p, scale, steps=2):
    step = oj.value_and_grad(loss)
    for _ in range(steps):
        state = oj.end_step(step(state, p, scale * batch())[2])
    return state


def plain(p, x):
    return jax.nn.relu(x @ p["up"].T) @ p["down"].T


def error(found, expected):
    return float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected))


def amax(state, name, linear="up"):
    return float(state.slots[f"session/{name}/amax"][0, state.accepted.index(linear)])


@functools.cache
def three():
    """[(state, parameters, scale)] of one run and two runs, and the first one again."""
    small, p = fresh(**IN_FP8)
    large = jax.tree.map(lambda w: w * 1e4, p)
    other, q = fresh(1e-4, seed=5, **IN_FP8)
    return (small, p, 1), (trained(small, large, 1e4), large, 1e4), (other, q, 1e-4), (small, p, 1)


@pytest.mark.parametrize("kind", cached)
def test_a_function_that_jax_keeps_uses_the_state_of_each_call(kind):
    for state, parameters, scale in three():
        x = scale * batch(3)
        found = oj.evaluate(cached[kind])(state, parameters, x)
        assert same(found, oj.evaluate(lambda p, x: mlp(p, x))(state, parameters, x))
        assert error(found, plain(parameters, x)) < 0.12
        assert jnp.isfinite(jax.jit(lambda s, p, x: oj.evaluate(cached[kind])(s, p, x))(state, parameters, x)).all()


@pytest.mark.parametrize("kind", cached)
def test_training_by_a_function_that_jax_keeps_is_training_by_a_new_one(kind):
    def of(function):
        state, p, values = oj.init(weights(), overrides=overrides()), weights(), []
        for i in range(2):
            value, p, state = train_step(state, p, batch(i), lambda p, x: jnp.mean((function(p, x) - x)**2))
            values.append(value)
        return values, state.slots

    expected = of(lambda p, x: mlp(p, x))
    assert same(of(cached[kind])[1], expected[1]) and same(of(cached[kind]), of(cached[kind]))


def test_outside_of_a_state_a_cached_function_is_an_error():
    state, p = fresh()
    oj.evaluate(cached["jit"])(state, p, batch())
    for function in (cached["jit"], cached["checkpoint"], lambda p, x: oj.linear(state["up"], x, p["up"])):
        with pytest.raises(octavo.StateError, match="linear up: expected a State.*evaluate"):
            function(p, batch())
    with pytest.raises(octavo.StateError, match="linear up: expected a State.*first"):
        jax.jit(lambda p, x: oj.linear(state["up"], x, p["up"]))(p, batch())
    with pytest.raises(octavo.InvalidError, match="at least one of down, up"):
        oj.evaluate(lambda x: x * 2)(state, batch())


def test_two_models_of_a_gan_in_one_function():
    sizes = {"up": (32, 32), "down": (32, 32)}
    names = [{n: f"{model}_{n}" for n in sizes} for model in "gd"]
    parts = [weights({names[i][n]: s for n, s in sizes.items()}, seed=i) for i in range(2)]
    states = tuple(oj.init(p, overrides=overrides()) for p in parts)

    def net(model, p, x):
        return call(f"{model}_down", p, jnp.tanh(call(f"{model}_up", p, x)))

    def generator(p, q, z):
        return jnp.mean((net("d", q, net("g", p, z)) - 1)**2)

    z = batch()
    value, gradients, (g, d) = oj.value_and_grad(generator)(states, *parts, z)
    fake, _ = oj.record(lambda p, z: net("g", p, z))(states[0], parts[0], z)
    assert float(g.slots["session/x/amax"][0, 0]) == float(jnp.abs(z).max())
    assert float(d.slots["session/x/amax"][0, 0]) == float(jnp.abs(fake).max())
    assert float(d.slots["session/dy/amax"].min()) > 0

    # The other model in evaluation, with its gradient: plain products here, and nothing recorded.
    def through(p, q, z):
        return jnp.mean((oj.evaluate(lambda q, y: net("d", q, y))(states[1], q, net("g", p, z)) - 1)**2)

    _, other, g2 = oj.value_and_grad(through)(states[0], *parts, z)
    assert same(g2.slots["session/x/amax"], g.slots["session/x/amax"])
    for name in other:
        assert error(other[name], gradients[name]) < 0.2
    with pytest.raises(octavo.InvalidError, match="found two of one"):
        oj.evaluate(generator)((states[0], states[0]), *parts, z)


def test_teachers_and_a_target_network_of_the_same_run():
    """Weights of the past run by their own state inside of the online loss, which has none of their maxima."""
    state, p = fresh(**IN_FP8)
    old = jax.tree.map(lambda w: w * 50, p)
    target, teacher = trained(state, old, 50.0), trained(state, old, 5.0)
    x = batch(3)

    def td(p, target, old, x):
        aim = sum(jax.lax.stop_gradient(oj.evaluate(mlp)(one, old, x)) for one in (target, teacher))
        return jnp.mean((mlp(p, x) - aim)**2), aim

    (_, aim), _, after = jax.jit(lambda state, *a: oj.value_and_grad(td, has_aux=True)(state, *a))(state, p, target, old, x)
    assert amax(after, "w") == float(jnp.abs(p["up"]).max()) and amax(after, "x") == float(jnp.abs(x).max())
    expected = sum(oj.evaluate(mlp)(one, old, x) for one in (target, teacher))
    assert error(aim, expected) < 1e-5 and error(expected, 2 * plain(old, x)) < 0.15


def test_the_inner_loop_of_maml():
    state, p = fresh()

    def meta(p, x, is_second=False):
        gradient = jax.grad(loss)(p, x)
        inner = jax.tree.map(lambda w, g: w - (g if is_second else jax.lax.stop_gradient(g)), p, gradient)
        return loss(inner, -x)

    def by_jax(p, x):
        of = lambda p, x: jnp.mean((plain(p, x) - x)**2)  # noqa: E731
        inner = jax.tree.map(lambda w, g: w - jax.lax.stop_gradient(g), p, jax.grad(of)(p, x))
        return of(inner, -x)

    value, gradients, after = oj.value_and_grad(meta)(state, p, batch())
    expected, expected_gradients = jax.value_and_grad(by_jax)(p, batch())
    assert float(value) == pytest.approx(float(expected), rel=0.1)
    assert error(gradients["up"], expected_gradients["up"]) < 0.3  # two gradients in FP8, the one inside the other
    assert amax(after, "x") == float(jnp.abs(batch()).max())
    with pytest.raises(octavo.UnsupportedError, match="linear (up|down): expected a first derivative.*layers.skip"):
        oj.value_and_grad(lambda p, x: meta(p, x, True))(state, p, batch())


@jax.custom_vjp
def clipped(p, x):
    return mlp(p, x)


clipped.defvjp(lambda p, x: (mlp(p, x), (p, x)),
               lambda kept, dy: jax.vjp(mlp, *kept)[1](jnp.clip(dy, -1e-3, 1e-3)))


def test_forward_records_without_a_gradient():
    """Behind stop_gradient, of frozen parameters, and inside of the program's own custom_vjp."""
    state, p = oj.init(weights(), overrides=overrides()), weights()
    x = 7 * batch()

    def head(function):
        return lambda h, p, x: jnp.sum(h * function(p, x))

    stopped, frozen = head(lambda p, x: jax.lax.stop_gradient(mlp(p, x))), head(mlp)
    for function, number in ((stopped, 0), (frozen, 0), (jax.jit(stopped), 0), (jax.checkpoint(frozen), 0),
                             (head(clipped), 1), (head(clipped), 0)):
        _, _, after = oj.value_and_grad(function, number)(state, jnp.float32(2), p, x)
        assert amax(after, "x") == float(jnp.abs(x).max()) and amax(after, "x", "down") > 0
        assert amax(after, "w", "down") == float(jnp.abs(p["down"]).max())
        assert amax(after, "dy", "down") == (pytest.approx(1e-3) if number else 0.0)
    _, after = oj.record(mlp)(state, p, x)  # no derivative at all
    assert amax(after, "x") == float(jnp.abs(x).max())


def test_control_flow_records_what_runs():
    p = weights()
    state = oj.init(p, overrides=overrides())

    def of(p, x, flag, count):
        y = jax.lax.cond(flag, lambda x: mlp(p, 5 * x), lambda x: x, x)
        y = jax.lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, mlp(p, 2 * c[1])), (0, y))[1]
        return y

    for flag, count in ((True, 0), (False, 2), (False, 0)):
        _, after = oj.record(of)(state, p, batch(), flag, count)
        sizes = [5 * jnp.abs(batch()).max()] * flag
        y = batch()
        for _ in range(count):
            sizes.append(2 * jnp.abs(y).max())
            y = oj.record(mlp)(state, p, 2 * y)[0]
        assert amax(after, "x") == pytest.approx(float(max(sizes, default=0)))

    def steps(carry, x):
        value, p, state = train_step(*carry, x)
        return (state, p), value

    xs = jnp.stack([batch(i) for i in range(3)])
    (scanned, q), values = jax.jit(lambda s, p, xs: jax.lax.scan(steps, (s, p), xs), donate_argnums=())(state, p, xs)
    carry = state, p
    for i in range(3):
        carry, value = jax.jit(steps)(carry, xs[i])
        np.testing.assert_allclose(value, values[i], rtol=1e-5)
    np.testing.assert_allclose(scanned.slots["session/x/amax_history"][-3:], carry[0].slots["session/x/amax_history"][-3:], rtol=1e-5)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

    @nnx.remat
    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


def test_remat_of_nnx_traced_again_and_with_another_model():
    models = [Net(nnx.Rngs(i)) for i in range(2)]
    states = [oj.prepare(model, overrides=overrides()) for model in models]
    for rows in (4, 8, 4):
        for model, state, x in zip(models, states, (batch(rows=rows), 9 * batch(rows=rows))):
            graph, p = nnx.split(model)
            of = lambda p, x: jnp.mean(nnx.merge(graph, p)(x)**2)  # noqa: E731
            value, gradients, after = oj.value_and_grad(of)(state, p, x)
            assert amax(after, "x") == float(jnp.abs(x).max())
            expected, _ = jax.value_and_grad(lambda p, x: jnp.mean(
                (nnx.relu(x @ p["up"]["kernel"][...]) @ p["down"]["kernel"][...])**2))(p, x)
            assert float(value) == pytest.approx(float(expected), rel=0.1)


def test_functions_that_jax_forgot():
    jax.clear_caches()
    state, p, _ = three()[0]
    for function in cached.values():
        assert same(oj.evaluate(function)(state, p, batch(3)), oj.evaluate(mlp)(state, p, batch(3)))
