"""The machine code of the hot kernels against the table of this folder.

  python3 static_check.py             checks every kernel on every architecture
  python3 static_check.py --update    writes what was measured into measured.csv and docs/results/cuda_model.csv
  python3 static_check.py --model     what the code predicts for the goals of docs/results/cuda.md

kernels.csv is written by hand. in, out: bytes of an element as it is read and written, from which the
elements of a turn follow; given: the elements of a turn, where they do not. way: longest or, for kernels
whose dtypes are known only when they run, shortest; there bytes are those of fp32. read, written: bytes
of an element that all phases access. load, store: the least width of accesses. most: instructions for an
element. Rules of a kernel that some architecture does not keep yet
are in not_yet; when all keep it, the check fails until the rule is taken off that list.
measured.csv is what nvcc made of the tree; more than 2 % above it fails, too.

Needs nvcc, and nvdisasm of PATH, of the toolkit, or of the package nvidia-cuda-nvdisasm in a folder of
--packages. Exit code 77: one of them is missing, with the reason in print.
"""
import argparse
import csv
import dataclasses
import itertools
import os
import pathlib
import re
import sys
import tempfile

import model
import sass
import toolchain

HERE = pathlib.Path(__file__).resolve().parent
MEASURED = HERE / "measured.csv"
MODEL = toolchain.ROOT / "docs" / "results" / "cuda_model.csv"
FIELDS = ("kernel", "arch", "registers", "stack", "local", "div64", "load", "store", "elements",
          "instr", "bytes")
ROOM = 1.02  # patches of one release of nvcc order code differently
DECLARED = re.compile(r"__global__[^;{(]*?(?:__launch_bounds__\([^)]*\)\s*)?(\w+_kernel)\s*\(", re.S)


def read_kernels(path=HERE / "kernels.csv"):
    with open(path, newline="", encoding="utf-8") as file:
        rows = {row["kernel"]: row for row in csv.DictReader(file)}
    return ({k: r for k, r in rows.items() if not r["what"].startswith("cold: ")},
            [k for k, r in rows.items() if r["what"].startswith("cold: ")])


def read_measured():
    if not MEASURED.exists():
        return {}, ""
    with open(MEASURED, newline="", encoding="utf-8") as file:
        first = file.readline()
        return {(r["kernel"], r["arch"]): r for r in csv.DictReader(file)}, first.split()[-1]


def chosen_phases(phases, row):
    """The phases that handle every element, with the elements of a turn of each.

    Loops over padding, and over what is no element, are left out: together the chosen ones read and
    write what kernels.csv says. Where none do, all are taken, and the rule bytes is broken.
    """
    if row["given"]:
        most = max(phases, key=lambda p: p.instructions, default=None)
        return [] if most is None else [(most, int(row["given"]))]
    counted = [(p, p.load / int(row["in"]) if p.load else p.store / int(row["out"])) for p in phases]
    wanted = float(row["read"]), float(row["written"])
    sets = [some for size in range(1, len(counted) + 1) for some in itertools.combinations(counted, size)
            if (sum(p.load / e for p, e in some), sum(p.store / e for p, e in some)) == wanted]
    return max(sets, key=lambda some: sum(p.instructions / e for p, e in some), default=counted)


def measure(function, ptxas, row):
    """One line of measured.csv, as numbers."""
    phases = function.phases()
    if row["way"] == "shortest":
        phases = [dataclasses.replace(p, instructions=p.shortest) for p in phases]
    chosen = chosen_phases(phases, row)
    loads = [p.load_width for p, _ in chosen if p.load]
    stores = [p.store_width for p, _ in chosen if p.store]
    return {"registers": ptxas["registers"], "stack": ptxas["stack"],
            "local": function.local_accesses(),
            "div64": int(any(p.divides_64 for p, _ in chosen)),
            "load": min(loads, default=0), "store": min(stores, default=0),
            "elements": max((round(e) for _, e in chosen), default=0),
            "instr": round(sum(p.instructions / e for p, e in chosen), 1),
            "bytes": round(sum((p.load + p.store) / e for p, e in chosen), 2)}


def broken_rules(found, row):
    """The names of the rules that one kernel on one architecture does not keep."""
    needs_bytes = not row["given"]
    rules = {
        "stack": found["stack"] == 0,
        "local": found["local"] == 0,
        "div64": found["div64"] == 0,
        "load": found["load"] >= int(row["load"] or 0),
        "store": found["store"] >= int(row["store"] or 0) or found["store"] == 0,
        "instr": not row["most"] or found["instr"] <= float(row["most"]),
        "bytes": not needs_bytes or found["bytes"] == float(row["read"]) + float(row["written"]),
    }
    if found["instr"] == 0:
        return ["found"]
    return [name for name, kept in rules.items() if not kept]


def compare(kernels, found, measured):
    """What is wrong, as texts. found: {(kernel, arch): measure}; measured: of measured.csv, or empty."""
    wrong = []
    for kernel, row in kernels.items():
        if not any(name == kernel for name, _ in found):
            continue
        listed, broken = row["not_yet"].split(), set()
        for (name, arch), values in found.items():
            if name != kernel:
                continue
            rules = broken_rules(values, row)
            broken.update(rules)
            wrong += [f"{kernel} on sm_{arch} breaks the rule {rule}: {values}; kernels.csv wants {row}"
                      for rule in rules if rule not in listed]
            before = measured.get((kernel, arch))
            if measured and before is None:
                wrong.append(f"{kernel} on sm_{arch} has no line in measured.csv: run --update")
            for field in ("stack", "local", "instr", "bytes") if before else ():
                if values[field] > float(before[field]) * ROOM:
                    wrong.append(f"{kernel} on sm_{arch}: expected at most {before[field]} of {field}, "
                                 f"found {values[field]}; if that is wanted, run --update")
        wrong += [f"{kernel} keeps the rule {rule} everywhere: take it off not_yet in kernels.csv"
                  for rule in listed if rule not in broken]
    return wrong


def undeclared(kernels, cold, folders=(toolchain.ROOT / "kernels" / "cuda", toolchain.ROOT / "host_adapters" / "ranks")):
    """Kernels of the tree without a row, and rows without a kernel."""
    declared = set()
    for path in (path for folder in folders for path in sorted(folder.rglob("*.cu*"))):
        declared.update(DECLARED.findall(path.read_text(encoding="utf-8")))
    rows = {*kernels, *cold}
    return ([f"{k} is in device code and not in kernels.csv: give it a row" for k in declared - rows] +
            [f"{k} is in kernels.csv and not in device code" for k in rows - declared])


def named(symbol):
    """The kernel of a mangled symbol."""
    match = re.search(r"\d([a-z][a-z_]*_kernel)", symbol)
    return match[1] if match else symbol


def measure_all(nvcc, nvdisasm, kernels, archs):
    found, wrong = {}, []
    with tempfile.TemporaryDirectory() as folder:
        ptxas = toolchain.compile_all(nvcc, HERE / "hot.cu", archs, folder)
        for arch in archs:
            if nvdisasm is None:
                wrong += [f"{named(symbol)} on sm_{arch} breaks the rule stack: {values}"
                          for symbol, values in ptxas[arch].items() if named(symbol) in kernels and
                          values["stack"] and "stack" not in kernels[named(symbol)]["not_yet"].split()]
                continue
            text = toolchain.disassemble(nvdisasm, pathlib.Path(folder) / f"{arch}.cubin")
            for function in sass.functions(text):
                key = (named(function.name), arch)
                if key[0] not in kernels:
                    continue
                if key in found:
                    wrong.append(f"{key[0]} is in hot.cu with several template arguments: keep one")
                found[key] = measure(function, ptxas[arch][function.name], kernels[key[0]])
            wrong += [f"{kernel} is not in what hot.cu compiles to for sm_{arch}"
                      for kernel in kernels if (kernel, arch) not in found]
    return found, wrong


def write_measured(found, release):
    with open(MEASURED, "w", newline="", encoding="utf-8") as file:
        file.write(f"# written by static_check.py --update with nvcc {release}\n")
        out = csv.DictWriter(file, FIELDS, lineterminator="\n")
        out.writeheader()
        for (kernel, arch), values in sorted(found.items(), key=lambda item: (item[0][0], int(item[0][1]))):
            out.writerow({"kernel": kernel, "arch": arch, **values})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--packages", action="append", default=[], help="a folder of Python packages")
    arguments = parser.parse_args()
    kernels, cold = read_kernels()
    if arguments.model:
        print(model.table(read_measured()[0]), end="")
        return 0
    wrong = undeclared(kernels, cold)
    nvcc = toolchain.find_nvcc()
    if nvcc is None:
        print("\n".join(wrong) or "skipped: no nvcc of CUDA Toolkit 13.0 on PATH or in /usr/local/cuda/bin")
        return 1 if wrong else 77
    folders = [*arguments.packages, os.environ.get("OCTAVO_TORCH_ENV"), toolchain.ROOT / ".cache" / "torch"]
    nvdisasm = toolchain.find_nvdisasm(nvcc, folders)
    found, missing = measure_all(nvcc, nvdisasm, kernels, toolchain.architectures())
    wrong += missing
    if nvdisasm is None:
        print("\n".join(wrong))
        print("checked: stack. Not checked: everything else, since there is no nvdisasm on PATH, next to "
              f"{nvcc} or in a package: bash tests/environment/install.sh disassembler")
        return 1 if wrong else 77
    measured, by = read_measured()
    release = toolchain.release(nvcc)
    if arguments.update:
        write_measured(found, release)
        MODEL.write_text(model.table(read_measured()[0]), encoding="utf-8")
    elif by != release:
        print(f"measured.csv is of nvcc {by}, this is {release}: only rules are checked, not what was measured")
        measured = {}
    wrong += compare(kernels, found, {} if arguments.update else measured)
    print("\n".join(wrong) or f"{len(found)} kernels keep their rules")
    listed = {k: r["not_yet"] for k, r in kernels.items() if r["not_yet"]}
    print("not yet: " + ("; ".join(f"{k}: {rules}" for k, rules in listed.items()) or "nothing"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
