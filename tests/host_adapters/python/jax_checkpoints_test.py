"""A checkpoint of one host in every other: the C host, PyTorch, LibTorch, JAX, and the C host again goes on with its bits."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest
import torch

import jax
import jax.numpy as jnp
import numpy as np
import octavo
import octavo.jax as oj

SIZES = {"fc1": (64, 32), "fc2": (16, 64)}  # of samples/c_host
CONFIG = """mixed_precision = "fp8"
[fp8]
backend = "{0}"
[fp8.{0}]
{1}
[layers]
min_gain = "off"
"""
CASES = {"te_delayed": ("te", 'recipe = "delayed"'), "msamp_O2": ("msamp", 'opt_level = "O2"'),
         "msamp_O3": ("msamp", 'opt_level = "O3"')}


def tensors(directory):
    """{key: (dtype, shape, bytes)} of a checkpoint of one rank, by the format's rules; without bytes of a host."""
    name, = [file["name"] for file in json.loads((directory / "manifest.json").read_text())["files"]]
    data = (directory / name).read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:start])
    return {key: (e["dtype"], e["shape"], data[start + e["data_offsets"][0]:start + e["data_offsets"][1]])
            for key, e in entries.items() if key not in ("__metadata__", "host")}


def torch_model(config):
    model = torch.nn.Sequential()
    for name, (n, k) in SIZES.items():
        model.add_module(name, torch.nn.Linear(k, n, bias=False))
    return octavo.prepare(model, torch.optim.AdamW(model.parameters()), config)[0]


def jax_state(config):
    return oj.init({name: jnp.ones(shape) / 8 for name, shape in SIZES.items()}, config)


def run(name, *arguments, **environment):
    program = pathlib.Path(os.environ["OCTAVO_LIBRARY_DIR"]).parent / name
    if not program.exists():
        pytest.skip(f"{program} is not built")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("backend, option", CASES.values(), ids=CASES)
def test_goes_around_all_hosts_with_its_bits(tmp_path, backend, option):
    config = tmp_path / "octavo.toml"
    config.write_text(CONFIG.format(backend, option))
    place = {name: tmp_path / name for name in ("c", "pytorch", "libtorch", "jax", "again", "unbroken")}
    run("bin/c_host", "--config", config, "--steps", 3, "--save", place["c"])
    expected = tensors(place["c"])
    assert len(expected) >= 6 and any(any(data) for _, _, data in expected.values())

    model = torch_model(config)
    assert octavo.load_checkpoint(model, place["c"]) == 3
    octavo.save_checkpoint(model, place["pytorch"], 3)
    assert tensors(place["pytorch"]) == expected

    run("tests/torch_cpp_state_test", "--gtest_filter=Ring.ChildProcess",
        OCTAVO_TORCH_TEST_RING=f"{config} {place['pytorch']} {place['libtorch']}")
    assert tensors(place["libtorch"]) == expected

    state, _ = oj.load_checkpoint(jax_state(config), place["libtorch"])
    oj.save_checkpoint(state, place["jax"], 3)
    assert tensors(place["jax"]) == expected

    shutil.copy(place["c"] / "host.bin", place["jax"])  # what the C host keeps itself
    for start, end in (("jax", "again"), ("c", "unbroken")):
        run("bin/c_host", "--config", config, "--steps", 3, "--resume", place[start], "--save", place[end])
    assert tensors(place["again"]) == tensors(place["unbroken"]) != expected
    run("bin/octavo", "checkpoint", "verify", place["libtorch"])


def test_a_damaged_checkpoint_changes_nothing(tmp_path):
    config = tmp_path / "octavo.toml"
    config.write_text(CONFIG.format(*CASES["msamp_O2"]))
    model, state = torch_model(config), jax_state(config)
    oj.save_checkpoint(state, tmp_path / "saved")
    name = "rank-0000-of-0001.safetensors"
    data = bytearray((tmp_path / "saved" / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / "saved" / name).write_bytes(data)
    octavo.save_checkpoint(model, tmp_path / "before")
    with pytest.raises(octavo.InvalidError, match="expected bytes with the XXH3 hash"):
        octavo.load_checkpoint(model, tmp_path / "saved")
    octavo.save_checkpoint(model, tmp_path / "after")
    assert tensors(tmp_path / "before") == tensors(tmp_path / "after")
    kept = {key: np.asarray(value).tobytes() for key, value in state.slots.items()}
    with pytest.raises(octavo.InvalidError, match="expected bytes with the XXH3 hash"):
        oj.load_checkpoint(state, tmp_path / "saved")
    assert kept == {key: np.asarray(value).tobytes() for key, value in state.slots.items()}
    with pytest.raises(octavo.ResourceError, match="No such file"):
        octavo.load_checkpoint(model, tmp_path / "nothing")


def test_what_a_device_has_in_parts_is_refused(tmp_path):
    config = tmp_path / "octavo.toml"
    config.write_text(CONFIG.format(*CASES["msamp_O2"]))
    state = jax_state(config)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    copies = jax.device_put(state, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    oj.save_checkpoint(copies, tmp_path / "copies")
    loaded, _ = oj.load_checkpoint(copies, tmp_path / "copies")
    assert all(loaded.slots[key].sharding == value.sharding for key, value in copies.slots.items())
    parts = oj.State(state.session, {key: jax.device_put(value, jax.sharding.NamedSharding(
        mesh, jax.sharding.PartitionSpec(None, "x"))) if value.shape[1] % 2 == 0 else value
        for key, value in state.slots.items()})
    with pytest.raises(octavo.UnsupportedError, match="found one that is divided"):
        oj.save_checkpoint(parts, tmp_path / "parts")


def test_linears_that_a_scan_goes_over_come_back(tmp_path):
    """Their slots are parts of one array."""
    config = tmp_path / "octavo.toml"
    config.write_text(CONFIG.format(*CASES["msamp_O2"]))

    def state(seed):
        weights = np.random.default_rng(seed).normal(size=(3, 16, 32)).astype(np.float32)
        return oj.init({"blocks": jnp.asarray(weights)}, config)

    first = state(1)
    oj.save_checkpoint(first, tmp_path / "saved", 7)
    owners = {key.split("/")[1] for key in tensors(tmp_path / "saved") if key.startswith("parameter/")}
    assert owners == {f"blocks.{i}.weight" for i in range(3)}
    second, step = oj.load_checkpoint(state(2), tmp_path / "saved")
    assert step == 7
    for key, value in first.slots.items():
        assert np.asarray(value).tobytes() == np.asarray(second.slots[key]).tobytes(), key
