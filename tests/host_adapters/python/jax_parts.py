"""What the tests of the JAX adapter share: two linears, and one training step."""
import jax
import jax.numpy as jnp
import numpy as np

import octavo.jax as oj

SIZES = {"up": (64, 32), "down": (32, 64)}


def overrides(recipe="delayed", **more):
    return {"mixed_precision": "fp8", "layers.min_gain": "off", "layers.skip": [], "fp8.backend": "te",
            "fp8.te.recipe": recipe, **more}


def weights(sizes=None, seed=0):
    sizes = sizes or SIZES
    keys = jax.random.split(jax.random.key(seed), len(sizes))
    return {name: jax.random.normal(key, shape) / shape[-1]**0.5
            for key, (name, shape) in zip(keys, sizes.items())}


def batch(seed=1, rows=16, cols=32):
    return jax.random.normal(jax.random.key(seed), (rows, cols))


def call(name, p, x):
    return oj.linear(name, x, p[name])


def mlp(p, x):
    return call("down", p, jax.nn.relu(call("up", p, x)))


def loss(p, x):
    return jnp.mean((mlp(p, x) - x)**2)


def train_step(state, p, x, of=loss):
    value, gradients, state = oj.value_and_grad(of)(state, p, x)
    p = jax.tree.map(lambda w, g: w - 0.1 * g, p, gradients)
    return value, p, oj.end_step(state)


def same(a, b):
    """Whether two trees have the same bits."""
    a, b = jax.tree.leaves(a), jax.tree.leaves(b)
    return len(a) == len(b) and all(
        np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in zip(a, b))
