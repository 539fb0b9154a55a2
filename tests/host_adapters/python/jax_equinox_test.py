"""Models of Equinox: every Linear runs in FP8 or is named with the reason."""
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import octavo
import octavo.jax as oj
from conftest import msamp
from jax_parts import batch, overrides, same
from torchrun import apart

apart("equinox")
if importlib.util.find_spec("equinox"):
    import equinox as eqx
    from octavo.jax import equinox
else:
    pytestmark = pytest.mark.skip(reason="equinox is not installed: tests/environment/install.sh jax equinox")


def net():
    """An encoder of the shape of Equinox's BERT example, with layers that are no Linear."""
    class Net(eqx.Module):
        embedding: eqx.nn.Embedding
        attention: eqx.nn.MultiheadAttention
        mlp: eqx.nn.MLP
        gru: eqx.nn.GRUCell
        norm: eqx.nn.LayerNorm

        def __init__(self, key):
            keys = jax.random.split(key, 4)
            self.embedding, self.norm = eqx.nn.Embedding(16, 32, key=keys[0]), eqx.nn.LayerNorm(32)
            self.attention = eqx.nn.MultiheadAttention(2, 32, use_output_bias=True, key=keys[1])
            self.mlp = eqx.nn.MLP(32, 16, 64, 1, key=keys[2])
            self.gru = eqx.nn.GRUCell(16, 16, key=keys[3])

        def __call__(self, tokens):
            x = jax.vmap(self.embedding)(tokens)
            x = x + self.attention(*[jax.vmap(self.norm)(x)] * 3)
            return jax.lax.scan(lambda h, x: (self.gru(x, h),) * 2, jnp.zeros(16), jax.vmap(self.mlp)(x))[1]

    return Net(jax.random.key(0))


def losses(config, steps=30):
    model, state = net(), None
    if config:
        state, model = equinox.prepare(model, overrides=config)
    owns = config and state.session.run.has("optimizer")
    p, static = eqx.partition(model, eqx.is_inexact_array)
    tx = optax.adam(3e-3)
    tx = oj.with_state(tx, state, oj.adam(3e-3) if owns else None) if config else tx
    tokens = (jax.random.randint(jax.random.key(1), (8, 1), 0, 16) + 3 * jnp.arange(9)) % 16

    def loss(p, tokens):
        logits = jax.vmap(eqx.combine(p, static))(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def step(p, carried):
        if config:
            value, gradients, carried = oj.value_and_grad(loss)(carried, p, tokens)
        else:
            value, gradients = jax.value_and_grad(loss)(p, tokens)
        updates, carried = tx.update(gradients, carried, p)
        return optax.apply_updates(p, updates), carried, value

    carried, found = tx.init(p), []
    for _ in range(steps):
        p, carried, value = step(p, carried)
        found.append(float(value))
    return state, found


@pytest.mark.parametrize("backend", ["te", "msamp"])
def test_layers_of_equinox_run_in_fp8_or_are_named(backend):
    state, found = losses(overrides() if backend == "te" else {"layers.min_gain": "off", **msamp()})
    plain = losses(None)[1]
    attention = {f"attention/{part}_proj" for part in ("query", "key", "value", "output")}
    assert set(state.accepted) == attention | {"mlp/layers/0", "mlp/layers/1"} == state.session.ran
    assert state.session.left_out == {
        "embedding": "Embedding multiplies by its weight in its own way", "gru": "GRUCell multiplies by its weight_ih in its own way"}
    assert found != plain and found[-1] < 0.8 * found[0] and abs(found[-1] - plain[-1]) < 0.1


@pytest.mark.parametrize("way", ["scan", "vmap"])
def test_stacked_layers_have_their_own_scales(way):
    stacked = eqx.filter_vmap(lambda key: eqx.nn.Linear(32, 32, key=key))(jax.random.split(jax.random.key(0), 3))
    stacked = eqx.tree_at(lambda m: m.weight, stacked, stacked.weight * jnp.array([1, 2, 4])[:, None, None])
    state, model = equinox.prepare(stacked, overrides=overrides())
    p, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(p, x, model=static):
        model = eqx.combine(p, model)
        if way == "vmap":
            return jnp.mean(eqx.filter_vmap(lambda layer: jax.vmap(layer)(x))(model)**2)
        arrays, rest = eqx.partition(model, eqx.is_array)
        return jnp.mean(jax.lax.scan(lambda x, a: (jax.nn.tanh(jax.vmap(eqx.combine(a, rest))(x)), None), x, arrays)[0]**2)

    value, gradients, after = oj.value_and_grad(loss)(state, p, batch())
    expected = [float(jnp.abs(w).max()) for w in stacked.weight]
    np.testing.assert_array_equal(after.slots["session/w/amax"][0], expected)
    q, plain = eqx.partition(stacked, eqx.is_inexact_array)
    right, right_gradients = jax.value_and_grad(lambda q, x: loss(q, x, plain))(q, batch())
    np.testing.assert_allclose(value, right, rtol=0.1)
    difference = jnp.linalg.norm(gradients.weight - right_gradients.weight)
    assert float(difference) < 0.3 * float(jnp.linalg.norm(right_gradients.weight))


def test_equinox_refusals():
    model = eqx.nn.MLP("scalar", "scalar", 32, 1, key=jax.random.key(0))
    state, converted = equinox.prepare(model, overrides=overrides("current"))
    with pytest.raises(octavo.UnsupportedError, match="layers/0: .*prepared twice"):
        equinox.prepare(converted, overrides=overrides())
    with pytest.raises(octavo.InvalidError, match="arguments: expected pytrees of arrays.*activation.*equinox.partition"):
        oj.value_and_grad(lambda m, x: m(x))(state, converted, jnp.float32(1))
    p, static = eqx.partition(converted, eqx.is_inexact_array)
    value, _ = oj.record(lambda p, x: eqx.combine(p, static)(x))(state, p, jnp.float32(1))
    np.testing.assert_allclose(value, model(jnp.float32(1)), rtol=0.2, atol=0.05)
    for layer, reason in ((eqx.nn.Conv1d(2, 2, 3, key=jax.random.key(0)), "Conv1d multiplies by its weight in its own way"),
                          (eqx.nn.LayerNorm(4), "it has no linear layers")):
        with pytest.raises(octavo.UnsupportedError, match=f"at least one linear layer.*{reason}"):
            equinox.prepare(layer, overrides=overrides())
    plain = eqx.nn.Linear(8, 8, key=jax.random.key(0))
    assert same(equinox.prepare(plain, overrides=overrides())[1].weight, plain.weight)
