"""Seeded misconfigurations: the first reason is right, and its remedy works when it is pasted.

  run.py <octavo> --report PROGRAM --zoo DIR --fake-gpu DIR --schema FILE [--only NAME] [-v]

Each case is explained as JSON, which must keep to the schema, and as text and as a tree, which must
hold the same remedy. The remedy is taken from the output and applied as it stands, and the next
explanation must name a backend that runs, or the next reason that the table states.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import cases_config
import cases_machine
import cases_plugins
import remedies
import schema
from case import Case, Place

EVERY = "layers.skip = []\n"
RULES = EVERY + """
# [rules]
[fp8]
backend = "te"
te.recipe = "current"

[[layers.rule]]
match = "lm_*"
place = "host"

[[layers.rule]]
match = ["body.*", "*.fc"]
fp8.te.recipe = "block"
# [/rules]
"""

# What a run says about its layers: configuration -> [(placed, reason)] of body.fc and lm_head.
RUNS = {
    "": [("fp8", "none"), ("host", "policy")],
    EVERY: [("fp8", "none"), ("fp8", "none")],
    'layers.skip = ["*head*"]\n': [("fp8", "none"), ("host", "policy")],
    EVERY + 'layers.min_gain = "torchao"\n': [("fp8", "none"), ("host", "too-small")],
    EVERY + 'mixed_precision = "bf16"\n': [("host", "policy"), ("host", "policy")],
    EVERY + 'fp8.require.native = true\nfp8.fallback = ["bf16"]\n': [("host", "policy"), ("host", "policy")],
    EVERY + 'fp8.backend = "msamp"\nfp8.require.deterministic = true\n': [("fp8", "none"), ("fp8", "none")],
    RULES: [("fp8", "none"), ("host", "policy")],
    EVERY + '[[layers.rule]]\nmatch = "*head*"\nfp8.te.telemetry = true\n': [("fp8", "none"), ("host", "option")],
    EVERY + '[fp8.te]\nmargin = 1\n[[layers.rule]]\nmatch = "*head*"\nfp8.te.recipe = "block"\n': [
        ("fp8", "none"), ("host", "option")],
}

CASES = cases_config.CASES + cases_plugins.CASES + cases_machine.CASES
LEAST = 60


class Situation:
    """What a user has before and after a remedy: files, environment, overrides."""

    def __init__(self, case, place, options):
        self.directory = str(place.directory)
        self.octavo = os.path.abspath(options.octavo)
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("OCTAVO_", "XDG_")) and k not in {"HOME", "NO_COLOR"}}
        self.environment["XDG_CACHE_HOME"] = self.directory + "/cache"
        self.environment["XDG_DATA_HOME"] = self.directory + "/data"
        self.environment["OCTAVO_PLUGIN_PATH"] = str(place.plugins)
        self.environment["PATH"] = os.path.dirname(self.octavo) + os.pathsep + os.environ["PATH"]
        self.environment.update(case.environment)
        if case.gpu is not None:
            self.environment["OCTAVO_FAKE_GPU"] = case.gpu
            where = options.fake_gpu if case.gpu else str(self.no_driver(place))
            inherited = self.environment.get("LD_LIBRARY_PATH")
            self.environment["LD_LIBRARY_PATH"] = where + (":" + inherited if inherited else "")
        self.overrides = dict(case.overrides)
        self.config = f"{self.directory}/{case.config_name}" if case.config_name else None
        if case.config is not None:
            place.write(case.config_name, case.config)
        if case.setup:
            case.setup(place)

    @staticmethod
    def no_driver(place):
        """A directory whose libcuda.so.1 cannot be loaded, whatever the machine has."""
        return place.write("driverless/libcuda.so.1", "").parent

    def explain(self, *formats):
        return self.ask("check", *formats)

    def ask(self, what, *more, **process):
        command = [self.octavo, what, *more]
        if self.config:
            command.append(self.config)
        for key, value in self.overrides.items():
            command += ["--set", f"{key}={value}"]
        return subprocess.run(command, capture_output=True, env=self.environment, timeout=120,
                              cwd=self.directory, check=False, **process)

    def json(self, validator):
        done = self.explain("--json")
        if done.returncode not in (0, 1, 2):
            raise AssertionError(f"exit code {done.returncode}: {done.stderr.decode()}")
        report = json.loads(done.stdout)
        faults = validator.faults(report)
        assert not faults, f"not as the schema says: {faults}"
        assert (report["runs"] is None) == (done.returncode != 0), "exit code and report disagree"
        return report


def every_refusal_has_remedies(report):
    for candidate in report["candidates"]:
        for verdict in candidate["verdicts"]:
            if verdict["decision"] == "decline":
                assert verdict.get("apply") or verdict["remedy"].startswith("choose "), f"nothing to apply in {verdict}"


def check(case, place, options, validator):
    """Returns the steps taken, one line each."""
    situation = Situation(case, place, options)
    report = situation.json(validator)
    first = report.get("first_refusal")
    assert first, f"nothing was refused: {report['runs']} runs"
    found = (first["reason"], first["stage"])
    assert found == (case.reason, case.stage), (
        f"expected {(case.reason, case.stage)}, found {found}: {first['text']}")
    assert report["runs"] is None, f"{report['runs']} runs all the same"
    assert first["page"] == f"docs/reasons.md#{case.reason}", first["page"]
    words = first["remedy"] if case.asks else first["apply"]
    for format_ in ([],):
        text = situation.explain(*format_).stdout.decode(errors="replace")
        assert words in text, f"explain {format_} lacks: {words}"
    assert case.keeps in words, f"expected a remedy with {case.keeps}, found: {words}"
    if case.asks:
        assert words.startswith("choose ") and f" for {case.asks}, " in words, words
        assert not first.get("apply"), f"expected a question, found also an edit: {first['apply']}"
        return [f"{first['reason']}: {words}"]
    steps = []
    for expected in (*case.then, None):
        assert first.get("remedy"), f"no remedy for: {first['text']}"
        assert first.get("apply"), f"no way to apply: {first['remedy']}"
        every_refusal_has_remedies(report)
        steps.append(f"{first['reason']}: {first['apply']}")
        remedies.apply(first["apply"], situation)
        report = situation.json(validator)
        if report["runs"] is not None:
            break
        first = report["first_refusal"]
        assert expected is not None, f"{first['text']} after {steps}"
        assert first["reason"] == expected, f"expected {expected} after {steps}, found {first}"
    assert report["runs"] == case.runs, (
        f"expected {case.runs} to run, found {report['runs']} after {steps}")
    return steps


def check_run(config, wanted, options, validator):
    """The report of a run keeps to the schema, and its remedies bring every layer to FP8."""
    with tempfile.TemporaryDirectory(prefix="octavo-run-") as directory:
        situation = Situation(Case("run", "policy", config=config), Place(directory, options.zoo), options)
        for _ in range(1 + len(wanted)):
            done = subprocess.run([os.path.abspath(options.report), situation.config], check=True,
                                  capture_output=True, env=situation.environment)
            report = json.loads(done.stdout)
            faults = validator.faults(report)
            assert not faults, f"not as the schema says: {faults}"
            placed = [(l["placed"], l["verdict"]["reason"]) for l in report["layers"]]
            assert placed == wanted, f"expected {wanted}, found {placed}"
            host = [l["verdict"] for l in report["layers"] if l["placed"] == "host"]
            if not host:
                return
            remedies.apply(host[0]["apply"], situation)
            wanted = [("fp8", "none")] * len(wanted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("octavo")
    for name in ("--report", "--zoo", "--fake-gpu", "--schema"):
        parser.add_argument(name, required=True)
    parser.add_argument("--only")
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    validator = schema.Validator.of_file(options.schema)
    cases = [c for c in CASES if options.only in (None, c.name)]
    names = [c.name for c in CASES]
    failures = [f"{n}: two cases have this name" for n in set(names) if names.count(n) > 1]
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="octavo-case-") as directory:
            try:
                steps = check(case, Place(directory, options.zoo), options, validator)
            except Exception as fault:  # one broken case must not hide the others
                failures.append(f"{case.name}: {type(fault).__name__}: {fault}")
            else:
                if options.v:
                    print(f"{case.name}: " + "; then ".join(steps).replace(directory, "DIR"))
    for config, wanted in RUNS.items() if options.only is None else ():
        try:
            check_run(config, wanted, options, validator)
        except Exception as fault:
            failures.append(f"run with {config!r}: {type(fault).__name__}: {fault}")
    for failure in failures:
        print("FAILED", failure)
    count = len(cases) + (len(RUNS) if options.only is None else 0)
    print(f"{count - len(failures)} of {count}: {len(cases)} misconfigurations, the rest runs")
    if not cases or (options.only is None and len(cases) < LEAST):
        sys.exit(f"expected at least {LEAST} cases")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
