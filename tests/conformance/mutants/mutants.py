"""Is `octavo plugin verify` any good? Mistakes of an author, planted one by one in te, and the check that finds each.

  mutants.py <build folder> [--sample N] [--only NAME...] [--jobs N] [--json FILE] [--csv FILE]
  mutants.py --applies
  mutants.py --list

The mistakes are in *.toml of this folder. Each changes copies of sources in a scratch folder: of te, or of the
C++ headers that te is made of. te is built from them and verified, first by the check that is known to find the
mistake, then by all others. --applies only looks that each text to replace is found exactly once.
A mistake that needs instructions which this CPU lacks ("needs": flags of /proc/cpuinfo) is named and not counted.
Exit code 0: all but those with an explanation are caught, and of a full run at least 57 of each 60.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import tomllib
except ImportError:
    print("skipped: expected Python 3.11 or newer, which reads TOML, found", sys.version.split()[0])
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TE, HEADERS = "plugins/te", "sdk/include"
FIELDS = {"name", "class", "file", "find", "put", "also", "options", "check", "explained", "needs"}
DEADLINE = 40  # seconds a check may take; a mutant that hangs is caught by it


def load():
    """All mistakes in the order of the files, each with its edits and options."""
    mutants = []
    for path in sorted(HERE.glob("*.toml")):
        for m in tomllib.loads(path.read_text())["mutant"]:
            wrong = set(m) - FIELDS or ({"name", "class", "file", "find", "put"} - set(m))
            if wrong or ("check" in m) == ("explained" in m):
                sys.exit(f"{path.name}: {m.get('name')}: expected name, class, file, find, put and one of check and "
                         f"explained, found {sorted(m)}")
            m["edits"] = [{"file": m["file"], "find": m["find"], "put": m["put"]}, *m.get("also", [])]
            m["options"] = sorted(m.get("options", []))
            mutants.append(m)
    names = [m["name"] for m in mutants]
    if len(set(names)) != len(names):
        sys.exit(f"named twice: {sorted({n for n in names if names.count(n) > 1})}")
    return mutants


def mutated(m):
    """File -> its text with the mistake; a text that is not there exactly once is an error of the list."""
    texts = {}
    for edit in m["edits"]:
        text = texts.get(edit["file"]) or (ROOT / edit["file"]).read_text()
        if (count := text.count(edit["find"])) != 1:
            raise ValueError(f"{m['name']}: expected this text exactly once in {edit['file']}, found it {count} "
                             f"times; adapt the list to the source:\n{edit['find']}")
        texts[edit["file"]] = text.replace(edit["find"], edit["put"])
    return texts


def lacking(m):
    """The flags of /proc/cpuinfo that the mistake needs and this CPU lacks."""
    line = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return sorted(set(m.get("needs", [])) - set(line[1].split() if line else []))


class Builder:
    """te from sources of a folder, with the compiler and the manifest of a build."""

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (self.build / "CMakeCache.txt").read_text(), re.M))
        self.launcher = shlex.split(cache.get("CMAKE_CXX_COMPILER_LAUNCHER", "").replace(";", " "))
        self.compiler = cache["CMAKE_CXX_COMPILER"]
        self.octavo = self.build / "bin" / "octavo"
        if not self.octavo.exists():
            sys.exit(f"expected the program {self.octavo}, found none; build octavo_cli and octavo_plugin_te")
        self.manifest = self.build / "lib/octavo/plugins/te.octavo-plugin.toml"
        self.version = tomllib.loads(self.manifest.read_text())["plugin"]["version"]

    def make(self, texts, folder):
        """The library, or ValueError with what the compiler says. te is one translation unit here."""
        shutil.copytree(ROOT / TE, folder / "te")
        for name, text in texts.items():
            of_te = name.startswith(TE + "/")
            path = folder / "te" / name[len(TE) + 1:] if of_te else folder / "include" / name[len(HEADERS) + 1:]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        unit = folder / "te" / "all.cc"
        unit.write_text("".join(f'#include "{p.name}"\n' for p in sorted((ROOT / TE).glob("*.cpp"))))
        library, unit_object = folder / "te.so", folder / "te.o"
        flags = ["-std=c++17", "-O1", "-w", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden",
                 '-DOCTAVO_PLUGIN_ID="te"', f'-DOCTAVO_PLUGIN_VERSION="{self.version}"', "-I", str(folder / "include"),
                 "-I", str(ROOT / HEADERS)]
        link = ["-shared", "-Wl,-z,defs", f"-Wl,--version-script={ROOT / 'sdk/cmake/plugin_exports.map'}"]
        for command in ([*self.launcher, self.compiler, *flags, "-c", str(unit), "-o", str(unit_object)],
                        [self.compiler, str(unit_object), *link, "-o", str(library)]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                raise ValueError(f"does not compile:\n{done.stderr[:3000]}")
        shutil.copy(self.manifest, folder)
        return library

    def verify(self, library, options, checks):
        """The lines of failed checks, and everything that was said."""
        command = [str(self.octavo), "plugin", "verify", str(library), "--timeout", str(DEADLINE)]
        command += [w for o in options for w in ("--set", f"fp8.te.{o}")] + [w for c in checks for w in ("--only", c)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace",
                              timeout=DEADLINE * (len(checks) or 60))
        failed = re.findall(r"^FAIL  ([a-z0-9.]+)[^:]*: (.*)$", done.stdout, re.M)
        if done.returncode not in (0, 1) or (done.returncode == 1) != bool(failed):
            raise ValueError(f"octavo plugin verify ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return failed, done.stdout


def judge(builder, m, everything):
    """One mutant: by which check it was caught, and what that check said."""
    start = time.monotonic()
    answer = {"name": m["name"], "class": m["class"], "file": m["file"], "options": m["options"],
              "expected": m.get("check"), "explained": m.get("explained"), "caught_by": [], "says": ""}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        try:
            library = builder.make(mutated(m), folder)
            rounds = [[m["check"]]] if m.get("check") else []
            for checks in rounds + ([[]] if everything or not rounds else []):
                failed, _ = builder.verify(library, m["options"], checks)
                answer["caught_by"] = [name for name, _ in failed]
                answer["says"] = failed[0][1][:300] if failed else ""
                if failed:
                    break
        except (ValueError, subprocess.TimeoutExpired) as error:
            answer["error"] = str(error)
    answer["seconds"] = round(time.monotonic() - start, 1)
    return answer


def sound(builder, mutants, everything):
    """What is wrong with te as it is: its failures would count as finds of a mistake."""
    wrong = []
    wanted = {}
    for m in mutants:
        wanted.setdefault(tuple(m["options"]), set()).add(m.get("check"))
    with tempfile.TemporaryDirectory() as scratch:
        library = builder.make({}, pathlib.Path(scratch))
        for options, checks in sorted(wanted.items()):
            only = [] if everything or None in checks else sorted(checks)
            failed, _ = builder.verify(library, options, only)
            wrong += [f"te without a mistake fails {name} with {list(options)}: {says}" for name, says in failed]
    return wrong


def verdict_of(answer):
    if "error" in answer:
        return "error"
    if answer["caught_by"]:
        return "caught, though explained" if answer["explained"] else "caught"
    return "explained" if answer["explained"] else "MISSED"


def print_table(answers):
    for a in answers:
        found = ", ".join(a["caught_by"][:3]) or "-"
        print(f"{verdict_of(a):9} {a['class']:14} {a['name']:44} {found}")
        for line in (a.get("error") or "").splitlines()[:20]:
            print("    " + line)


def write_csv(path, answers):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["Mistake in te", "Class", "Options", "Found by"])
        for a in answers:
            found = f"`{a['caught_by'][0]}`" if a["caught_by"] else "nothing: " + (a["explained"] or "").strip()
            writer.writerow([a["name"].replace("_", " "), a["class"], ", ".join(a["options"]), found])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/cpu")
    parser.add_argument("--applies", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--sample", type=int, metavar="N", help="every so many-th mistake, N in all, from the one of OCTAVO_SEED on")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--csv", type=pathlib.Path, help="write the table, docs/results/mutants.csv")
    arguments = parser.parse_args()
    mutants = load()
    if unknown := set(arguments.only) - {m["name"] for m in mutants}:
        sys.exit(f"there is no mistake {sorted(unknown)}; --list shows all")
    try:
        for m in mutants:
            mutated(m)
    except ValueError as error:
        sys.exit(str(error))
    if arguments.applies or arguments.list:
        for m in mutants if arguments.list else []:
            print(f"{m['class']:14} {m['name']:44} {m.get('check') or 'explained: ' + m['explained']}")
        print(f"{len(mutants)} mistakes apply")
        return 0
    chosen = [m for m in mutants if m["name"] in arguments.only] if arguments.only else mutants
    idle = [m for m in chosen if lacking(m)]
    chosen = [m for m in chosen if not lacking(m)]
    partial = bool(arguments.only or arguments.sample)
    if arguments.sample:
        known = [m for m in chosen if m.get("check")]
        seed = int(os.environ.get("OCTAVO_SEED", "0"))
        chosen = [known[(seed + i * len(known) // arguments.sample) % len(known)] for i in range(arguments.sample)]
    builder = Builder(arguments.build)
    wrong = sound(builder, chosen, not partial)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        answers = list(pool.map(lambda m: judge(builder, m, not arguments.sample), chosen))
    print_table(answers)
    if arguments.csv:
        write_csv(arguments.csv, answers)
    verdicts = [verdict_of(a) for a in answers]
    caught = verdicts.count("caught")
    wrong += [f"{a['name']}: {v}" for a, v in zip(answers, verdicts) if v not in ("caught", "explained")]
    if not partial and caught * 60 < 57 * len(answers):
        wrong.append(f"expected 57 of 60 caught, found {caught} of {len(answers)}")
    for m in idle:
        print(f"skipped: {m['name']}: its code runs on a CPU with {', '.join(lacking(m))}, which this one lacks")
    print("\n".join([*wrong,
                     f"{len(answers)} mistakes, {caught} caught, {verdicts.count('explained')} explained, "
                     f"{len(idle)} skipped"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(answers, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
