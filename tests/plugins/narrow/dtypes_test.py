"""What hosts say of a dtype of x that the plan of a linear declines: dtypes_test.py <folder of the plugin> torch|jax."""
import re
import sys

import octavo

CONFIG = {"fp8.backend": "narrow", "plugins.trust": "dev", "plugins.path": sys.argv[1]}


def expect(error, call, *words):
    try:
        call()
    except error as found:
        text = " ".join(str(found).split())
        assert all(word in text for word in words), text
        return
    raise AssertionError(f"expected {error.__name__}")


def in_torch():
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.GELU(), torch.nn.Linear(32, 16))
    octavo.prepare(model, config=CONFIG)
    x = torch.randn(8, 64)
    expect(octavo.UnsupportedError, lambda: model(x), "linear 0", "expected bfloat16, which the backend takes, found float32",
           "torch.autocast")
    expect(octavo.UnsupportedError, lambda: model(x.half()), "found float16")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = model(x)
    assert y.dtype == torch.bfloat16
    octavo.report(model).assert_fp8(min_layers=1)
    y.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def in_jax():
    import jax
    import jax.numpy as jnp
    import octavo.jax as oj
    params = {"up": jnp.ones((32, 64)) * 0.1}
    state = oj.init(params, CONFIG)

    def loss(params, x):
        return oj.linear("up", x, params["up"]).astype(jnp.float32).sum()

    step = oj.value_and_grad(loss)
    x = jnp.ones((8, 64))
    expect(octavo.UnsupportedError, lambda: step(state, params, x), "linear up", "expected bfloat16", "found float32",
           "x.astype(jnp.bfloat16)")
    found = step(state, params, x.astype(jnp.bfloat16))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(found) if jnp.issubdtype(leaf.dtype, jnp.floating))


if __name__ == "__main__":
    {"torch": in_torch, "jax": in_jax}[sys.argv[2]]()
