"""No adapter refuses GPUs: an error that names CUDA, a GPU or NCCL is one of a list with reasons.

  gpu_refusals.py <root>
  gpu_refusals.py --self-test
"""
import ast
import pathlib
import re
import tempfile

import tree

# Part of a message in host_adapters -> why it is no refusal of GPUs as such.
KNOWN = {
    "expected a tensor on cpu, cuda, xpu or a device of PrivateUse1": "devices of other kinds",
    "which is built for ROCm": "GPUs of another vendor have no kernels",
    "of CUDA 13, since the kernels multiply by it": "a library of the machine is missing",
    "expected a GPU for each, as NCCL needs": "two ranks share one",
    "expected a GPU for each, found ranks": "the same in C++",
    "warm up as torch.cuda.graph describes": "a first step cannot be captured",
    "aoti_torch_get_current_cuda_stream, found none": "a torch without CUDA cannot have made the tensor",
}
NAMES_GPU = re.compile(r"(?<![a-z])(?:cuda|nccl|gpus?)(?![a-z])|rocm", re.I)
CPP_ERROR = re.compile(r"\b(?:throw Error|raise)\s*\(")


def python_errors(text):
    """(line, message) of each raise; what is computed is left out of the message."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise):
            parts = [c.value for c in ast.walk(node)
                     if isinstance(c, ast.Constant) and isinstance(c.value, str)]
            yield node.lineno, "".join(parts)


def cpp_errors(text):
    for start in CPP_ERROR.finditer(text):
        end = text.find(");", start.end())
        literals = re.findall(r'"((?:[^"\\]|\\.)*)"', text[start.end():end])
        yield text.count("\n", 0, start.start()) + 1, "".join(literals)


def check(root, known=None):
    known, used, faults = KNOWN if known is None else known, set(), []
    for path in tree.files(root):
        if path.parts[0] != "host_adapters" or path.suffix not in tree.C_SUFFIXES | {".py"}:
            continue
        errors = python_errors if path.suffix == ".py" else cpp_errors
        for line, message in errors(tree.text(root, path)):
            if not NAMES_GPU.search(message):
                continue
            found = [part for part in known if part in message]
            used.update(found)
            if not found:
                faults.append(f"{path}:{line}: expected no refusal of GPUs, found '{message[:60]}'; adapters "
                              "run on them: remove it, or add it with its reason to KNOWN of "
                              "tests/repo/gpu_refusals.py")
    faults += [f"KNOWN has '{part}', which no adapter says; remove it"
               for part in sorted(set(known) - used)]
    return faults


def self_test():
    known = {"no cuBLAS of": "it is missing", "gone": "nobody says it"}
    planted = {
        "host_adapters/python/a.py": 'raise E(f"{x}: expected the CPU, found a CUDA device")\n',
        "host_adapters/python/fine.py": 'raise E(f"no cuBLAS of "\n        "CUDA")\nx = "cuda"\n',
        "host_adapters/torch/b.cpp": 'int f() {\n  throw Error(1, "not on "\n    "a GPU yet");\n}\n',
        "host_adapters/torch/fine.cpp": '// A GPU.\nvoid g() { throw Error(1, "barracuda"); h("cuda"); }\n',
        "sdk/src/c.cpp": 'throw Error(1, "no CUDA device");\n',
    }
    with tempfile.TemporaryDirectory() as directory:
        for name, content in planted.items():
            path = pathlib.Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        faults = check(directory, known)
    expected = ["host_adapters/python/a.py:1:", "host_adapters/torch/b.cpp:2:", "KNOWN has 'gone'"]
    wrong = [f"expected {e}, found {f}" for e, f in zip(expected, faults + [""] * 3) if not f.startswith(e)]
    wrong += faults[len(expected):]
    return tree.report(wrong, f"{len(planted)} planted files")


if __name__ == "__main__":
    tree.main(__doc__, check, self_test, "refusals of GPUs in host_adapters")
