"""The model of samples/train_gpt on the same text, in flax.nnx, for jax_gpt.py.

Three blocks of width 96 over 64 bytes of context; the text is Debian's licences, whose last tenth is held
out. The products run in bfloat16, parameters and the rest in float32.
"""
import argparse
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

CONFIG = pathlib.Path(__file__).with_name("octavo.toml")
TEXT = pathlib.Path("/usr/share/common-licenses")
BYTES, CONTEXT, WIDTH, HEADS, LAYERS = 256, 64, 96, 3, 3


def arguments():
    """--steps: optimizer steps; --text: a folder or a file."""
    parser = argparse.ArgumentParser(description="Trains a small GPT on bytes, on the CPU.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    parser.add_argument("--folder", help="not used")
    return parser.parse_args()


def batches(steps, text=TEXT, rows=16, seed=1):
    """Yields uint8 [rows, CONTEXT + 1] for each step: windows at random places."""
    files = [text] if text.is_file() else sorted(
        f for f in text.iterdir() if f.is_file() and not f.is_symlink())
    data = np.concatenate([np.fromfile(f, np.uint8) for f in files])
    data = data[:len(data) * 9 // 10]
    random = np.random.default_rng(seed)
    for _ in range(steps):
        start = random.integers(0, len(data) - CONTEXT, (rows, 1))
        yield data[start + np.arange(CONTEXT + 1)]


def learning_rate(steps, peak=5e-3):
    """Warm-up over a tenth of the steps, then a cosine down to a tenth of the peak."""
    return optax.warmup_cosine_decay_schedule(0, peak, max(steps // 10, 1), max(steps, 2), peak / 10)


def normal(shrink=1.0):
    return nnx.initializers.normal(0.55 * shrink / WIDTH**0.5)


def linear(k, n, rngs, shrink=1.0, bias=True):
    return nnx.Linear(k, n, use_bias=bias, dtype=jnp.bfloat16, kernel_init=normal(shrink), rngs=rngs)


class Block(nnx.Module):
    """Attention and a feed-forward part, each after a LayerNorm."""

    def __init__(self, rngs):
        self.norm_1, self.norm_2 = (nnx.LayerNorm(WIDTH, rngs=rngs) for _ in range(2))
        shrink = (2 * LAYERS)**-0.5  # of what is added to the residual stream
        self.qkv, self.proj = linear(WIDTH, 3 * WIDTH, rngs), linear(WIDTH, WIDTH, rngs, shrink)
        self.fc1, self.fc2 = linear(WIDTH, 4 * WIDTH, rngs), linear(4 * WIDTH, WIDTH, rngs, shrink)

    def __call__(self, x):
        qkv = self.qkv(self.norm_1(x)).reshape(*x.shape[:2], 3, HEADS, -1)
        y = jax.nn.dot_product_attention(*jnp.moveaxis(qkv, 2, 0), is_causal=True)
        x = x + self.proj(y.reshape(x.shape))
        return x + self.fc2(jax.nn.gelu(self.fc1(self.norm_2(x))))


class Gpt(nnx.Module):
    """Called with bytes [rows, CONTEXT + 1]: the mean loss of each next byte, in nats."""

    def __init__(self, seed=0):
        rngs = nnx.Rngs(seed)
        self.bytes = nnx.Embed(BYTES, WIDTH, embedding_init=normal(), rngs=rngs)
        self.positions = nnx.Embed(CONTEXT, WIDTH, embedding_init=normal(), rngs=rngs)
        self.blocks = nnx.List(Block(rngs) for _ in range(LAYERS))
        self.norm, self.head = nnx.LayerNorm(WIDTH, rngs=rngs), linear(WIDTH, BYTES, rngs, bias=False)

    def __call__(self, text):
        x = self.bytes(text[:, :-1].astype(jnp.int32)) + self.positions(jnp.arange(CONTEXT))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, text[:, 1:].astype(jnp.int32)).mean()
