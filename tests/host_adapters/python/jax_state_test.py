"""The State as a pytree: checkpoints by orbax, data parallel training by shard_map, optax around it."""
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from jax.sharding import PartitionSpec

import octavo
import octavo.jax as oj
from conftest import msamp
from octavo import _abi
from jax_parts import batch, loss, overrides, same, train_step, weights


def test_orbax_restores_the_bits(tmp_path):
    step = jax.jit(train_step)
    state, p = oj.init(weights(), overrides=overrides()), weights()
    for i in range(2):
        _, p, state = step(state, p, batch(i))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "step", {"state": state, "parameters": p})
        checkpointer.wait_until_finished()
        new = {"state": oj.init(weights(), overrides=overrides()), "parameters": weights(seed=9)}
        restored = checkpointer.restore(tmp_path / "step", new)
    assert isinstance(restored["state"], oj.State)
    assert same(step(state, p, batch(2)), step(restored["state"], restored["parameters"], batch(2)))


@pytest.mark.parametrize("is_checked", [True, False])
def test_shard_map_agrees_on_scales(is_checked):
    """Two ranks with a half of the batch each derive the scales of one rank with all of it."""
    if jax.device_count() < 2:
        pytest.fail("expected XLA_FLAGS=--xla_force_host_platform_device_count=2")
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    replicated, split = PartitionSpec(), PartitionSpec("data")

    def ranks_step(state, p, x):
        value, gradients, state = oj.value_and_grad(loss)(state, p, x)
        # With check_vma JAX has added gradients of what all ranks share.
        gradients = jax.tree.map(lambda g: g / 2 if is_checked else jax.lax.pmean(g, "data"), gradients)
        p = jax.tree.map(lambda w, g: w - 0.1 * g, p, gradients)
        return jax.lax.pmean(value, "data"), p, oj.end_step(state, axis_name="data")

    ranked = jax.jit(jax.shard_map(ranks_step, mesh=mesh, in_specs=(replicated, replicated, split),
                                   out_specs=replicated, check_vma=is_checked))

    x = jnp.concatenate([batch(), 2 * batch(5)])  # ranks whose maxima differ
    both = oj.init(weights(), overrides=overrides())
    _, p, both = ranked(both, weights(), x)
    parts = [oj.value_and_grad(loss)(oj.init(weights(), overrides=overrides()), weights(), half)
             for half in jnp.split(x, 2)]
    for name in ("session/x/amax", "session/dy/amax", "session/w/amax"):
        expected = jnp.maximum(*(part.slots[name] for _, _, part in parts))
        assert same(both.slots[name + "_history"][-1:], expected), name
    shards = [s.data for s in both.slots["session/x/scale"].addressable_shards]
    assert len(shards) == 2 and same(shards[0], shards[1])
    for name in p:
        step = sum(gradients[name] for _, gradients, _ in parts) / 2 * 0.1
        np.testing.assert_allclose(weights()[name] - p[name], step, rtol=1e-3, atol=1e-6)


def test_shard_map_inside_of_a_function_with_a_state_is_an_error():
    """Each rank would record in the one State around it."""
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def sharded(p, x):
        def rank(p, x):
            return jax.lax.pmean(loss(p, x), "data")
        return jax.shard_map(rank, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec("data")), out_specs=PartitionSpec())(p, x)

    state, p = oj.init(weights(), overrides=overrides()), weights()
    for function in (oj.record(sharded), oj.evaluate(sharded), oj.value_and_grad(sharded), oj.record(jax.checkpoint(sharded)),
                     jax.jit(oj.value_and_grad(jax.jit(sharded))),
                     oj.record(lambda p, x: jax.pmap(lambda x: loss(p, x))(x.reshape(2, 8, 32)))):
        with pytest.raises(octavo.UnsupportedError, match="linear up: .*found shard_map.*inside of the function given to shard_map"):
            function(state, p, batch())


@pytest.mark.parametrize("guard", [lambda tx: tx, lambda tx: optax.apply_if_finite(tx, 5)], ids=["alone", "apply_if_finite"])
def test_inf_on_one_rank_leaves_the_step_out_on_all(guard):
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    optimizer = guard(oj.with_state(optax.sgd(0.1), oj.init(weights(), overrides=overrides()), axis_name="data"))

    def ranks_step(p, carried, x, factor):
        value, gradients, carried = oj.value_and_grad(lambda p, x: loss(p, x) * factor[0])(carried, p, x)
        gradients = jax.tree.map(lambda g: jax.lax.pmean(g, "data"), gradients)
        updates, carried = optimizer.update(gradients, carried, p)
        return optax.apply_updates(p, updates), carried

    replicated, split = PartitionSpec(), PartitionSpec("data")
    step = jax.jit(jax.shard_map(ranks_step, mesh=mesh, in_specs=(replicated, replicated, split, split),
                                 out_specs=replicated, check_vma=False))
    x, p = jnp.concatenate([batch(), 2 * batch(5)]), weights()
    carried = optimizer.init(p)
    for factors in ([1, 1], [1, jnp.inf], [1, 1]):
        q, carried = step(p, carried, x, jnp.asarray(factors, jnp.float32))
        assert same(p, q) is (jnp.inf in factors) and jnp.isfinite(q["up"]).all()
        p = q
    for leaf in jax.tree.leaves((p, carried)):
        assert same(*[s.data for s in leaf.addressable_shards])


@pytest.mark.parametrize("is_stacked", [False, True])
def test_gradients_of_the_backend_are_averaged_over_ranks(is_stacked):
    """Both ranks hold the mean of their gradients in FP8, and step alike; a declined linear comes before."""
    config = {"layers.min_gain": "off", **msamp(), "layers.skip": "declined"}
    value = jnp.stack([weights()["up"]] * 2) if is_stacked else weights()["up"]
    linears = {"declined": weights()["down"], "up": value}
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    adam = oj.adam(1e-2, axis_name="data")

    def product(handle, site, x):
        if is_stacked:
            return jax.lax.scan(lambda total, s: (total + (oj.linear(s, x, handle)**2).sum(), None), 0.0, site)[0]
        return (oj.linear(site, x, handle)**2).sum()

    def gradient(state, x):
        return oj.value_and_grad(product)(state, jnp.zeros(()), state["up"], x)[2]

    def ranks_step(state, x):
        averaged = oj.average_gradients(gradient(state, x), "data")
        mean = oj.read_parameter(averaged, "up", _abi.ROLE_GRADIENT)
        stepped, _ = adam.update(gradient(state, x), adam.init(state))
        weight = oj.read_parameter(oj.end_step(stepped, "data"), "up")
        return mean[None], weight[None], averaged.slots["session/reduce/added"]

    ranked = jax.jit(jax.shard_map(ranks_step, mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec("data")),
                                   out_specs=PartitionSpec("data"), check_vma=False))
    x = jnp.concatenate([batch(), 2 * batch(5)])
    means, stepped, added = ranked(oj.init(linears, overrides=config), x)
    assert same(means[0], means[1]) and same(stepped[0], stepped[1])
    assert float(added.sum()) > 0
    halves = [oj.read_parameter(gradient(oj.init(linears, overrides=config), half), "up",
                                _abi.ROLE_GRADIENT) for half in jnp.split(x, 2)]
    expected = sum(halves) / 2
    assert float(jnp.linalg.norm(means[0] - expected) / jnp.linalg.norm(expected)) < 0.08
    assert not same(stepped[0], oj.read_parameter(oj.init(linears, overrides=config), "up"))


def test_optax_carries_the_state():
    p, state = weights(), oj.init(weights(), overrides=overrides())
    optimizer = oj.with_state(optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)), state)
    carried = optimizer.init(p)

    @jax.jit
    def step(p, carried, x):
        value, gradients, carried = oj.value_and_grad(loss)(carried, p, x)
        updates, carried = optimizer.update(gradients, carried, p)
        return optax.apply_updates(p, updates), carried, value

    for i in range(3):
        p, carried, value = step(p, carried, batch(i))
    assert float(jnp.abs(carried.octavo.slots["session/x/scale"] - 1).min()) > 0
    with pytest.raises(octavo.InvalidError, match="adam=octavo.jax.adam"):
        oj.with_state(optax.sgd(1.0), oj.init(weights(), overrides={"layers.min_gain": "off", **msamp()}))


def test_a_step_with_inf_changes_no_weight_of_the_backend():
    state = oj.init(weights(), overrides={"layers.min_gain": "off", **msamp()})
    adam = oj.adam(optax.constant_schedule(1e-2))
    before = oj.read_parameter(state, "up")
    np.testing.assert_allclose(before, weights()["up"], rtol=0.01)

    def product(handle, x, factor):
        return (oj.linear("up", x, handle) * factor).sum()

    for factor, is_skipped in ((jnp.inf, True), (1.0, False)):
        _, _, state = oj.value_and_grad(product)(state, jnp.zeros(()), batch(), factor)
        state, adam_state = adam.update(state, adam.init(state))
        state = oj.end_step(state)
        assert same(oj.read_parameter(state, "up"), before) is is_skipped
        assert int(state.slots["parameter/up.weight/step"][0, 0]) == (0 if is_skipped else 1)


def test_gradients_of_the_backend_add_up_over_micro_batches():
    """Also where a micro-batch does not use a layer."""
    config = {"layers.min_gain": "off", **msamp()}

    def product(handle, names, x):
        return sum((oj.linear(n, x if n == "up" else x @ jnp.eye(32, 64), handle) ** 2).sum()
                   for n in names)

    def gradient(parts):
        state = oj.init(weights(), overrides=config)
        for names in parts:
            _, _, state = oj.value_and_grad(lambda handle, x, names=names: product(handle, names, x))(
                state, jnp.zeros(()), batch())
        return [oj.read_parameter(state, n, _abi.ROLE_GRADIENT) for n in ("up", "down")]

    once, twice = gradient([("up", "down")]), gradient([("up", "down"), ("up",)])
    assert same(once[1], twice[1])
    np.testing.assert_allclose(twice[0], 2 * once[0], rtol=0.1, atol=0.1 * float(once[0].max()))


def test_threads_give_the_same_bits():
    """Programs of several runs at once, whose kernels share the threads of XLA."""
    sizes = {"up": (512, 128), "down": (128, 512)}
    p, x = weights(sizes), batch(rows=256, cols=128)
    found = []

    def run():
        state, step = oj.init(p, overrides=overrides()), jax.jit(train_step)
        for _ in range(4):
            value, stepped, after = step(state, p, x)
            found.append((value, stepped, after.slots))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert len(found) == 12 and all(same(f, found[0]) for f in found)
