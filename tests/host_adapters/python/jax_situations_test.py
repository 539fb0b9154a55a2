"""The situations of ../situations.txt that JAX can be in, each next to a plain twin."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import octavo
import octavo.jax as oj
import situations
from jax_parts import overrides


def noise(shape, seed):
    """Numbers from -1 to 1 that look random, the same in every host."""
    values = np.sin(np.arange(np.prod(shape)) + 1000.0 * seed) * 43758.5453
    return jnp.asarray((2 * (values - np.floor(values)) - 1).reshape(shape), jnp.float32)


def fp8(name, x, w, b):
    return oj.linear(name, x, w, b)


def plain(name, x, w, b):
    return x @ w.T + b


def model(p, x, linear):
    return linear("1", jax.nn.relu(linear("0", x, *p["0"])), *p["1"])


def mse(p, x, linear):
    return jnp.mean((model(p, x, linear) - noise((64, 16), 6))**2)


def distance(found, expected):
    return float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected))


class Runner:
    def __init__(self, backend, recipe):
        self.recipe, self.factor, self.training, self.frozen = recipe, 1.0, True, ()
        p = {"0": [noise((64, 32), 1) / 4, noise((64,), 2) / 4], "1": [noise((16, 64), 3) / 4, noise((16,), 4) / 4]}
        self.ours, self.twin = p, jax.tree.map(jnp.copy, p)

    def x(self):
        return noise((64, 32), 5) * self.factor

    def prepare(self):
        self.state = oj.init({name: w for name, (w, _) in self.ours.items()}, overrides=overrides(self.recipe))
        self.adam = optax.adamw(1e-3, weight_decay=0.0)
        self.moments = self.adam.init(self.ours), self.adam.init(self.twin)

    def freeze(self, layer):
        self.frozen = (layer,)

    def input(self, factor):
        self.factor = float(factor)

    def train(self, count):
        for _ in range(int(count)):
            value, g, self.state = oj.value_and_grad(lambda p: mse(self.fixed(p), self.x(), fp8))(self.state, self.ours)
            expected, h = jax.value_and_grad(lambda p: mse(self.fixed(p), self.x(), plain))(self.twin)
            self.losses = value, expected
            (u, a), (v, b) = (self.adam.update(each, m, p) for each, m, p in zip(
                (g, h), self.moments, (self.ours, self.twin)))
            self.ours, self.twin = optax.apply_updates(self.ours, u), optax.apply_updates(self.twin, v)
            self.moments, self.state = (a, b), oj.end_step(self.state)

    def scale(self, layer, by):
        for p in (self.ours, self.twin):
            p[layer] = [p[layer][0] * float(by), p[layer][1]]

    def fixed(self, p):
        return {name: jax.lax.stop_gradient(values) if name in self.frozen else values for name, values in p.items()}

    def mode(self, which):
        self.training = which == "train"

    def grad(self, which):
        """JAX differentiates in value_and_grad only."""

    def run(self, x):
        """y, and the state after it."""
        if self.training:
            return oj.record(lambda p, x: model(p, x, fp8))(self.state, self.ours, x)
        return oj.evaluate(lambda p, x: model(p, x, fp8))(self.state, self.ours, x), self.state

    def forward(self):
        _, self.state = self.run(self.x())

    def step(self):
        self.state = oj.end_step(self.state)

    def narrow_input(self):
        self.run(self.x()[:, :31])

    def output(self, bound):
        found, _ = self.run(self.x())
        error = distance(found, model(self.ours, self.x(), plain))
        assert error <= float(bound)

    def loss(self, bound):
        error = distance(*self.losses)
        assert error <= float(bound)


@pytest.mark.parametrize("case", situations.cases("jax"), ids=situations.name_of)
def test_situation(case):
    situation, backend, recipe = case
    runner = Runner(backend, recipe)
    for words, expected in situations.operations(situation, "jax", backend):
        act = getattr(runner, words[0])
        if expected is None:
            act(*words[1:])
            continue
        is_typed, word = expected
        with pytest.raises(Exception) as raised:
            act(*words[1:])
        assert word in str(raised.value)
        assert isinstance(raised.value, octavo.OctavoError) or not is_typed, raised.value
