"""JAX's transformations give what the plain program gives, bit for bit; and programs copy no slot."""
import re
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import octavo
import octavo.jax as oj
from jax_parts import batch, call, loss, mlp, overrides, same, train_step, weights
from octavo import library


def run_steps(of, steps=3, state=None, p=None):
    state = state or oj.init(weights(), overrides=overrides())
    p = p or weights()
    step, values = jax.jit(lambda *a: train_step(*a, of)), []
    for i in range(steps):
        value, p, state = step(state, p, batch(i))
        values.append(value)
    return values, p, state.slots


def test_checkpoint_and_uncompiled_calls_give_the_same_bits():
    def recomputed(p, x):
        return jnp.mean((jax.checkpoint(mlp)(p, x) - x)**2)

    plain = run_steps(loss)
    assert float(plain[0][-1]) < float(plain[0][0])
    assert same(plain, run_steps(recomputed))
    state, p, values = oj.init(weights(), overrides=overrides()), weights(), []
    for i in range(3):
        value, p, state = train_step(state, p, batch(i))
        values.append(value)
    np.testing.assert_allclose(values, plain[0], rtol=1e-6)  # XLA fuses the mean otherwise


def test_scan_over_stacked_layers_gives_the_bits_of_named_layers():
    each = weights({f"layer{i}": (32, 32) for i in range(3)})
    stacked = {"layers": jnp.stack(list(each.values()))}

    def by_name(p, x):
        for name in each:
            x = jnp.tanh(call(name, p, x))
        return jnp.mean(x**2)

    def by_scan(p, x):
        def body(x, layer):
            weight, site = layer
            return jnp.tanh(oj.linear(site, x, weight)), None
        return jnp.mean(lax_scan(body, x, (p["layers"], stack["layers"]))**2)

    def lax_scan(body, x, layers):
        return jax.lax.scan(body, x, layers)[0]

    one = run_steps(by_name, state=oj.init(each, overrides=overrides()), p=each)
    stack = oj.init(stacked, overrides=overrides())
    other = run_steps(by_scan, state=stack, p=stacked)
    assert same(one[0], other[0]) and same(one[2], other[2])
    assert same(jnp.stack(list(one[1].values())), other[1]["layers"])


@pytest.mark.parametrize("is_loop", [False, True])
def test_a_layer_that_is_used_twice_records_the_maximum(is_loop):
    p = weights({"layer": (32, 32)})
    x = batch()

    def twice(p, x):
        if is_loop:
            return jax.lax.scan(lambda y, _: (call("layer", p, y), None), x, None, length=2)[0].sum()
        return call("layer", p, call("layer", p, x)).sum()

    state = oj.init(p, overrides=overrides())
    inner, _ = oj.record(lambda p, x: call("layer", p, x))(state, p, x)
    _, _, state = oj.value_and_grad(twice)(state, p, x)
    expected = max(float(jnp.abs(x).max()), float(jnp.abs(inner).max()))
    assert float(state.slots["session/x/amax"][0, 0]) == expected


@pytest.mark.parametrize("is_loop", [False, True])
def test_micro_batches_record_what_one_batch_records(is_loop):
    p, x = weights(), batch()
    gradient = oj.value_and_grad(lambda p, x: mlp(p, x).sum())
    whole = gradient(oj.init(p, overrides=overrides()), p, x)[2]
    parts, halves = oj.init(p, overrides=overrides()), jnp.stack(jnp.split(x, 2))
    if is_loop:
        parts, _ = jax.lax.scan(lambda state, half: (gradient(state, p, half)[2], None), parts, halves)
    else:
        for half in halves:
            _, _, parts = gradient(parts, p, half)
    assert same(whole.slots, parts.slots)


def test_evaluation_records_nothing_and_inf_sets_nonfinite():
    p, state = weights(), oj.init(weights(), overrides=overrides())
    y = oj.evaluate(jax.jit(mlp))(state, p, batch())
    assert bool(jnp.isfinite(y).all())
    assert same(state.slots["session/x/amax"], jnp.zeros((1, 2)))
    _, _, state = oj.value_and_grad(lambda p, x: mlp(p, x).sum() * jnp.inf)(state, p, batch())
    assert float(state.slots["session/nonfinite"][0, 0]) == 1


def test_programs_alias_every_slot_and_trace_once():
    traces = []

    def counted(p, x):
        traces.append(1)
        return loss(p, x)

    step = jax.jit(lambda *a: train_step(*a, counted), donate_argnums=(0, 1))
    state, p = oj.init(weights(), overrides=overrides()), weights()
    text = step.lower(state, p, batch()).compile().as_text()
    header = next(line for line in text.splitlines() if "input_output_alias=" in line)
    aliased = {int(n) for n in re.findall(r"\{\d+\}: \((\d+),", header)}
    assert set(range(len(state.slots))) <= aliased
    history = "f32[16,2]"
    assert history in text and not re.search(re.escape(history) + r"\S* copy\(", text)

    live = []
    for i in range(4):
        _, p, state = step(state, p, batch(i))
        jax.block_until_ready(state)
        live.append(sum(a.nbytes for a in jax.live_arrays() if not a.is_deleted()))
    assert len(traces) == 1
    assert live[1] == live[2] == live[3]


def test_the_library_needs_neither_python_nor_jaxlib():
    path = library.folder() / "liboctavo_jax.so"
    text = subprocess.run(["readelf", "-W", "-d", path], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", text))
    assert {n.split(".so")[0] for n in needed} <= {
        "liboctavo", "libstdc++", "libgcc_s", "libc", "libm", "ld-linux-x86-64"}


def test_vmap_over_examples_is_one_batch_and_over_all_else_a_loop():
    state, p, x = oj.init(weights(), overrides=overrides()), weights(), batch()

    def by_rows(p, x):
        return jnp.mean(jax.vmap(lambda row: jnp.mean((mlp(p, row) - row)**2))(x))

    whole, rows = (oj.value_and_grad(of)(state, p, x) for of in (loss, by_rows))
    np.testing.assert_allclose(whole[0], rows[0], rtol=1e-6)
    assert same(whole[1], rows[1]) and same(whole[2].slots, rows[2].slots)
    each = oj.record(jax.vmap(jax.grad(lambda p, row: mlp(p, row).sum()), (None, 0)))
    gradients, recorded = each(state, p, x)
    for i in (0, 7):
        one, _ = oj.record(jax.grad(lambda p: mlp(p, x[i]).sum()))(state, p)
        assert same(jax.tree.map(lambda g: g[i], gradients), one)
    assert same(recorded.slots["session/x/amax"], whole[2].slots["session/x/amax"])


def test_an_ensemble_has_the_states_of_its_members():
    """vmap over programs with a state each is a loop over them, and so is vmap over stacked weights inside of one."""
    members = [(oj.init(weights(), overrides=overrides()), weights(seed=i), batch(i)) for i in range(3)]
    session = members[0][0].session
    members = [(oj.State(session, state.slots), p, x) for state, p, x in members]
    step = jax.jit(train_step)
    for _ in range(2):
        members = [(state, p, x) for (_, p, state), x in ((step(*m), m[2]) for m in members)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
    found = jax.jit(jax.vmap(train_step))(*stacked)
    for i, member in enumerate(members):
        value, p, state = jax.tree.map(lambda leaf: leaf[i], found)
        expected = step(*member)
        np.testing.assert_allclose(value, expected[0], rtol=1e-6)
        for a, b in zip(jax.tree.leaves((p, state)), jax.tree.leaves(expected[1:])):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)

    every = {"layers": jnp.stack([weights()["up"] * (i + 1) for i in range(3)])}
    state = oj.init(every, overrides=overrides())
    many = oj.record(lambda p, x: jax.vmap(lambda w, site: oj.linear(site, x, w))(p["layers"], state["layers"]))
    y, after = many(state, every, batch())
    assert y.shape == (3, 16, 64)
    np.testing.assert_allclose(after.slots["session/w/amax"][0], jnp.abs(every["layers"]).max((1, 2)))
