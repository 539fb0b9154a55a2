"""Bad input is an exception with the remedy: of this package while JAX traces or opens a run, JAX's own,
with the same text, when a program runs. None ends the process."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import xla_client

import octavo
import octavo.jax as oj
from conftest import msamp
from jax_parts import batch, call, loss, mlp, overrides, train_step, weights
from octavo import library
from octavo.jax import ffi


@pytest.fixture
def state():
    return oj.init(weights(), overrides=overrides())


def test_float64_is_refused_and_x64_mode_is_not(state):
    p, x = weights(), batch()
    step = jax.jit(train_step)
    expected = step(state, p, x)[0]
    with jax.enable_x64(True):
        assert float(step(state, p, x)[0]) == float(expected)
        with pytest.raises(octavo.InvalidError, match="float64.*astype.*jax_enable_x64"):
            step(state, p, jnp.asarray(np.asarray(x), jnp.float64))
        with pytest.raises(octavo.InvalidError, match="float64"):
            oj.init({"up": jnp.zeros((4, 4), jnp.float64)}, overrides=overrides())
    with pytest.raises(octavo.InvalidError, match="int32"):
        step(state, p, jnp.ones((16, 32), jnp.int32))
    with pytest.raises(octavo.InvalidError, match="int32.*argnums"):
        oj.value_and_grad(lambda x: x.sum())(state, jnp.ones(3, jnp.int32))


def test_a_donated_state_is_refused(state):
    p = weights()
    step = jax.jit(train_step, donate_argnums=0)
    step(state, p, batch())
    with pytest.raises(octavo.StateError, match="donated.*keep what the program returned"):
        oj.end_step(state)
    with pytest.raises(octavo.StateError, match="donated"):
        oj.value_and_grad(loss)(state, p, batch())
    with pytest.raises((RuntimeError, ValueError), match="deleted"):  # JAX's own, before a program runs
        step(state, p, batch())


def test_the_state_of_another_model_is_refused(state):
    other = weights({"up": (48, 32), "down": (32, 48)})
    with pytest.raises(octavo.InvalidError, match=r"expected \[64, 32\].*found \[48, 32\]"):
        oj.value_and_grad(loss)(state, other, batch())
    with pytest.raises(octavo.InvalidError, match="last dimension of 32"):
        oj.value_and_grad(loss)(state, weights(), batch(cols=31))
    with pytest.raises(octavo.InvalidError, match="no such name"):
        state["gate"]
    strange = oj.State(state.session, {**state.slots, "session/x/amax_history": jnp.zeros((3, 2))})
    with pytest.raises(octavo.InvalidError, match=r"expected \[16, 2\].*found \[3, 2\].*another model"):
        oj.end_step(strange)


@pytest.mark.parametrize("operands, object, found", [
    ((), 0, "operands or results"), ((np.zeros((3, 2), np.float32),), 0, "expected 4 bytes, found 24"),
    ((), 7, "expected a number below 2")])
def test_a_call_with_other_buffers_is_refused_by_the_handler(state, operands, object, found):
    name = "octavo_end_step" if object == 0 else "octavo_quantize"
    call = jax.ffi.ffi_call(name, [jax.ShapeDtypeStruct((6,) if operands else (1,), jnp.float32)])
    numbers = dict(run=np.int64(state.session.number), object=np.int64(object), count=np.int64(1),
                   flags=np.int64(0))
    with pytest.raises(Exception, match="octavo status 2.*" + found):
        jax.block_until_ready(jax.jit(lambda *a: call(*a, **numbers))(*operands))


def test_other_batch_sizes_compile_anew_and_run(state):
    step = jax.jit(train_step)
    for rows in (1, 16, 17):
        assert bool(jnp.isfinite(step(state, weights(), batch(rows=rows))[0]))
    assert mlp_shape(state, 0) == (0, 32)


def mlp_shape(state, rows):
    return oj.evaluate(mlp)(state, weights(), batch(rows=rows)).shape


def test_a_closed_run_fails_with_its_reason(state):
    step = jax.jit(train_step)
    jax.block_until_ready(step(state, weights(), batch()))
    oj.close(state)
    with pytest.raises(Exception, match="octavo status 3.*octavo.jax.init") as raised:
        jax.block_until_ready(step(state, weights(), batch()))
    assert isinstance(octavo.errors.from_op(raised.value), octavo.StateError)


def test_wrong_platforms_and_missing_plugins_are_refused():
    with pytest.raises(octavo.UnsupportedError, match="(?s)no kernels for tpu are installed.*installed kernels: .*looked in"):
        oj.init(weights(), overrides=overrides(), device="tpu")
    with pytest.raises(octavo.OctavoError, match="cuda"):
        oj.init(weights(), overrides=overrides(), device="gpu")
    with pytest.raises(octavo.OctavoError, match="nosuch"):
        oj.init(weights(), overrides=overrides(**{"fp8.backend": "nosuch"}))


def test_the_platform_of_a_plugin_has_the_kernels_of_its_name(monkeypatch):
    """JAX has no platform here whose kernels are those of tests/devices, so its programs run on the CPU and are refused."""
    monkeypatch.setenv("OCTAVO_PLUGIN_PATH", str(library.folder().parent / "tests" / "devices"))
    with pytest.raises(octavo.UnsupportedError, match="(?s)kernels kernels-broken: it is broken"):
        oj.init(weights(), overrides=overrides(**{"device.kernels": "kernels-broken"}), device="npu")
    with pytest.raises(octavo.DeviceError, match="platform 'npu': expected kernels for its first device, found kernels for device "
                                                 "type 12, index 1.*serves index 0 of kind 'npu'"):
        oj.init(weights(), overrides=overrides(), device="npu")
    with pytest.raises(octavo.DeviceError, match="platform 'npu': .*found kernels for device type 1, index 0"):
        oj.init(weights(), overrides=overrides(**{"device.kind": "cpu"}), device="npu")
    least = overrides("current", **{"device.kernels": "kernels_plugin"})
    monkeypatch.setattr(oj.session, "default_platform", lambda: "npu")  # as jax.default_backend() with such a plugin
    state, taken = oj.init(weights(), overrides=least), []
    assert state.session.run.kernels == "kernels_plugin"
    xla_client.register_custom_call_handler("npu", lambda name, handler, platform, version, traits: taken.append(
        (name, platform, version)))
    assert sorted(taken) == sorted((f"octavo_{verb}", "npu", 1) for verb in ffi.VERBS)
    with pytest.raises(Exception, match="octavo status 2.*expected a call on device 0, where octavo.jax.init opened the run, "
                                        "found one on the CPU"):
        jax.block_until_ready(jax.jit(train_step)(state, weights(), batch()))
    oj.close(state)
    with pytest.raises(octavo.UnsupportedError, match="platform 'other': expected npu.*one process for each platform"):
        ffi.serve("other")


def test_a_missing_library_is_refused(tmp_path, monkeypatch):
    (tmp_path / "liboctavo.so").symlink_to(library.folder() / "liboctavo.so")
    monkeypatch.setenv("OCTAVO_LIBRARY_DIR", str(tmp_path))
    with pytest.raises(octavo.ResourceError, match="OCTAVO_BUILD_JAX=ON"):
        ffi.library.__wrapped__.__wrapped__()  # the function itself, which has not run here


def test_weights_of_the_backend_are_named_where_they_are_needed():
    p = weights({"layer": (32, 32)})
    config = {"layers.min_gain": "off", **msamp()}
    state = oj.init(p, overrides=config)
    with pytest.raises(octavo.InvalidError, match=r"layer: weight: expected a float array.*jnp.zeros\(\(\)\)"):
        oj.value_and_grad(lambda x: oj.linear("layer", x, None).sum())(state, batch())
    with pytest.raises(octavo.UnsupportedError, match="layer: expected a gradient in octavo.jax.value_and_grad"):
        jax.grad(lambda p: oj.evaluate(lambda p, x: call("layer", p, x).sum())(state, p, batch()))(p)
    with pytest.raises(octavo.InvalidError, match="keeps in slots"):
        oj.init({"layer": jax.ShapeDtypeStruct((32, 32), jnp.float32)}, overrides=config)
    with pytest.raises(octavo.UnsupportedError, match="optax"):
        oj.adam(1e-3).init(oj.init(p, overrides=overrides()))


@pytest.mark.parametrize("backend", ["te", "msamp"])
@pytest.mark.parametrize("skip", ["one", "two", "three", "stack.*"])
def test_a_linear_trains_whatever_is_declined_before_it(skip, backend):
    """Numbers of parameters count those of declined linears."""
    sizes = {"one": (16, 32), "two": (48, 32), "stack": (2, 24, 32), "three": (64, 32)}
    p = weights(sizes)
    config = overrides("current") if backend == "te" else {"layers.min_gain": "off", **msamp()}
    state = oj.init(p, overrides={**config, "layers.skip": skip})
    assert state.accepted == tuple(name for name in sizes if name != skip.partition(".")[0])
    owns = state.session.run.has("optimizer")
    given = {name: jnp.zeros(()) if owns and name in state.accepted else w for name, w in p.items()}

    def outputs(p, x, product):
        for name, w in sorted(p.items()):
            site = state[name] if name in state.accepted else None
            if name == "stack":
                stacked = [None] * 2 if site is None else [oj.Site(site.spec, i) for i in range(2)]
                whole = w if w.ndim else [w, w]
                yield jnp.stack([product(one, x, whole[i]) for i, one in enumerate(stacked)])
            else:
                yield product(site, x, w)

    def ours(site, x, w):
        return x @ w.T if site is None else oj.linear(site, x, w)

    found, after = oj.record(lambda p, x: list(outputs(p, x, ours)))(state, given, batch())
    for y, right in zip(found, outputs(p, batch(), lambda site, x, w: x @ w.T)):
        assert float(jnp.linalg.norm(y - right)) < 0.1 * float(jnp.linalg.norm(right))
    jax.block_until_ready(oj.end_step(after).slots)


def test_a_declined_linear_says_why():
    state = oj.init(weights(), overrides=overrides(**{"layers.skip": "down"}))
    assert state.accepted == ("up",)
    with pytest.raises(octavo.InvalidError, match="not converted"):
        state["down"]
    assert "down" in oj.report(state)
