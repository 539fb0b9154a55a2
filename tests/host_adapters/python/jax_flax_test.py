"""Models of flax run in FP8 by one argument or one call: a network of the shape of flax's MNIST example, a
transformer of the shape of its LM1B example, and our own layers with a backend that keeps weights."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx

import octavo
import octavo.jax as oj
from conftest import msamp
from jax_parts import overrides
from octavo.jax import linen


class Cnn(nnx.Module):
    """As flax's examples/mnist: two convolutions with pooling, two linears."""

    def __init__(self, linear, rngs):
        self.conv1 = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(8, 16, (3, 3), rngs=rngs)
        self.linear1 = linear(784, 64, rngs=rngs)
        self.linear2 = linear(64, 16, rngs=rngs)

    def __call__(self, x):
        for conv in (self.conv1, self.conv2):
            x = nnx.avg_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
        x = nnx.relu(self.linear1(x.reshape(x.shape[0], -1)))
        return self.linear2(x)


def digits(seed, rows=32):
    """Images of ten patterns with noise, and their labels."""
    pattern = jax.random.normal(jax.random.key(7), (10, 28, 28, 1))
    labels = jax.random.randint(jax.random.key(seed), (rows,), 0, 10)
    return pattern[labels] + jax.random.normal(jax.random.key(seed + 1), (rows, 28, 28, 1)), labels


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def train(loss, parameters, state=None, steps=30, adam=None):
    """The losses of `steps` steps by optax, through the state where there is one."""
    tx = optax.adam(1e-3)
    adam_state = adam and adam.init(state)

    @jax.jit
    def step(parameters, tx_state, state, adam_state, x, y):
        if state is None:
            value, gradients = jax.value_and_grad(loss)(parameters, x, y)
        else:
            value, gradients, state = oj.value_and_grad(loss)(state, parameters, x, y)
            if adam:
                state, adam_state = adam.update(state, adam_state)
            state = oj.end_step(state)
        updates, tx_state = tx.update(gradients, tx_state, parameters)
        return value, optax.apply_updates(parameters, updates), tx_state, state, adam_state

    losses, tx_state = [], tx.init(parameters)
    for i in range(steps):
        value, parameters, tx_state, state, adam_state = step(parameters, tx_state, state, adam_state,
                                                             *digits(2 * i))
        losses.append(float(value))
    return losses


def by_nnx(linear, config):
    model = Cnn(linear, nnx.Rngs(0))
    state = config and oj.prepare(model, overrides=config)
    graph, parameters = nnx.split(model)
    adam = oj.adam(1e-3) if config and state.session.run.has("optimizer") else None
    return state, train(lambda p, x, y: cross_entropy(nnx.merge(graph, p)(x), y), parameters, state,
                        adam=adam)


@pytest.fixture(scope="module")
def plain_mnist():
    return by_nnx(nnx.Linear, None)[1]


def test_mnist_of_nnx_in_fp8(plain_mnist):
    state, found = by_nnx(nnx.Linear, overrides("current"))
    assert set(state.accepted) == {"linear1", "linear2"}
    assert found != plain_mnist and found[-1] < found[0] / 2
    assert abs(found[-1] - plain_mnist[-1]) < 0.2


def test_mnist_of_nnx_with_our_layer_and_weights_of_the_backend(plain_mnist):
    state, found = by_nnx(oj.Linear, {"layers.min_gain": "off", **msamp()})
    assert state["linear1"].spec.owns_weight
    assert found[-1] < found[0] / 2 and abs(found[-1] - plain_mnist[-1]) < 0.1


def test_nnx_refusals():
    model = Cnn(nnx.Linear, nnx.Rngs(0))
    with pytest.raises(octavo.UnsupportedError, match="octavo.jax.Linear"):
        oj.prepare(model, overrides={"layers.min_gain": "off", **msamp()})
    oj.prepare(model, overrides=overrides())
    with pytest.raises(octavo.UnsupportedError, match="prepared twice"):
        oj.prepare(model, overrides=overrides())
    with pytest.raises(octavo.StateError, match="linear1.*octavo.jax.value_and_grad, record and evaluate"):
        model(digits(0)[0])
    with pytest.raises(octavo.UnsupportedError, match="batch dimensions"):
        oj.dot_general("a")(jnp.ones((2, 3, 4)), jnp.ones((2, 4, 3)), (((2,), (1,)), ((0,), (0,))))


class Block(nn.Module):
    """As a layer of flax's examples/lm1b."""

    @nn.compact
    def __call__(self, x, _=None):
        y = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(2)(y, y, mask=nn.make_causal_mask(x[..., 0]))
        return x + nn.Dense(32)(nn.relu(nn.Dense(64)(nn.LayerNorm()(x)))), None


class Lm(nn.Module):
    is_scanned: bool = False

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(16, 32)
        x = embed(tokens)
        if self.is_scanned:
            x, _ = nn.scan(Block, variable_axes={"params": 0, "octavo": 0}, split_rngs={"params": True},
                           length=2)(name="blocks")(x, None)
        else:
            for i in range(2):
                x, _ = nn.remat(Block)(name=f"block{i}")(x)
        return embed.attend(nn.LayerNorm()(x))


def next_tokens(seed, rows=8):
    start = jax.random.randint(jax.random.key(seed), (rows, 1), 0, 16)
    return (start + 3 * jnp.arange(17)) % 16


def lm_losses(config, is_scanned=False, steps=20):
    model = Lm(is_scanned)
    variables = jax.jit(model.init)(jax.random.key(0), next_tokens(0)[:, :-1])  # else JAX compiles each operation
    state, variables = linen.prepare(model, variables, next_tokens(0)[:, :-1], overrides=config)

    def loss(p, tokens):
        logits = model.apply({"params": p, "octavo": linen.variables(state)}, tokens[:, :-1])
        return cross_entropy(logits, tokens[:, 1:])

    tx, p = optax.adam(1e-2), variables["params"]
    tx_state, losses, first = tx.init(p), [], state

    @jax.jit
    def step(p, tx_state, state, tokens):
        value, gradients, state = oj.value_and_grad(loss)(state, p, tokens)
        updates, tx_state = tx.update(gradients, tx_state, p)
        return value, optax.apply_updates(p, updates), tx_state, oj.end_step(state)

    for i in range(steps):
        value, p, tx_state, state = step(p, tx_state, state, next_tokens(i))
        losses.append(float(value))
    plain = jax.jit(loss)(p, next_tokens(99))  # outside of octavo.jax's functions the model is JAX's own
    np.testing.assert_allclose(oj.evaluate(loss)(first, p, next_tokens(99)), plain, rtol=1e-5)
    return state, losses


def test_lm1b_of_linen_without_a_line_in_the_model():
    state, found = lm_losses(overrides("delayed"))
    assert len(state.accepted) == 2 * 6 + 1 and "Embed_0.attend" in state.accepted
    assert float(jnp.abs(state.slots["session/dy/scale"] - 1).min()) > 0  # every layer recorded
    assert found[-1] < 0.5 * found[0]


def test_scanned_layers_of_linen():
    state, found = lm_losses(overrides("delayed"), is_scanned=True)
    assert state.slots["session/x/amax_history"].shape == (16, 13)
    assert float(jnp.abs(state.slots["session/x/scale"] - 1).min()) > 0  # every layer recorded
    assert found[-1] < 0.5 * found[0]


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(64)(x.reshape(x.shape[0], -1)))
        return nn.Dense(16)(x)


def test_dense_of_linen_with_weights_of_the_backend():
    model, x = Mlp(), digits(0)[0]
    variables = jax.jit(model.init)(jax.random.key(0), x)
    loss = lambda p, x, y: cross_entropy(model.apply({"params": p}, x), y)  # noqa: E731
    plain = train(loss, variables["params"])
    for config in (overrides("current"), {"layers.min_gain": "off", **msamp()}):
        state, given = linen.prepare(model, variables, x, overrides=config)
        owns = state.session.specs["Dense_0"].owns_weight
        assert (given["params"]["Dense_0"]["kernel"].shape == ()) is owns
        found = train(loss, given["params"], state, adam=oj.adam(1e-3) if owns else None)
        assert found != plain and abs(found[-1] - plain[-1]) < 0.1
