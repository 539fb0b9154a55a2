"""`octavo config schema` against every wrong configuration of cases_config.py and every right one of the tree.

  editor.py <octavo> <root>

An editor that has the schema marks what the program refuses, except where a schema cannot express the fault, which
BEYOND lists with the reason; a fault listed there that the schema does find is reported, too.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib

import cases_config
import run
import schema

BEYOND = {
    "auto without preference": "depends on another key",
    "options that contradict the recipe": "depends on another option",
    "E5M2 forward": "the backend knows the option, and refuses it with a reason",
    "two recipes": "depends on another option",
    "history without a history": "depends on another option",
    "amsgrad in low bits": "the backend knows the option, and refuses it with a reason",
    "rule that never decides": "depends on an earlier rule",
    "rule behind one for all": "depends on an earlier rule",
    "too large": "a limit of the file",
    "integer with a fraction of zero": "5.0 is an integer in JSON Schema",
}


def parsed(text):
    """The document, or None where an editor's parser finds the fault before any schema does."""
    try:
        return tomllib.loads(text.decode() if isinstance(text, bytes) else text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return None


def wrong_ones(validator):
    """What is wrong with the schema, by the cases that only have a file."""
    seen, faults = 0, []
    for case in cases_config.CASES:
        document = parsed(case.config) if case.config is not None else None
        if document is None or case.environment or case.overrides or case.setup:
            continue
        seen += 1
        found = validator.faults(document)
        if case.name in BEYOND and found:
            faults.append(f"{case.name}: listed in BEYOND, but the schema finds it: {found[0]}")
        if case.name not in BEYOND and not found:
            faults.append(f"{case.name}: expected that the schema finds this, found that it accepts\n{case.config}")
    return seen, faults


def right_ones(validator, root):
    """The same, by the configurations (not the manifests) that pages show, samples read and tests run."""
    texts = [("run.py", text) for text in run.RUNS]
    texts += [(path, path.read_text()) for path in root.glob("samples/**/octavo.toml")]
    for page in root.glob("docs/*.md"):
        blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
        texts += [(page, block) for block in blocks if re.search(r"^\s*\[?\[?(fp8|layers|mixed_precision|device)\b", block, re.M)]
    faults = []
    for path, text in texts:
        document = parsed(text)
        if document is None or document.keys() & {"kernels", "requires"}:
            continue
        if (found := validator.faults(document)):
            faults.append(f"{path}: expected that the schema accepts this, found {found[0]}\n{text}")
    return len(texts), faults


def main():
    octavo, root = sys.argv[1], pathlib.Path(sys.argv[2])
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OCTAVO_", "XDG_"))}
    done = subprocess.run([octavo, "config", "schema"], capture_output=True, text=True, check=True, env=environment)
    validator = schema.Validator(json.loads(done.stdout))
    wrong, faults = wrong_ones(validator)
    right, more = right_ones(validator, root)
    print("\n".join(faults + more))
    print(f"{wrong} wrong configurations, {right} right ones")
    sys.exit(1 if faults or more or wrong < 40 or right < 10 else 0)


if __name__ == "__main__":
    main()
