"""Runs of train_gpt, one core each: what it is, one run, and many until the time is over."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

from errors import StudyError, expect
from plan import text_hash

FILES = ["bin/train_gpt", "lib/liboctavo.so",
         *(f"lib/octavo/plugins/{name}.so" for name in ("te", "msamp", "reference"))]
FIXED = ["--threads", "1", "--telemetry-every", "0", "--sample-bytes", "0", "--quiet"]


def processor(text=None):
    """The processor's model, and the instruction set that train_gpt's own loops take on it."""
    text = pathlib.Path("/proc/cpuinfo").read_text() if text is None else text
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    flags = set(text.split())
    level = "avx512f" if "avx512f" in flags else "avx2" if {"avx2", "fma"} <= flags else "baseline"
    return (model.group(1).strip() if model else "unknown"), level


class Program:
    """train_gpt of one build, with its libraries, on this machine."""

    def __init__(self, build):
        self.folder = pathlib.Path(build).resolve()
        digest = hashlib.sha256()
        for name in FILES:
            path = self.folder / name
            expect(path.is_file(), str(path), "a file of the build", "none",
                   "Build train_gpt and the plugins te, msamp and reference there, or name another --build.")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        self.cpu, level = processor()
        # The loops of the program round by instruction set: another one is another build.
        self.build = f"{digest.hexdigest()[:16]}-{level}"

    def start(self, plan, recipe, seed):
        return Run(self, plan, recipe, seed)


class Run:
    """One process of train_gpt, and the record that it leaves."""

    def __init__(self, program, plan, recipe, seed):
        self.program, self.plan, self.recipe, self.seed = program, plan, recipe, seed
        self.folder = tempfile.mkdtemp(prefix="octavo_equivalence_")
        self.command = [str(program.folder / "bin/train_gpt"), *plan.arguments(recipe, seed), *FIXED,
                        "--out", self.folder]
        # Neither settings nor plugins of the user: those next to the program alone.
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("OCTAVO_", "XDG_"))}
        self.errors = open(pathlib.Path(self.folder, "errors"), "w+")
        self.seconds = 0.0
        # A Ctrl-C is for the study: it ends its runs itself.
        variables |= {"HOME": self.folder, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.errors, env=variables,
                                        start_new_session=True)

    def ended(self, options=os.WNOHANG):
        """Whether the process has ended. Processor seconds do not depend on what else the machine does."""
        if self.process.returncode is None:
            pid, status, usage = os.wait4(self.process.pid, options)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.seconds = usage.ru_utime + usage.ru_stime
        return self.process.returncode is not None

    def end(self):
        if not self.ended():
            self.process.kill()
            self.ended(options=0)
        self.errors.close()
        shutil.rmtree(self.folder)

    def record(self):
        """After the run has ended. A loss that is not finite is null."""
        name = f"{self.recipe.name}, seed {self.seed}"
        self.errors.seek(0)
        expect(self.process.returncode == 0, name, "exit code 0",
               f"{self.process.returncode}: {self.errors.read()[-600:].strip()}",
               f"Run it by hand: {' '.join(self.command)}")
        lines = pathlib.Path(self.folder, "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        expect(steps and steps[-1]["step"] == self.plan.train["steps"] and "validation_loss" in steps[-1],
               name, f"a validation loss after step {self.plan.train['steps']}", lines[-1:],
               f"Run it by hand: {' '.join(self.command)}")
        return {"recipe": self.recipe.name, "seed": self.seed, "loss": steps[-1]["validation_loss"],
                "skipped": sum(s.get("skipped", False) for s in steps), "seconds": round(self.seconds, 1),
                "plan": self.plan.hash, "settings": self.plan.settings(self.recipe),
                "build": self.program.build, "cpu": self.program.cpu}


def pending(recipes, seeds, ledger):
    """Seed by seed, so that each seed that is complete is so for all recipes."""
    return [(r, s) for s in seeds for r in recipes if ledger.find(r.name, s) is None]


def check_text(plan):
    found = text_hash(plan.text["path"])
    expect(found == plan.text["sha256"], plan.text["path"], f"the text of the plan, {plan.text['sha256']}", found,
           "Take the files of the system that the plan names.")


def run_until(program, plan, ledger, work, deadline, jobs, say):
    """Begins runs until the deadline and waits for those that have begun. Returns how many ended."""
    # A signal is looked at between two steps, so that no run and no record is lost in the middle of one.
    signals = []
    before = {s: signal.signal(s, lambda number, _: signals.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    waiting, running, done = list(work), [], 0
    try:
        while waiting or running:
            if signals:
                raise KeyboardInterrupt
            while waiting and len(running) < jobs and time.monotonic() < deadline:
                running.append(program.start(plan, *waiting.pop(0)))
            if not running:
                break
            for run in [r for r in running if r.ended()]:
                record = run.record()
                ledger.append(record)
                running.remove(run)
                run.end()
                done += 1
                say(f"seed {run.seed}  {run.recipe.name}  {record['loss']}  in {record['seconds']} s")
            time.sleep(0.05)
    finally:
        for run in running:
            run.end()
        for number, handler in before.items():
            signal.signal(number, handler)
    return done


def repeat(program, plan, ledger, say):
    """One recorded run of each backend again: the same bits, or not."""
    repeated, backends = [], set()
    for record in ledger.runs:
        recipe = plan.recipe(record["recipe"])
        if recipe.run.split(":")[0] in backends:
            continue
        backends.add(recipe.run.split(":")[0])
        run = program.start(plan, recipe, record["seed"])
        try:
            run.ended(options=0)
            found = run.record()["loss"]
        finally:
            run.end()
        say(f"seed {run.seed}  {recipe.name}  recorded {record['loss']}, now {found}")
        repeated.append({"recipe": recipe.name, "seed": record["seed"], "recorded": record["loss"], "found": found})
    return repeated
