"""samples/python/restart.py and a program in C++: torchrun restarts them after a SIGKILL of one rank, and their last
checkpoint has the bits of a run without a break."""
import functools
import json
import os
import pathlib
import runpy
import subprocess
import sys

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import octavo
from torchrun import SAMPLES, start

import restart  # noqa: E402  of SAMPLES

OPTIONS = ["--steps", "4", "--every", "2", "--timeout", "20", "--folder"]


def plain_run(folder, config=None):
    sys.argv = ["restart.py", *OPTIONS, str(folder / "saved")]
    restart.tiny_gpt.CONFIG = config or restart.tiny_gpt.CONFIG
    runpy.run_path(str(SAMPLES / "restart.py"), run_name="__main__")


def ends(main, folder, world):
    """The exit codes of the ranks."""
    folder.mkdir()
    return {rank: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid, rank in start(main, folder, world).items()}


def tensors(folder, prefix=""):
    """{name: tensor, or value} of a checkpoint."""
    dcp_to_torch_save(folder, folder / "whole.pt")

    def walk(value, name):
        if isinstance(value, dict):
            for key, each in value.items():
                yield from walk(each, f"{name}/{key}")
        else:
            yield name, value

    return dict(walk(torch.load(folder / "whole.pt", weights_only=False), prefix))


def test_a_killed_rank_is_restarted_and_the_result_has_the_same_bits(tmp_path):
    assert ends(functools.partial(plain_run, tmp_path / "plain"), tmp_path / "plain", 2) == {0: 0, 1: 0}
    folder = tmp_path / "killed"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "--max-restarts", "1", "--monitor-interval", "0.1", str(pathlib.Path(__file__).with_name("restart_killed.py")), *OPTIONS,
         str(folder / "saved")], capture_output=True, text=True, timeout=200, cwd=folder, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-12000:]
    assert (folder / "struck").exists() and "steps 2 to 4" in done.stdout, done.stdout
    expected, found = (tensors(part / "saved" / "step-4") for part in (tmp_path / "plain", folder))
    assert found.keys() == expected.keys() and len(found) > 60
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.view(torch.uint8) if value.dim() else value,
                               found[name].view(torch.uint8) if value.dim() else found[name]), name
        else:
            assert value == found[name], name


@pytest.mark.skipif("OCTAVO_RESTART_HOST" not in os.environ, reason="octavo::torch is not built (OCTAVO_BUILD_TORCH)")
def test_a_killed_rank_of_a_program_in_cpp_is_restarted(tmp_path):
    def saved(name, *fault):
        folder = tmp_path / name
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--no-python", "--standalone", "--nproc-per-node", "2",
             "--max-restarts", "1", "--monitor-interval", "0.1", os.environ["OCTAVO_RESTART_HOST"], str(folder), *fault],
            capture_output=True, text=True, timeout=200, cwd=folder, check=False)
        assert done.returncode == 0, done.stderr[-12000:]
        # torch names parameters in the optimizer's state by their addresses; the weights after six steps show its values.
        found = {"model.pt": (folder / "model.pt").read_bytes()}
        for file in folder.glob("6/*/*.safetensors"):
            data = file.read_bytes()
            texts = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])["__metadata__"]
            found[file.relative_to(folder)] = {key: text for key, text in texts.items()
                                               if key.startswith("octavo.xxh3_128.") and not key.endswith(".host")}
        return done.stdout, found

    _, expected = saved("plain")
    said, found = saved("killed", "1", "4", "kill")
    assert "steps 4 to 6" in said
    assert len(expected) == 3 and found == expected


def test_a_configuration_that_is_wrong_ends_with_its_own_code(tmp_path):
    wrong = tmp_path / "octavo.toml"
    wrong.write_text('schema = 1\nmixed_precision = "fp8"\n[fp8]\nbackend = "none of them"\n')
    folder = tmp_path / "run"
    assert ends(functools.partial(plain_run, folder, wrong), folder, 1) == {0: 78}
    assert "octavo.errors." in (folder / "0.log").read_text()


class CheckpointException(BaseException):
    """Stands for torch's, which it makes of what each rank raised."""

    def __init__(self, *raised):
        self.failures = {rank: (each, None) for rank, each in enumerate(raised)}


@pytest.mark.parametrize("error, code", [
    (octavo.DeviceError("a rank"), 75), (octavo.ResourceError("a file"), 74), (OSError(28, "No space"), 74),
    (octavo.InvalidError("a key"), 78), (octavo.UnsupportedError("a backend"), 78), (octavo.StateError("a call"), 78),
    (octavo.VersionError("a version"), 78), (octavo.InternalError("a bug"), 70), (RuntimeError("shapes"), 1),
    (RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:1] Connection closed by peer"), 75),
    (RuntimeError("Application timeout caused pair closure"), 75),
    (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"), 74),
    (torch.distributed.DistBackendError("NCCL"), 75), (torch.distributed.DistStoreError("wait timeout"), 75),
    (CheckpointException(OSError(27, "File too large"), RuntimeError("shapes")), 74),
    (CheckpointException(octavo.InvalidError("options")), 78), (CheckpointException(KeyError("x")), 1)], ids=str)
def test_exit_codes(error, code):
    assert octavo.exit_code(error) == code
