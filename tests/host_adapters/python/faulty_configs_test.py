"""Wrong configurations under octavo.prepare: those of tests/misconfigurations, and values that parsers get wrong."""
import json
import pathlib
import sys

import pytest
import torch

import octavo
from conftest import session, te

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "misconfigurations"))
from cases_config import CASES  # noqa: E402  of the folder above


@pytest.fixture(autouse=True)
def unset(monkeypatch, tmp_path):
    """No file or variable of the user takes part."""
    for name in ("OCTAVO_MIXED_PRECISION", "OCTAVO_BACKEND", "OCTAVO_PLUGIN_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def refused(kind, config=None, overrides=None):
    """The text of the error; the model stays as it was."""
    model = torch.nn.Linear(16, 16)
    with pytest.raises(octavo.OctavoError) as e:
        octavo.prepare(model, None, config, overrides=overrides)
    assert type(e.value) is kind and type(model) is torch.nn.Linear, e.value
    return str(e.value)


def value_of(text):
    """What `octavo --set KEY=TEXT` takes: a value, or a word without quotes."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def written(folder, content):
    path = folder / "octavo.toml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


# Not the one whose refusal is a warning, since it lets the model run in another precision.
@pytest.mark.parametrize("case", [c for c in CASES if c.runs == "fp8"], ids=lambda c: c.name)
def test_is_refused_by_its_place(case, tmp_path, monkeypatch):
    path = None if case.config_name == "" else tmp_path / case.config_name
    if case.config is not None and path is not None:
        written(tmp_path, case.config)
    for name, value in case.environment.items():
        monkeypatch.setenv(name, value)
    overrides = {key: value_of(text) for key, text in case.overrides.items()}
    kind = octavo.InvalidError if case.reason == "config" else octavo.UnsupportedError
    text = refused(kind, path, overrides)
    places = [*case.environment, *case.overrides, *([path.name] if path and case.config else [])]
    assert case.reason != "config" or any(place in text for place in places or [path.name]), text


NUMBERS = ["99999999999999999999", "-1", "nan", "inf", "-inf", "0x7fffffffffffffff", '""', '"' + "x" * (1 << 20) + '"',
           "[]", "{}", "1979-05-27"]


@pytest.mark.parametrize("value", NUMBERS, ids=lambda v: v[:20])
@pytest.mark.parametrize("key", ["schema", "fp8.te.margin", "fp8.te.amax_history_len", "plugins.probe_timeout_ms"])
def test_values_that_are_no_number_of_the_key(key, value, tmp_path):
    text = refused(octavo.InvalidError, written(tmp_path, f"{key} = {value}\n"), te())
    assert "octavo.toml:" in text and len(text) < 4096, text[:500]


@pytest.mark.parametrize("content", [
    b"schema = 1\nx = \"\xff\"\n", b"schema = 1\n\xc3\x28 = 1\n", b"\xff\xfes\0c\0h\0e\0m\0a\0", b"[=\n", b"[[\n", b"a = [",
    b"x = " + b"[" * 100000, b"x = " + b"{a=" * 10000, b"schema = 1\rschema = 1\r"], ids=range(9))
def test_bytes_that_are_no_toml(content, tmp_path):
    assert "octavo.toml:" in refused(octavo.InvalidError, written(tmp_path, content))


def test_a_byte_order_mark_and_crlf_are_allowed(tmp_path):
    path = written(tmp_path, b'\xef\xbb\xbf[fp8]\r\nbackend = "te"\r\n')
    assert session(octavo.prepare(torch.nn.Linear(16, 16), None, path)[0]).run.backend == "te"


def test_overrides_win_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch):
    path = written(tmp_path, '[fp8]\nbackend = "te"\n[fp8.te]\nmargin = 1\n')

    def margin(**overrides):
        model, _ = octavo.prepare(torch.nn.Linear(16, 16), None, path, overrides=overrides)
        return session(model).run.options()["margin"]

    assert margin() == 1
    monkeypatch.setenv("OCTAVO_FP8_TE_MARGIN", "2")
    assert margin() == 2
    assert margin(**{"fp8.te.margin": 3}) == 3
    monkeypatch.setenv("OCTAVO_BACKEND", "nobody")
    assert "nobody" in refused(octavo.UnsupportedError, path)
    assert margin(**{"fp8.backend": "te"}) == 2
