"""The runner of the first hour on a GPU, with stand-ins for the GPU, its tools and its programs."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import runner
import steps

HERE = pathlib.Path(__file__).resolve().parent
SANITIZER = """case "$*" in
*racecheck*) echo "a <race> in cast_kernel"; exit 1 ;;
*synccheck*) sleep 60 ;;
esac
echo checked"""
# torch is there; bench.py writes a figure that misses its goal.
PYTHON = """case "$*" in
*bench.py*) for last; do :; done
  echo '{"machine": {"device": "fake"}, "goals": [
    {"goal": "G5", "what": "cast", "measured": 0.5, "wanted": 0.9, "moonshot": 0.97, "verdict": "missed"},
    {"goal": "G8", "what": "trained", "measured": 1, "wanted": 1, "moonshot": 2, "verdict": "met",
     "details": ["a reason", {"run": "te block", "tokens_per_s": 62594.2, "peak_gib": 39.3}]},
    {"goal": "G13", "what": "training", "not_measured": "no package", "wanted": 1, "moonshot": 2}]}' >"$last"
  exit 4 ;;
*all_gpus.py*) exit 77 ;;
*) echo 2.11.0 ;;
esac"""


class Machine:
    """A tree with programs, and a PATH with tools."""

    def __init__(self, folder):
        self.root, self.tools, self.out = (pathlib.Path(folder) / n for n in ("tree", "tools", "out"))
        self.tool("nvidia-smi", "echo 'GPU 0: a fake GPU (UUID: 0)'")
        self.tool("compute-sanitizer", SANITIZER)
        self.tool("python", PYTHON)
        self.program("build/cuda/tests/octavo_gpu_test", "echo tested")
        self.program("build/cuda/lib/octavo/plugins/kernels-cuda.so", "")
        self.program("build/cuda/lib/liboctavo_torch_ops.so", "")

    def tool(self, name, body):
        return self._write(self.tools / name, body)

    def program(self, name, body):
        return self._write(self.root / name, body)

    def _write(self, path, body):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def environment(self):
        return {**os.environ, "PATH": f"{self.tools}:/usr/bin:/bin", "OCTAVO_PYTHON": str(self.tools / "python"),
                "OUT": ""}

    def run(self, *arguments):
        """(exit code, output) of the runner."""
        call = ["runner.py", "--root", str(self.root), "--out", str(self.out), *arguments]
        said = io.StringIO()
        with mock.patch.dict(os.environ, self.environment()), mock.patch.object(sys, "argv", call), \
                contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = runner.main()
            except SystemExit as end:
                code = end.code
        return code, said.getvalue()

    def page(self):
        return (self.out / "report.html").read_text(encoding="utf-8")

    def result(self, name):
        found = json.loads((self.out / f"{name}.json").read_text(encoding="utf-8"))
        return found["verdict"], found["reason"]


class Runner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.machine = Machine(folder.name)

    def test_what_works_passes(self):
        code, said = self.machine.run("--only", "kernels", "--only", "memcheck")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.machine.result("memcheck"), ("passed", ""))
        self.assertIn("about 3 minutes", said)
        self.assertIn("a fake GPU", self.machine.page())
        self.assertNotIn("What was not done", self.machine.page())

    def test_a_failed_step_fails_the_run_and_shows_its_log(self):
        code, said = self.machine.run("--only", "racecheck", "--only", "initcheck")
        self.assertEqual(code, 1, said)
        self.assertEqual(self.machine.result("racecheck"), ("failed", "exit code 1"))
        self.assertEqual(self.machine.result("initcheck"), ("passed", ""))  # each tool has its own verdict
        self.assertIn("a &lt;race&gt; in cast_kernel", self.machine.page())

    def test_steps_run_at_once_but_for_those_that_measure(self):
        meeting = self.machine.tools / "meeting"
        meeting.mkdir()
        self.machine.tool("compute-sanitizer",  # none ends before all have begun
                          f"touch {meeting}/$$; until [ $(ls {meeting} | wc -l) = 4 ]; do sleep 0.05; done")
        code, said = self.machine.run("--jobs", "4", "--limit", "60", "--only", "goals", *(
            word for tool in steps.SANITIZERS for word in ("--only", tool)))
        lines = [line.split()[3] for line in said.splitlines() if line.startswith(("passed", "failed"))]
        self.assertEqual((code, lines[0].rstrip(":"), sorted(lines[1:])), (1, "goals", sorted(steps.SANITIZERS)))

    def test_a_step_that_does_not_end_is_ended(self):
        code, _ = self.machine.run("--only", "synccheck", "--limit", "1")
        self.assertEqual((code, self.machine.result("synccheck")), (1, ("failed", "not finished after 1.0 s")))

    def test_what_is_missing_is_named(self):
        (self.machine.tools / "compute-sanitizer").unlink()
        code, said = self.machine.run("--only", "memcheck", "--only", "conformance.te.delayed", "--only", "ddp")
        self.assertEqual(code, 0, said)
        for name, reason in (("memcheck", "compute-sanitizer is not on PATH"),
                             ("conformance.te.delayed", "octavo was not built"),
                             ("ddp", "this machine has 1")):
            verdict, why = self.machine.result(name)
            self.assertEqual(verdict, "not done")
            self.assertIn(reason, why)
            self.assertIn(reason, said)
            self.assertIn(reason, self.machine.page())
        self.assertIn("What was not done, and why", self.machine.page())

    def test_a_gpu_without_blocks_of_32(self):
        self.machine.program("build/cuda/bin/octavo", "echo verified")
        for capability, verdict in (("9.0", "not done"), ("10.0", "passed")):
            self.machine.tool("nvidia-smi", f"case $* in *compute_cap*) echo {capability} ;; *) echo 'GPU 0: made up' ;; esac")
            self.machine.run("--only", "conformance.te.mx", "--only", "conformance.te.block")
            self.assertEqual(self.machine.result("conformance.te.mx")[0], verdict)
            self.assertEqual(self.machine.result("conformance.te.block")[0], "passed")

    def test_without_torch(self):
        self.machine.tool("python", "echo \"No module named 'torch'\" >&2; exit 1")
        code, said = self.machine.run("--only", "goals", "--only", "python")
        self.assertEqual(code, 0, said)
        self.assertIn("No module named 'torch'", self.machine.result("goals")[1])

    def test_a_missed_goal_fails_and_is_a_figure(self):
        code, _ = self.machine.run("--only", "goals")
        self.assertEqual((code, self.machine.result("goals")), (1, ("failed", "a goal was missed")))
        for text in ("0.500", '<span class="missed">missed</span>', "no package", "te block", "62,594"):
            self.assertIn(text, self.machine.page())

    def test_a_step_that_skips_itself_is_not_done(self):
        code, _ = self.machine.run("--only", "all_gpus")
        self.assertEqual((code, self.machine.result("all_gpus")[0]), (0, "not done"))

    def test_without_a_gpu(self):
        (self.machine.tools / "nvidia-smi").unlink()
        code, said = self.machine.run()
        self.assertEqual(code, 77, said)
        self.assertIn("no GPU", self.machine.page())
        self.assertNotIn("passed", self.machine.page().split("</style>")[1])

    def test_a_later_call_keeps_what_an_earlier_one_found(self):
        self.machine.run("--only", "racecheck")
        code, _ = self.machine.run("--only", "kernels")
        self.assertEqual(code, 0)
        self.assertIn("exit code 1", self.machine.page())
        self.assertIn("1 passed", self.machine.page())

    def test_the_plan_runs_nothing(self):
        code, said = self.machine.run("--plan")
        self.assertEqual(code, 0)
        self.assertFalse(self.machine.out.exists())
        for step in steps.steps(steps.Place(self.machine.root), self.machine.out):
            self.assertIn(f"\n{step.name} ", "\n" + said)

    def test_an_unknown_step(self):
        code, said = self.machine.run("--only", "nothing")
        self.assertEqual(code, 2)
        self.assertIn("there is no step nothing; there are graph, kernels", said)

    def test_a_step_fits_a_command_of_ten_minutes(self):
        known = steps.steps(steps.Place(self.machine.root), self.machine.out)
        self.assertEqual(len({s.name for s in known}), len(known))
        self.assertTrue(all(s.minutes < 10 for s in known))


class Pack(unittest.TestCase):
    def run_sh(self, *arguments, environment=None):
        done = subprocess.run(["bash", str(HERE / "run.sh"), *arguments], capture_output=True, text=True,
                              env=environment)
        return done.returncode, done.stdout + done.stderr

    def test_a_pack_runs_its_own_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            machine = Machine(folder)
            shutil.copytree(HERE, machine.root / "tests" / "gpu")
            (machine.tools / "python3").symlink_to(sys.executable)
            code, said = self.run_sh("--run", str(machine.root), "--only", "kernels", "--out", str(machine.out),
                                     environment=machine.environment())
            self.assertEqual(code, 0, said)
            self.assertEqual(machine.result("kernels"), ("passed", ""))

    def test_a_folder_that_is_no_pack(self):
        for arguments in (("--run",), ("--run", "/nowhere"), ("--pack",)):
            code, said = self.run_sh(*arguments)
            self.assertEqual(code, 2, said)
            self.assertIn("expect", said)


if __name__ == "__main__":
    unittest.main()
