"""Is each mechanism that closes a kind of fault held by a test? mechanisms.toml has them, and what undoes each.

  mechanisms.py --python <python with torch> --torch-root <folder> [--folder build/mechanisms] [--only TEXT]

Works in a copy of the tree (scratch.py), which is built once. First every test must pass there, then each must fail with
its mechanism undone. Exit code 1: one did not.
"""
import argparse
import os
import pathlib
import subprocess
import sys

try:
    import tomllib
except ImportError:
    print("skipped: expected Python 3.11 or newer, which reads TOML, found", sys.version.split()[0])
    sys.exit(77)

from groups import ROOT
from scratch import Scratch, run

LIMIT = 400  # seconds of one test; a deadlock is a failure, too
ALWAYS = ["octavo", "octavo_torch_ops", "octavo_plugin_te", "octavo_plugin_msamp", "octavo_plugin_reference", "octavo_cli",
          "octavo_probe", "octavo_zoo", "octavo_throwing_plugin"]


def undone(text, mechanism):
    for before, after in mechanism["change"]:
        if text.count(before) != 1:
            sys.exit(f"error: {mechanism['file']}: expected once, found {text.count(before)} times: {before!r}; "
                     "mechanisms.toml has to follow the code")
        text = text.replace(before, after)
    return text


def test(scratch, mechanism, python):
    """(whether the test passed, what it printed)."""
    what, which = mechanism["test"]
    if what.endswith(".py"):
        command = ["env", "OMP_NUM_THREADS=1", f"OCTAVO_LIBRARY_DIR={scratch.build}/lib",
                   f"PYTHONPATH={scratch.folder}/host_adapters/python", python, "-B", "-m", "pytest", "-q", "-x", "-p",
                   "no:cacheprovider", "--device", "cpu", f"{scratch.folder}/tests/host_adapters/python/{what}", "-k", which]
    else:
        command = [scratch.build / "tests" / what, "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={which}"]
    code, said = run(command, str(scratch.build), LIMIT)
    return code == 0, said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True)
    parser.add_argument("--torch-root", required=True)
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/mechanisms")
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    with open(pathlib.Path(__file__).with_name("mechanisms.toml"), "rb") as file:
        mechanisms = [m for m in tomllib.load(file)["mechanism"] if a.only in m["name"]]
    programs = sorted({m["test"][0] for m in mechanisms if not m["test"][0].endswith(".py")})
    scratch = Scratch(a.folder, "torch", [f"-DOCTAVO_TORCH_ROOT={a.torch_root}", f"-DOCTAVO_PYTHON={a.python}"])
    scratch.refresh()
    scratch.configure()
    built, said = scratch.make(*ALWAYS, *programs)
    if not built:
        sys.exit("error: the tree does not build:\n" + said[-3000:])
    wrong = []
    for m in mechanisms:
        passed, said = test(scratch, m, a.python)
        if not passed:
            wrong.append(m["name"])
            print(f"{m['name']}: its test fails as the tree is\n{said[-1500:]}", flush=True)
    for m in mechanisms:
        with scratch.with_text(m["file"], undone((scratch.folder / m["file"]).read_text(), m)):
            built, said = scratch.make(*ALWAYS, *programs, cached=False) if not m["file"].endswith(".py") else (True, "")
            passed, output = test(scratch, m, a.python) if built else (False, said)
        if not built or passed:
            wrong.append(m["name"])
        print(f"{'not compiled' if not built else 'MISSED' if passed else 'found':12} {m['name']}  ({' '.join(m['test'])})"
              + ("\n" + output[-1500:] if not built else ""), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
