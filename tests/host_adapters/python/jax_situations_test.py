"""The situations of ../situations.txt that JAX can be in, each next to a plain twin."""
import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import octavo
import octavo.jax as oj
import situations
from conftest import msamp
from jax_parts import overrides, same


def noise(shape, seed):
    """Numbers from -1 to 1 that look random, the same in every host."""
    values = np.sin(np.arange(np.prod(shape)) + 1000.0 * seed) * 43758.5453
    return jnp.asarray((2 * (values - np.floor(values)) - 1).reshape(shape), jnp.float32)


def fp8(name, x, w, b):
    return oj.linear(name, x, w, b)


def plain(name, x, w, b):
    return x @ w.T + b


def model(p, x, linear):
    first, last = sorted(p)
    return linear(last, jax.nn.relu(linear(first, x, *p[first])), *p[last])


def checkpointed(p, x, linear):
    return jax.checkpoint(lambda p, x: model(p, x, linear))(p, x)


def mse(p, x, linear, of=model):
    return jnp.mean((of(p, x, linear) - noise((64, 16), 6))**2)


def mse_checkpointed(p, x, linear):
    return mse(p, x, linear, checkpointed)


def distance(found, expected):
    return float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected))


def fixed(p, frozen):
    return {name: jax.lax.stop_gradient(values) if name in frozen else values for name, values in p.items()}


def add(total, gradients):
    return gradients if total is None else jax.tree.map(jnp.add, total, gradients)


class Runner:
    """Gradients and moments are pairs, of the model with a State and of its twin."""

    def __init__(self, backend, recipe, names="01", width=32, seed=1):
        self.overrides = {"layers.min_gain": "off", **msamp(recipe)} if backend == "msamp" else overrides(recipe)
        self.factor, self.rate, self.training, self.frozen = 1.0, 1e-3, True, ()
        self.given, self.names, self.made = (backend, recipe), names, {}
        p = {name: [noise(shape, seed + 2 * i) / 4, noise(shape[:1], seed + 2 * i + 1) / 4]
             for i, (name, shape) in enumerate(zip(names, ((64, width), (16, 64))))}
        self.ours, self.twin, self.gradients = p, jax.tree.map(jnp.copy, p), (None, None)

    def x(self):
        return noise((64, 32), 5) * self.factor

    def optimizers(self):
        """Ours and the twin's, by the rate as it is now: their states do not have it."""
        adam = optax.adamw(self.rate, weight_decay=0.0)
        return oj.with_state(adam, self.first, oj.adam(self.rate) if self.owns else None), adam

    def once(self, key, make):
        """What make() gave for this key: JAX compiles each new function."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def by_state(self, transform, of):
        """transform of of(p, x, linear) in FP8, with a State as its first argument."""
        frozen = self.frozen
        return self.once((transform, of, frozen), lambda: transform(lambda p, x: of(fixed(p, frozen), x, fp8)))

    def prepare(self):
        self.first = oj.init({name: w for name, (w, _) in self.ours.items()}, overrides=self.overrides,
                             frozen=self.frozen)
        self.owns = self.first.session.specs[self.names[0]].owns_weight
        if self.owns:
            self.ours = {name: [jnp.zeros(()), b] for name, (_, b) in self.ours.items()}
        self.carried, self.moments = (of.init(p) for of, p in zip(self.optimizers(), (self.ours, self.twin)))

    @property
    def state(self):
        return self.carried.octavo

    @state.setter
    def state(self, state):
        self.carried = self.carried._replace(octavo=state)

    def weight(self, layer):
        return oj.read_parameter(self.state, layer) if self.owns else self.ours[layer][0]

    def freeze(self, layer):
        self.frozen = (layer,)

    def unfreeze(self, layer):
        self.frozen = ()

    def input(self, factor):
        self.factor = float(factor)

    def mode(self, which):
        self.training = which == "train"

    def grad(self, which):
        """JAX differentiates in value_and_grad only."""

    def run(self, of, x=None):
        """of(p, x, linear), with the State: training goes on with the next one."""
        arguments = self.ours, self.x() if x is None else x
        if not self.training:
            return self.by_state(oj.evaluate, of)(self.state, *arguments)
        found, self.state = self.by_state(oj.record, of)(self.state, *arguments)
        return found

    def forward(self, of=mse):
        """of(p, x, linear)"""
        self.before, self.of = self.carried, of
        self.losses = self.run(of), of(self.twin, self.x(), plain)

    def backward(self):
        """Of the last forward, from the State before it."""
        if self.training:
            _, g, self.carried = self.by_state(oj.value_and_grad, self.of)(self.before, self.ours, self.x())
        else:
            ours = self.by_state(oj.evaluate, self.of)
            gradient = jax.jit(lambda state, p, x: jax.grad(lambda p: ours(state, p, x))(p))
            self.program = gradient.lower(self.state, self.ours, self.x()).as_text()
            g = gradient(self.state, self.ours, self.x())
        h = jax.grad(lambda p: self.of(fixed(p, self.frozen), self.x(), plain))(self.twin)
        self.gradients = add(self.gradients[0], g), add(self.gradients[1], h)

    def peek(self):
        self.run(model)

    def checkpointed(self):
        self.forward(mse_checkpointed)

    def inf(self):
        self.forward(lambda p, x, linear: jnp.sum(model(p, x, linear)) * jnp.inf)
        self.backward()

    def part(self, layer):
        self.forward(lambda p, x, linear: jnp.mean(linear(layer, x, *p[layer])**2))
        self.backward()

    def zero(self):
        self.gradients = None, None

    def step(self):
        if self.gradients[0] is None:
            self.state = oj.end_step(self.state)
            return
        ours, twin = self.once(("optimizers", self.rate), lambda: [
            optax.GradientTransformation(one.init, jax.jit(one.update)) for one in self.optimizers()])
        updates, self.carried = ours.update(self.gradients[0], self.carried, self.ours)
        self.ours = optax.apply_updates(self.ours, updates)
        updates, self.moments = twin.update(self.gradients[1], self.moments, self.twin)
        self.twin = optax.apply_updates(self.twin, updates)

    def train(self, count, of=mse):
        for _ in range(int(count)):
            self.zero()
            self.forward(of)
            self.backward()
            self.step()

    def second(self):
        self.other_model = Runner(*self.given, names="23", width=16, seed=11)
        self.other_model.prepare()

    def both(self, is_of_second):
        """A step of one of two models, whose loss is that of the second one on the first one's output."""
        other, stepped = self.other_model, self.other_model if is_of_second else self

        def of(p, q, x, linear):
            y = model(p, x, linear)
            return mse(q, jax.lax.stop_gradient(y) if is_of_second else y, linear)

        ours, twin = self.once(("both", is_of_second), lambda: [
            oj.value_and_grad(lambda p, q, x: of(p, q, x, fp8), int(is_of_second)),
            jax.value_and_grad(lambda p, q, x: of(p, q, x, plain), int(is_of_second))])
        found, g, (self.carried, other.carried) = ours((self.carried, other.carried), self.ours, other.ours, self.x())
        expected, h = twin(self.twin, other.twin, self.x())
        self.losses, stepped.gradients = (found, expected), (g, h)
        stepped.step()

    def against(self):
        self.both(True)

    def through(self):
        self.both(False)

    def output_of_second(self, bound):
        self.other_model.output(bound, model(self.twin, self.x(), plain))

    def copy(self):
        self.copied = copy.copy(self)
        self.copied.carried, self.copied.ours, self.copied.twin = copy.deepcopy((self.carried, self.ours, self.twin))
        self.copied.training = False
        self.copied.mark()

    def towards_copy(self, count):
        copied = self.copied

        def of(p, x, linear):
            target = model(copied.twin, x, plain) if linear is plain else copied.by_state(oj.evaluate, model)(
                copied.state, copied.ours, x)
            return jnp.mean((model(p, x, linear) - noise((64, 16), 6) - jax.lax.stop_gradient(target) / 2)**2)
        self.train(count, of)

    def copy_stays(self):
        for layer in "01":
            self.copied.still(layer)
        assert not same(self.weight("0"), self.copied.weight("0"))

    def output_of_copy(self, bound):
        self.copied.output(bound, self.x())

    def inner(self, rate):
        def of(p, x, linear):
            gradients = jax.lax.stop_gradient(jax.grad(mse)(p, x, linear))
            return mse(jax.tree.map(lambda w, g: w - float(rate) * g, p, gradients), x, linear)
        self.zero()
        self.forward(self.once(("inner", rate), lambda: of))
        self.backward()

    def lbfgs(self, count):
        # optax's own search differentiates in its loop, which JAX compiles for long: once is enough.
        twin = optax.lbfgs() if self.given[1] == "delayed" else optax.lbfgs(
            linesearch=optax.scale_by_backtracking_linesearch(max_backtracking_steps=20))
        ours = oj.with_state(twin, self.state)
        carried, moments = ours.init(self.ours), twin.init(self.twin)

        @jax.jit
        def step(p, carried, q, moments, x):
            value, g, carried = oj.value_and_grad(lambda p, x: mse(p, x, fp8))(carried, p, x)
            updates, carried = ours.update(g, carried, p, value=value, grad=g, value_fn=lambda p: oj.evaluate(
                lambda p, x: mse(p, x, fp8))(carried.octavo, p, x))
            value, g = jax.value_and_grad(lambda p: mse(p, x, plain))(q)
            of_twin, moments = twin.update(g, moments, q, value=value, grad=g, value_fn=lambda p: mse(p, x, plain))
            return optax.apply_updates(p, updates), carried, optax.apply_updates(q, of_twin), moments

        for _ in range(int(count)):
            self.ours, carried, self.twin, moments = step(self.ours, carried, self.twin, moments, self.x())
        self.state = carried.octavo

    def lr(self, rate):
        self.rate = float(rate)

    def descend(self, rate, update):
        """A step without with_state: the program ends it itself."""
        self.zero()
        self.forward()
        self.backward()
        self.ours, self.twin = (update(p, g, float(rate)) for p, g in zip((self.ours, self.twin), self.gradients))
        self.state = oj.end_step(self.state)

    def other(self, rate):
        def update(p, g, rate):
            sgd = optax.sgd(rate)
            return optax.apply_updates(p, sgd.update(g, sgd.init(p), p)[0])
        self.descend(rate, update)

    def manual(self, rate):
        self.descend(rate, lambda p, g, rate: jax.tree.map(lambda w, d: w - rate * d, p, g))

    def scale(self, layer, by):
        for p in (self.ours, self.twin):
            p[layer] = [p[layer][0] * float(by), p[layer][1]]

    set = scale

    def grad_of(self, layer):
        _, g, self.carried = oj.value_and_grad(lambda p, x: mse(p, x, fp8))(self.carried, self.ours, self.x())
        assert distance(g[layer][0], jax.grad(lambda p: mse(p, self.x(), plain))(self.twin)[layer][0]) <= 0.15

    def narrow_input(self):
        oj.record(lambda p, x: model(p, x, fp8))(self.state, self.ours, self.x()[:, :31])

    def output(self, bound, x=None):
        x = self.x() if x is None else x
        p = {name: [self.weight(name), b] for name, (_, b) in self.ours.items()}
        assert distance(self.run(model, x), model(p, x, plain)) <= float(bound)

    def loss(self, bound):
        assert distance(*self.losses) <= float(bound)

    def gradients_(self, bound):
        for layer in "01":
            found, expected = (g[layer][0] for g in self.gradients)
            assert distance(found, expected) <= float(bound), layer

    def mark(self):
        self.marked = {layer: self.weight(layer) for layer in self.names}

    def still(self, layer):
        assert same(self.weight(layer), self.marked[layer])

    def moved(self, layer):
        assert not same(self.weight(layer), self.marked[layer])

    def calls(self, count):
        assert self.program.count("octavo_forward") == int(count)

    def skipped(self, count):
        assert int(self.carried.skipped) == int(count)


@pytest.mark.parametrize("case", situations.cases("jax"), ids=situations.name_of)
def test_situation(case):
    situation, backend, recipe = case
    runner = Runner(backend, recipe)
    for words, expected in situations.operations(situation, "jax", backend):
        act = getattr(runner, words[0] + "_" * (words[0] == "gradients"))
        if expected is None:
            act(*words[1:])
            continue
        is_typed, word = expected
        with pytest.raises(Exception) as raised:
            act(*words[1:])
        assert word in str(raised.value)
        assert isinstance(raised.value, octavo.OctavoError) or not is_typed, raised.value
