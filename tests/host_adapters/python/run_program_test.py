"""octavo run: unchanged programs, started by Python, by torchrun and by the real `accelerate launch`, each in a process of
its own, train as with Octavo's lines in them.

It takes minutes, since each program starts torch, Accelerate and often transformers.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("accelerate", reason="accelerate is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS, SAMPLES = HERE / "programs", HERE.parents[2] / "samples" / "python"
RUN = ["-m", "octavo.run"]
LINE = re.compile(r"^octavo run: FP8 of .* is Octavo's, configured by ", re.M)
NOTHING = re.compile(r"^octavo run: nothing in .* trained in FP8", re.M)


# Of torch, also without Octavo (accelerate_loop.py alone on a busy machine: 1 of 34 runs): a thread of gloo frees the tensor
# of the last collective, asks for the interpreter while Python ends, and is ended inside of ProcessGroupGloo::runLoop,
# where C++ lets nothing end. Such a run is repeated.
ABORTED = "terminate called without an active exception"
SEARCHED = {"PYTHONPATH": os.pathsep.join(filter(None, [str(PROGRAMS), os.environ.get("PYTHONPATH")]))}


def python(*words, folder, code=0, **environment):
    """What a program prints to stderr. It starts with no variable of a launcher."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "FSDP_"))}
    for _ in range(3):
        done = subprocess.run([sys.executable, "-B", *map(str, words)], capture_output=True, text=True, timeout=200, cwd=folder,
                              check=False, env={**inherited, "GLOO_SOCKET_IFNAME": "lo", "HF_HOME": str(folder), **environment})
        if ABORTED not in done.stderr:
            break
    assert done.returncode == code, done.stdout[-1000:] + done.stderr[-4000:]
    return done.stderr if code or "loss" not in done.stdout else done.stderr + done.stdout


def launch(*words, ranks=1, precision="no"):
    """The words that start the real launcher. On CPUs it makes ranks with --multi_gpu alone."""
    several = ["--multi_gpu", "--num_processes", ranks] if ranks > 1 else ["--num_processes", 1, "--cpu"]
    return ["-m", "accelerate.commands.launch", *several, "--num_machines", 1, "--dynamo_backend", "no",
            "--mixed_precision", precision, *words]


def losses(folder, *words, **environment):
    """(ranks, losses, stderr) of accelerate_loop.py, whose name ends these words or is followed by its arguments."""
    path = folder / "losses.json"
    path.unlink(missing_ok=True)
    said = python(*words, "--losses", path, folder=folder, **environment)
    found = json.loads(path.read_text())
    return found["ranks"], found["losses"], said


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The same program with the changed import, without octavo run: {ranks: losses}; "bf16": without FP8."""
    folder = tmp_path_factory.mktemp("expected")
    text = (PROGRAMS / "accelerate_loop.py").read_text()
    changed = folder / "changed.py"
    changed.write_text(text.replace("from accelerate import Accelerator", "from octavo.accelerate import Accelerator"))
    assert changed.read_text() != text
    return {1: losses(folder, changed, "--mixed_precision", "fp8")[1],
            2: losses(folder, *launch(changed, "--mixed_precision", "fp8", ranks=2))[1],
            "bf16": losses(folder, PROGRAMS / "accelerate_loop.py", "--mixed_precision", "bf16")[1]}


def test_the_programs_are_unchanged_and_octavos_numbers_are_others(expected):
    for path in PROGRAMS.glob("*.py"):
        assert not re.search(r"^(from|import) octavo", path.read_text(), re.M)
    assert expected[1] != expected["bf16"] and expected[1] != expected[2]
    assert expected[1] == pytest.approx(expected["bf16"], rel=0.02)


@pytest.mark.parametrize("ranks, words", [(1, ["--mixed_precision", "fp8"]), (2, [])],
                         ids=["the script asks", "two ranks and the launcher decides"])
def test_accelerate_launch(ranks, words, expected, tmp_path):
    found = losses(tmp_path, *launch(*RUN, PROGRAMS / "accelerate_loop.py", *words, ranks=ranks, precision="bf16"))
    assert found[:2] == (ranks, expected[ranks])
    assert len(LINE.findall(found[2])) == 1 and not NOTHING.search(found[2])


def test_the_command_octavo_starts_a_module(expected, tmp_path):
    assert losses(tmp_path, "-m", "octavo", "run", "-m", "accelerate_loop", "--mixed_precision", "fp8", **SEARCHED)[1] == expected[1]


def test_a_file_is_used_before_a_recipe_of_the_script(expected, tmp_path):
    program = [PROGRAMS / "accelerate_loop.py", "--mixed_precision", "fp8"]
    (tmp_path / "current.toml").write_text('[fp8]\nbackend = "te"\n[fp8.te]\nrecipe = "current"\n')
    (tmp_path / "short.toml").write_text('[fp8]\nbackend = "te"\n[fp8.te]\nrecipe = "delayed"\namax_history_len = 1\n'
                                         'amax_compute_algo = "most_recent"\n')
    short = losses(tmp_path, *RUN, "--config=short.toml", *program)[1]
    # TERecipeKwargs needs no Transformer Engine here.
    assert losses(tmp_path, *RUN, *program, "--amax_history_len", 1)[1] == short
    found = losses(tmp_path, *RUN, "--config", "current.toml", *program, "--amax_history_len", 1)
    assert f"configured by {tmp_path}/current.toml\n" in found[2]
    assert len({tuple(of) for of in (found[1], short, expected[1], expected["bf16"])}) == 4


def stand_in(folder):
    """A package that makes `accelerate launch --mixed_precision fp8` start a script, and raises when it is imported."""
    (folder / "msamp").mkdir()
    (folder / "msamp" / "__init__.py").write_text("raise RuntimeError('the package msamp was used')\n")
    info = folder / "ms_amp-0.4.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ms-amp\nVersion: 0.4\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}


def test_accelerate_launch_in_fp8(expected, tmp_path):
    """The launcher itself wants one of three packages. With one, its settings arrive."""
    program = PROGRAMS / "accelerate_loop.py"
    if importlib.util.find_spec("torchao"):  # one of the three, which is not used; the launcher's history is another
        launched, alone = (losses(tmp_path, *words)[1] for words in (
            launch(*RUN, program, precision="fp8"), (*RUN, program)))
        assert launched == pytest.approx(alone, rel=0.02) and launched != expected["bf16"]
    else:
        said = python(*launch(*RUN, program, precision="fp8"), folder=tmp_path, code=1)
        assert "FP8 is not available on this machine" in said and not LINE.search(said)
    installed = stand_in(tmp_path)
    for_msamp = ["--fp8_backend", "msamp", "--fp8_opt_level", "O1"]
    found = losses(tmp_path, *launch(*for_msamp, *RUN, program, precision="fp8"), **installed)[1]
    (tmp_path / "msamp.toml").write_text('[fp8]\nbackend = "msamp"\n[fp8.msamp]\nopt_level = "O1"\n')
    assert found == losses(tmp_path, *RUN, "--config", "msamp.toml", program)[1] != expected[1]


def test_without_octavo_run_the_launchers_fp8_is_refused(tmp_path):
    """The callback converts the model, and so would Accelerate. accelerate_test.py has octavo.accelerate.prepare."""
    said = python(*launch(SAMPLES / "trainer.py", "--steps", 2, precision="fp8"), folder=tmp_path, code=1, **stand_in(tmp_path))
    assert re.search(r"octavo.errors.UnsupportedError: OctavoCallback: expected mixed_precision .* found .*octavo run", said)


def shown(output):
    return re.findall(r"\bloss (\d+\.\d+)", output)


def test_the_trainer_trains_as_with_the_callback(tmp_path):
    words = ["--steps", 6, "--folder", "out"]
    called = shown(python(SAMPLES / "trainer.py", *words, folder=tmp_path))
    said = python(*RUN, "--config", SAMPLES / "octavo.toml", SAMPLES / "plain" / "trainer.py", *words, folder=tmp_path)
    assert shown(said) == called
    # With the callback it is used, not a second one.
    assert shown(python(*RUN, SAMPLES / "trainer.py", *words, folder=tmp_path)) == called


@pytest.mark.parametrize("precision", ["bf16: true", "fp8: true"])
def test_a_program_of_yaml(precision, tmp_path):
    (tmp_path / "train.yaml").write_text(f"output_dir: out\nmax_steps: 4\n{precision}\n")
    python(*launch(*RUN, "-m", "yaml_trainer", "train", "train.yaml"), folder=tmp_path, **SEARCHED)
    history = json.loads((tmp_path / "out" / "history.json").read_text())
    steps = [entry for entry in history if "loss" in entry]
    assert len(steps) == 4 and steps[-1]["loss"] < steps[0]["loss"]
    assert {entry["octavo_fp8_layers"] for entry in steps} == {14}


def test_what_does_not_ask_is_left_alone_and_said(tmp_path, expected):
    program = [PROGRAMS / "accelerate_loop.py", "--mixed_precision", "bf16"]
    found = losses(tmp_path, *RUN, *program)
    assert found[1] == expected["bf16"] and NOTHING.search(found[2])
    (tmp_path / "other.py").write_text("import os, sys\nassert 'torch' not in sys.modules\nassert sys.argv[1:] == ['-m', 'x']\n"
                                       "assert sys.path[0] == os.path.dirname(os.path.abspath(__file__))\nsys.exit(7)\n")
    said = python(*RUN, "other.py", "-m", "x", folder=tmp_path, code=7)
    assert LINE.search(said) and not NOTHING.search(said)


@pytest.mark.parametrize("words, message", [
    ([], "expected a script, or -m and a module, found none"), (["-m"], "expected a script, or -m"),
    (["missing.py"], "octavo run missing.py: expected a script, found no such file"),
    (["-m", "no_such_module"], "expected a module that Python finds"),
    (["--config"], "found '--config' without a value"), (["--other", "x.py"], "found '--other'"),
    (["--config", "missing.toml", __file__], "missing.toml")])
def test_arguments_that_are_wrong(words, message, tmp_path):
    said = python(*RUN, *words, folder=tmp_path, code=2)
    assert said.startswith("error: ") and message in said
