"""Runs the steps of the first hour on a GPU and writes a report page; tests/gpu/run.sh starts it.

  python3 runner.py [--root TREE] [--out FOLDER] [--only STEP]... [--limit SECONDS] [--jobs N] [--plan]

--only: these steps, and the page then has what earlier calls left in FOLDER, too. --jobs: so many steps at
once, after those that measure time, each of which runs alone. --plan: says what would run, and why the rest
would not. Exit codes: 0, nothing failed; 1, a step failed; 2, wrong usage; 77, there is no GPU. What was not
done is on the page and in print, with its reason, and is no failure.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import shlex
import signal
import subprocess
import sys
import time

import page
import steps as plan

HERE = pathlib.Path(__file__).resolve().parent


def missing(step, place):
    """Why a step cannot run here, or an empty text."""
    return next(filter(None, (need(place) for need in step.needs)), "")


def run(step, place, out, limit):
    """The result of one step; its output is in <out>/<step>.log."""
    log = out / f"{step.name}.log"
    start = time.monotonic()
    with open(log, "w", encoding="utf-8") as file:
        file.write(f"$ {shlex.join(step.command)}\n")
        file.flush()
        try:
            process = subprocess.Popen(step.command, cwd=out, stdout=file, stderr=subprocess.STDOUT,
                                       start_new_session=True,
                                       env={**os.environ, **plan.environment(place)})
        except OSError as error:
            return {"verdict": "failed", "reason": str(error), "seconds": 0}
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return {"verdict": "failed", "reason": f"not finished after {limit} s", "seconds": limit}
    kind, reason = step.codes.get(code, ("failed", f"exit code {code}")) if code else ("passed", "")
    return {"verdict": kind, "reason": reason, "seconds": time.monotonic() - start}


def results(chosen, place, out, arguments):
    """Pairs of a step and its result as they come: steps that measure time alone, then the others."""
    def done(step):
        why = missing(step, place)
        return step, {"verdict": "not done", "reason": why, "seconds": 0} if why else \
            run(step, place, out, arguments.limit)
    for step in chosen:
        if step.alone:
            yield done(step)
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        for future in concurrent.futures.as_completed(
                [pool.submit(done, step) for step in chosen if not step.alone]):
            yield future.result()


def machine(place):
    gpus = plan.gpus()
    _, torch = place.ask("import torch; print(torch.__version__, 'CUDA', torch.version.cuda)")
    version = place.root / "VERSION_OF_PACK"
    commit = version.read_text(encoding="utf-8").strip() if version.exists() else subprocess.run(
        ["git", "-C", str(place.root), "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return {"GPUs": "; ".join(gpus) or "none", "system": platform.platform(), "torch": torch,
            "Octavo": commit or "unknown", "cuBLASLt": str(plan.cublas_folder(place) or "as the loader finds it")}


def show_plan(chosen, place):
    total = 0
    for step in chosen:
        why = missing(step, place)
        total += 0 if why else step.minutes
        print(f"{step.name:22} {step.minutes:3} min  {'not here: ' + why if why else step.what}")
    print(f"about {total} minutes")


def keep(out, step, result):
    result = {"name": step.name, "what": step.what, **result}
    (out / f"{step.name}.json").write_text(json.dumps(result), encoding="utf-8")
    return result


def kept(out, known):
    """Results of this call and of earlier ones, in the order of the steps."""
    return [json.loads((out / f"{s.name}.json").read_text(encoding="utf-8"))
            for s in known if (out / f"{s.name}.json").exists()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=HERE.parents[1])
    parser.add_argument("--out", default=os.environ.get("OUT") or "out/gpu")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--limit", type=float, default=3600)
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--minutes", action="store_true", help="says how long all steps take together")
    arguments = parser.parse_args()
    place = plan.Place(arguments.root)
    out = pathlib.Path(arguments.out).resolve()
    known = plan.steps(place, out)
    names = [s.name for s in known]
    for name in arguments.only:
        if name not in names:
            parser.error(f"there is no step {name}; there are {', '.join(names)}")
    chosen = [s for s in known if not arguments.only or s.name in arguments.only]
    if arguments.minutes:
        print(f"{len(known)} steps, about {sum(s.minutes for s in known)} minutes")
        return 0
    if arguments.plan:
        show_plan(chosen, place)
        return 0
    out.mkdir(parents=True, exist_ok=True)
    print(f"{len(chosen)} steps, about {sum(s.minutes for s in chosen)} minutes; "
          f"logs and report.html in {out}", flush=True)
    told = machine(place)
    failed = False
    for step, result in results(chosen, place, out, arguments):
        keep(out, step, result)
        failed = failed or result["verdict"] == "failed"
        print(f"{result['verdict']:9} {result['seconds']:6.0f} s  {step.name}"
              f"{': ' + result['reason'] if result['reason'] else ''}", flush=True)
        page.write(out, told, kept(out, known))  # after each step: a run may be cut off
    print(f"report: {out / 'report.html'}")
    if not plan.gpus():
        print("skipped: there is no GPU here")
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
