"""Configuration files of Accelerate's repository, read from the checkout that OCTAVO_ACCELERATE names: `octavo init --from` takes
each of them, or says why not."""
import os
import pathlib
import re
import subprocess

import pytest
from octavo.__main__ import program

CHECKOUT = os.environ.get("OCTAVO_ACCELERATE")
pytestmark = pytest.mark.skipif(not CHECKOUT, reason="OCTAVO_ACCELERATE names no folder of a checkout of Accelerate")
FOLDERS = ("tests/test_configs", "tests/deepspeed", "examples")
NO_PRECISION = ("expected mixed_precision: fp8 or settings of FP8, found neither",  # of YAML, of DeepSpeed's JSON
                "expected bf16, fp16, fp8 or msamp with \"enabled\": true, found none")
STATES = re.compile(r"(mixed_precision|fp8_\w+):|\s*\"enabled\": true")
REFUSED = {"invalid_keys.yaml": 'unknown key "invalid_key"'}


def files():
    """Its configurations, without the files of its tools."""
    found = [path for folder in FOLDERS for path in pathlib.Path(CHECKOUT, folder).rglob("*")
             if path.suffix in (".yaml", ".yml") or path.suffix == ".json" and ("ds" in path.name or "zero" in path.name)]
    return sorted(path for path in found if "fsdp2_tp" not in path.name)


def imported(path):
    return subprocess.run([program(), "init", "--from", str(path), "--dry-run"], text=True, capture_output=True)


def test_each_file_is_imported_or_refused_by_name():
    assert len(files()) > 15, f"expected configurations of Accelerate in {CHECKOUT}, found {files()}"
    precisions = set()
    for path in files():
        said = imported(path)
        if path.name in REFUSED:
            assert said.returncode == 2 and REFUSED[path.name] in said.stderr, f"{path}: {said.stderr}"
        elif said.returncode == 2:
            assert NO_PRECISION[path.suffix == ".json"] in said.stderr, f"{path}: {said.stderr}"
            stated = [line for line in path.read_text().splitlines() if STATES.match(line)]
            assert not stated, f"{path}: {stated}"
        else:
            assert said.returncode == 0, f"{path}: {said.stderr}"
            assert "refused" not in said.stdout, f"{path}: {said.stdout}"
            precisions |= {line.split('"')[1] for line in said.stdout.splitlines() if line.startswith("mixed_precision = ")}
    assert precisions == {"no", "bf16", "fp16", "fp8"}


def test_its_configurations_of_fp8_keep_every_setting():
    for name in ("tests/test_configs/0_34_0_fp8.yaml", "examples/config_yaml_templates/fp8.yaml"):
        path = pathlib.Path(CHECKOUT, name)
        said = imported(path).stdout
        keys = [line.strip().split(":")[0] for line in path.read_text().partition("fp8_config:")[2].splitlines()[1:]
                if line.startswith("  ") and not line.strip().startswith("#")]
        assert len(keys) > 5
        for key in keys:
            assert any(line.startswith(f"fp8_config.{key} ") for line in said.splitlines()), f"{name}: {key}:\n{said}"
