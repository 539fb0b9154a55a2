"""docs/config.md and the programs agree on every key and default.

  config_keys.py <octavo> <config.md> <backend>...
"""
import json
import re
import subprocess
import sys


def documented(page):
    """key -> default, from the rows `| `key` | type | `default` | ...`."""
    rows = re.findall(r"^\| `([a-z0-9_.]+)` \| .*? \| (\S.*?) \| [^|]+ \|$", page, re.M)
    return {key: default.strip("`") for key, default in rows}


def actual(octavo, backends):
    def ask(*arguments):
        done = subprocess.run([octavo, *arguments, "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"octavo {' '.join(arguments)} failed: {done.stderr}")
        return json.loads(done.stdout)

    keys = {k: v["value"] for k, v in ask("config", "check")["settings"].items()}
    for backend in backends:
        options = ask("explain", "--set", f"fp8.backend={backend}")["options"]
        keys.update({f"fp8.{backend}.{k}": v["value"] for k, v in options.items()})
    return {k: json.dumps(v) for k, v in keys.items()}


def main():
    octavo, path, *backends = sys.argv[1:]
    with open(path, encoding="utf-8") as file:
        page = documented(file.read())
    code = actual(octavo, backends)
    faults = [f"{k}: in {path}, but no program knows it" for k in page.keys() - code.keys()]
    faults += [f"{k}: expected a row in {path}, found none" for k in code.keys() - page.keys()]
    faults += [f"{k}: expected default {code[k]} in {path}, found {page[k]}"
               for k in page.keys() & code.keys() if page[k] != code[k]]
    print(f"{len(code)} keys")
    print("\n".join(sorted(faults)))
    sys.exit(1 if faults or not code else 0)


main()
