"""samples/python_host on a backend of this tree: it learns, and bad input ends with its reason.

  python_host_test.py <liboctavo> <include dir> <train.py> <backend>

Exit code 77: this Python has no cffi.
"""
import re
import subprocess
import sys


def run(program, library, include, *settings):
    result = subprocess.run([sys.executable, "-B", program, library, include, *settings], capture_output=True, text=True)
    losses = [float(loss) for loss in re.findall(r"^step +\d+  loss (\S+)$", result.stdout, re.M)]
    return result.returncode, losses, result.stdout + result.stderr


def main(library, include, program, backend):
    try:
        import cffi  # noqa: F401
    except ImportError:
        print("skipped: python3-cffi is not installed in", sys.executable)
        return 77
    code, losses, output = run(program, library, include, f"fp8.backend={backend}")
    print(output)
    # The variance of a target is 1/3, so the first loss is near 1/2; a model that learns nothing stays there.
    assert code == 0 and len(losses) == 5, code
    assert abs(losses[0] - 0.5) < 0.1 and losses[-1] < 0.1 * losses[0], losses
    code, losses, output = run(program, library, include, f"fp8.backend={backend}", f"fp8.{backend}.recipee=delayed")
    assert code != 0 and not losses and "recipee" in output, output
    code, losses, output = run(program, library, include, f"fp8.backend={backend}", "layers.min_gain=on")
    assert code != 0 and not losses and "min_gain" in output, output
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
