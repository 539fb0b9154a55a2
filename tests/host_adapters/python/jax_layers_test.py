"""Every layer of flax that multiplies by a kernel runs in FP8 or is named with the reason; evaluation is JAX's own."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import octavo
import octavo.jax as oj
from conftest import msamp
from jax_parts import batch, overrides, same
from octavo.jax import linen


class Layers(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, 32, decode=False, rngs=rngs)
        self.general = nnx.LinearGeneral((4, 8), (2, 16), axis=(-2, -1), rngs=rngs)
        self.first = nnx.LinearGeneral(4, 6, axis=1, rngs=rngs)  # not the last dimension
        self.einsum = nnx.Einsum("...dh,hdk->k...", (12, 2, 16), (16,), rngs=rngs)
        self.last = nnx.Einsum("kr,ks->rs", (16, 16), rngs=rngs)
        self.plain = nnx.Linear(16, 32, rngs=rngs)
        self.batched = nnx.LinearGeneral(16, 32, batch_axis={0: 2}, rngs=rngs)
        self.summed = nnx.Einsum("rk,ks->s", (32, 16), rngs=rngs)
        self.conv = nnx.Conv(1, 8, (3,), rngs=rngs)

    def __call__(self, x):
        y = self.attention(x.reshape(2, 8, 32)).reshape(16, 4, 8)
        y = self.first(self.general(y).reshape(16, 4, 8)).reshape(16, 4, 12)[:, :2]
        y = self.plain(self.last(self.einsum(y)))
        return self.summed(y)


def test_layers_of_nnx_run_in_fp8_or_are_named():
    model, other = Layers(nnx.Rngs(0)), Layers(nnx.Rngs(0))
    x = batch()
    state = oj.prepare(model, overrides=overrides("current"))
    attention = {f"attention/{part}" for part in ("query", "key", "value", "out")}
    assert set(state.accepted) == attention | {"general", "first", "einsum", "last", "plain"}
    assert set(state.session.left_out) == {"batched", "summed", "conv"}
    report = oj.report(state)
    assert all(part in report for part in ("not converted", "batch dimensions", "summed up", "Conv multiplies by its kernel"))
    graph, p = nnx.split(model)
    plain_graph, q = nnx.split(other)
    of = lambda p, graph: jnp.sum(nnx.merge(graph, p)(x)**2)  # noqa: E731
    expected, expected_gradients = jax.jit(jax.value_and_grad(lambda q: of(q, plain_graph)))(q)
    value, gradients, after = oj.value_and_grad(lambda p: of(p, graph))(state, p)
    assert float(value) == pytest.approx(float(expected), rel=0.3) and float(value) != float(expected)
    # The bias of the keys moves no softmax: its gradient is what rounding leaves of sums whose terms cancel, a few 2^-24 of them.
    largest = max(float(jnp.linalg.norm(right)) for right in jax.tree.leaves(expected_gradients))
    for found, right in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients)):
        assert float(jnp.linalg.norm(found - right)) <= 0.45 * float(jnp.linalg.norm(right)) + 2**-20 * largest
    assert state.session.ran == set(state.accepted)
    np.testing.assert_allclose(oj.evaluate(lambda p: of(p, graph))(after, p), expected, rtol=1e-5)


def test_layers_of_nnx_that_cannot_be_converted_are_errors():
    with pytest.raises(octavo.UnsupportedError, match="at least one linear layer.*Conv multiplies by its kernel"):
        oj.prepare(nnx.Sequential(nnx.Conv(1, 8, (3,), rngs=nnx.Rngs(0))), overrides=overrides())
    with pytest.raises(octavo.UnsupportedError, match="at least one linear layer.*it has no linear layers"):
        oj.prepare(nnx.LayerNorm(4, rngs=nnx.Rngs(0)), overrides=overrides())
    own = nnx.Linear(8, 8, dot_general=lambda *a, **k: jax.lax.dot_general(*a, **k), rngs=nnx.Rngs(0))
    with pytest.raises(octavo.UnsupportedError, match="its own dot_general"):
        oj.prepare(nnx.Sequential(own), overrides=overrides())
    counting = nnx.Sequential(nnx.Linear(8, 8, rngs=nnx.Rngs(0)), nnx.BatchNorm(8, rngs=nnx.Rngs(0)))
    state = oj.prepare(counting, overrides=overrides())
    with pytest.raises(octavo.InvalidError, match="found a Sequential, whose changes would be lost.*nnx.split"):
        oj.record(nnx.value_and_grad(lambda model, x: model(x).sum()))(state, counting, jnp.ones((2, 8)))
    skipped = nnx.Sequential(nnx.Linear(8, 8, rngs=nnx.Rngs(0)))
    with pytest.raises(octavo.UnsupportedError, match="at least one linear layer"):
        oj.prepare(skipped, overrides=overrides(**{"layers.skip": "*"}))
    assert skipped(jnp.ones((2, 8))).shape == (2, 8)


class Tied(nnx.Module):
    """A head that is the embedding, an embedding that is only looked up, and layers in a loop."""

    def __init__(self, rngs, linear=nnx.Linear):
        self.embed, self.places = nnx.Embed(24, 32, rngs=rngs), nnx.Embed(8, 32, rngs=rngs)
        self.rnn = nnx.RNN(nnx.LSTMCell(32, 32, rngs=rngs), rngs=rngs) if linear is nnx.Linear else None
        self.mix = linear(32, 32, rngs=rngs)

    def __call__(self, tokens):
        x = self.mix(self.embed(tokens) + self.places(jnp.arange(8)))
        return self.embed.attend(x if self.rnn is None else self.rnn(x))


def test_the_head_of_an_embedding_and_loops_of_nnx():
    model, other = Tied(nnx.Rngs(0)), Tied(nnx.Rngs(0))
    tokens = jax.random.randint(jax.random.key(0), (4, 8), 0, 24)
    state = oj.prepare(model, overrides=overrides("current"))
    cell = {name for name in state.accepted if name.startswith("rnn/cell/")}
    assert len(cell) == 8 and set(state.accepted) == cell | {"embed.attend", "places.attend", "mix"}
    of = lambda graph: lambda p, rest: jnp.mean(nnx.merge(graph, p, rest, copy=True)(tokens)**2)  # noqa: E731
    graph, p, rest = nnx.split(model, nnx.Param, ...)
    plain_graph, q, _ = nnx.split(other, nnx.Param, ...)
    value, gradients, after = oj.value_and_grad(of(graph))(state, p, rest)
    expected, right = jax.jit(jax.value_and_grad(of(plain_graph)))(q, rest)
    assert float(value) == pytest.approx(float(expected), rel=0.2) and float(value) != float(expected)
    found, right = gradients["embed"]["embedding"][...], right["embed"]["embedding"][...]
    assert float(jnp.linalg.norm(found - right)) < 0.2 * float(jnp.linalg.norm(right))
    assert state.session.ran == cell | {"embed.attend", "mix"}
    assert "never ran\n  places.attend" in oj.report(after)
    with pytest.raises(octavo.UnsupportedError, match="embed.attend: .*prepared twice"):
        oj.prepare(model, overrides=overrides())
    with pytest.raises(octavo.StateError, match="linear mix"):
        model(tokens)


def test_a_backend_that_keeps_weights_leaves_embeddings_out():
    model = Tied(nnx.Rngs(0), oj.Linear)
    state = oj.prepare(model, overrides={"layers.min_gain": "off", **msamp()})
    assert state.accepted == ("mix",)
    assert state.session.left_out["embed.attend"] == "msamp would keep the embedding, which is also looked up"
    with pytest.raises(octavo.UnsupportedError, match="layers/0: expected octavo.jax.Linear, since msamp keeps its weight, found Linear"):
        oj.prepare(nnx.Sequential(Tied(nnx.Rngs(0)).mix), overrides={"layers.min_gain": "off", **msamp()})
    own = nnx.Linear(8, 8, dot_general=lambda *a, **k: jax.lax.dot_general(*a, **k), rngs=nnx.Rngs(0))
    state = oj.prepare(nnx.Sequential(own, nnx.Linear(8, 8, rngs=nnx.Rngs(0))), overrides=overrides())
    assert list(state.session.left_out.values()) == ["it has its own dot_general"]


class Scanned(nnx.Module):
    def __init__(self, rngs, count):
        self.blocks = nnx.vmap(lambda rngs: nnx.Linear(32, 32, rngs=rngs))(rngs.split(count))
        self.head = nnx.Linear(32, 16, rngs=rngs)

    def __call__(self, x):
        run = nnx.scan(lambda block, x: nnx.relu(block(x)), in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        return self.head(run(self.blocks, x))


def test_layers_that_nnx_stacks_are_an_error_or_are_left_out():
    """A stack of one has one site, and runs in FP8."""
    for count in (3, 2):
        with pytest.raises(octavo.UnsupportedError, match=rf"linear blocks: .*found {count} that flax.nnx stacked.*layers.skip"):
            oj.prepare(Scanned(nnx.Rngs(0), count), overrides=overrides())
    for count, more, accepted in ((3, {"layers.skip": "blocks.*"}, {"head"}), (1, {}, {"blocks", "head"})):
        model, plain = Scanned(nnx.Rngs(0), count), Scanned(nnx.Rngs(0), count)
        state = oj.prepare(model, overrides=overrides("current", **more))
        assert set(state.accepted) == accepted
        graph, p, rest = nnx.split(model, nnx.Param, ...)
        y, after = oj.record(lambda p, rest, x: nnx.merge(graph, p, rest, copy=True)(x))(state, p, rest, batch())
        right = plain(batch())
        assert state.session.ran == accepted and 0 < float(jnp.linalg.norm(y - right)) < 0.1 * float(jnp.linalg.norm(right))


class Mixed(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.DenseGeneral((2, 16), axis=(-2, -1), name="general")(x.reshape(16, 4, 8))
        y = nn.Einsum((2, 16, 24), "...ab,abk->k...", name="einsum")(y).T
        y = nn.Dense(8, dot_general=jax.lax.dot_general, name="dense")(y)
        own = lambda *a, **k: jax.lax.dot_general(*a, **k)  # noqa: E731
        return nn.Conv(8, (3,), name="conv")(nn.Dense(8, dot_general=own, name="own")(y)[None])[0]


def test_layers_of_linen_run_in_fp8_or_are_named():
    model, x = Mixed(), batch()
    variables = jax.jit(model.init)(jax.random.key(0), x)  # else JAX compiles each operation
    state, given = linen.prepare(model, variables, x, overrides=overrides("current"))
    assert same(variables, given) and set(state.accepted) == {"general", "einsum", "dense"}
    assert set(state.session.left_out) == {"own", "conv"}
    of = lambda v: jnp.sum(model.apply(v, x)**2)  # noqa: E731
    value, gradients, after = oj.value_and_grad(of)(state, variables)
    expected, expected_gradients = jax.jit(jax.value_and_grad(of))(variables)
    assert float(value) == pytest.approx(float(expected), rel=0.3) and float(value) != float(expected)
    for found, right in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients)):
        assert float(jnp.linalg.norm(found - right)) <= 0.3 * float(jnp.linalg.norm(right)) + 1e-5
    np.testing.assert_allclose(oj.evaluate(of)(after, variables), expected, rtol=1e-5)
    with pytest.raises(octavo.InvalidError, match="at least one of .*another model"):
        oj.value_and_grad(lambda v: jnp.sum(nn.Dense(4).apply(v, x)))(state, nn.Dense(4).init(jax.random.key(0), x))
    with pytest.raises(octavo.UnsupportedError, match="at least one linear layer"):
        conv = nn.Conv(8, (3,))
        linen.prepare(conv, conv.init(jax.random.key(0), x), x, overrides=overrides())


def test_models_of_linen_with_equal_names():
    """Student and teacher of one class, and a root that is a layer."""
    class Small(nn.Module):
        width: int

        @nn.compact
        def __call__(self, x):
            return nn.Dense(32)(nn.relu(nn.Dense(self.width)(x)))

    models, x = [Small(48), Small(96), nn.Dense(16)], batch()
    variables = [jax.jit(model.init)(jax.random.key(i), x) for i, model in enumerate(models)]
    states = [linen.prepare(m, v, x, overrides=overrides())[0] for m, v in zip(models, variables)]
    outputs = lambda vs: [model.apply(v, (i + 1) * x) for i, (model, v) in enumerate(zip(models, vs))]  # noqa: E731
    _, after = oj.record(outputs)(states, variables)
    for i, state in enumerate(after):
        first = state.accepted.index("Dense_1" if i < 2 else "Dense")
        assert float(state.slots["session/x/amax"][0, first]) == float(jnp.abs((i + 1) * x).max())
    again = linen.prepare(models[0], variables[0], x, overrides=overrides())[0]
    with pytest.raises(octavo.InvalidError, match="one State of the model Small, found 2"):
        oj.record(lambda v: models[0].apply(v, x))((states[0], again), variables[0])
