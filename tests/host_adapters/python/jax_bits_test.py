"""JAX is one host more of bits_test.py: y, dx, dw, db, weights and every slot of the state are bit-equal
to the ctypes host's after each of its three steps, with the same plugin file."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import octavo.jax as oj
from bits_test import ADAM, BIAS, CASES, STEPS, WEIGHT, batch, by_ctypes, by_modules
from octavo import _abi


def array(t):
    """Of a torch tensor, bfloat16 included."""
    if t.dtype == torch.bfloat16:
        return jnp.asarray(t.view(torch.int16).numpy().view(jnp.bfloat16.dtype))
    return jnp.asarray(t.numpy())


@jax.jit
def gradients(state, weight, bias, x, dy):
    def product(weight, bias, x):
        y = oj.linear("model", x, weight, bias)
        return jnp.sum(y.astype(jnp.float32) * dy.astype(jnp.float32)), y

    (_, y), grads, state = oj.value_and_grad(product, (0, 1, 2), has_aux=True)(state, weight, bias, x)
    return y, grads, state


def by_jax(overrides, dtype, expected):
    weight, bias = array(WEIGHT), array(BIAS)
    state = oj.init({"model": weight}, overrides={"layers.min_gain": "off", **overrides})
    owned = state["model"].spec.owns_weight
    if owned:
        adam = oj.adam(ADAM["lr"], *ADAM["betas"], ADAM["eps"], ADAM["weight_decay"])
        adam_state = adam.init(state)
    steps = []
    for i in range(STEPS):
        x, dy = (array(t) for t in batch(i, dtype))
        y, (dw, db, dx), state = gradients(state, weight, bias, x, dy)
        if owned:
            gradient = state.slots["parameter/model.weight/gradient"]
            state, adam_state = jax.jit(adam.update)(state, adam_state)
            bias = jnp.asarray(np.frombuffer(expected[i]["bias"], np.float32))
        else:
            weight, bias = weight - dw / 8, bias - db / 8
        state = jax.jit(oj.end_step)(state)
        step = {"y": y, "dx": dx, "db": db, **({} if owned else {"dw": dw})}
        for slot in state.session.slots:
            if state.session.is_kept(slot):
                step[(slot.owner_kind, slot.owner, slot.name)] = state.slots[state.session.key(slot)]
        if owned:
            step[(_abi.OWNER_PARAMETER, 0, "gradient")] = gradient
        steps.append({k: np.asarray(v).tobytes() for k, v in step.items()})
    return steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_jax_gives_the_bits_of_c_and_of_torch(case, dtype):
    expected = by_ctypes(CASES[case], dtype)
    found = by_jax(CASES[case], dtype, expected)
    torch_steps = by_modules(CASES[case], dtype)
    for i in range(STEPS):
        assert found[i].keys() <= expected[i].keys()
        different = [k for k in found[i] if found[i][k] != expected[i][k]]
        assert not different, f"ctypes, step {i}: {different}"
        different = [k for k in found[i].keys() & torch_steps[i].keys()
                     if found[i][k] != torch_steps[i][k] and "gradient" not in k]
        assert not different, f"torch, step {i}: {different}"
