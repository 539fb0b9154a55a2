"""Wrong configurations under octavo.prepare: those of tests/misconfigurations, and values that parsers get wrong."""
import json
import os
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


# Texts as file systems, users and programs give them. The sentence may be long where it lists keys, but not as the text is.
TEXTS = {"no UTF-8": "a\udcff", "half a character": "a\ud800", "a zero": "a\0b", "a megabyte": "n" * (1 << 20), "nothing": "",
         "turned": "\u202eabc", "a command": "\x1b[2J", "two lines": "a\nb"}


def trained_and_restored(name, overrides):
    """Whether a model with a layer of this name works."""
    model = torch.nn.Module()
    model.add_module("inner", torch.nn.Module())
    model.inner._modules[name] = torch.nn.Linear(16, 16)
    model.forward = lambda x: model.inner._modules[name](x)
    model, optimizer = octavo.prepare(model, torch.optim.AdamW(model.parameters()), overrides=overrides)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    state = octavo.state_dict(model)
    octavo.load_state_dict(model, state)
    octavo.Stateful(model).load_state_dict(octavo.Stateful(model).state_dict())
    json.loads(octavo.report(model, "json"))
    octavo.restore(model)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_works_or_is_refused_by_a_typed_error(text, tmp_path):
    uses = [lambda: octavo.prepare(torch.nn.Linear(16, 16), None, text),
            lambda: octavo.prepare(torch.nn.Linear(16, 16), None, f"{tmp_path}/{text}/octavo.toml"),
            lambda: octavo.prepare(torch.nn.Linear(16, 16), None, overrides={text: 1}),
            lambda: octavo.prepare(torch.nn.Linear(16, 16), None, overrides={"fp8.backend": text}),
            lambda: octavo.explain(text), lambda: octavo.list_plugins(text), lambda: octavo.probe(text),
            lambda: octavo.explain(format=text),
            lambda: trained_and_restored(text, te()), lambda: trained_and_restored(text, {"fp8.backend": "msamp"})]
    for number, use in enumerate(uses):
        try:
            use()
        except octavo.OctavoError as e:
            assert not isinstance(e, octavo.InternalError) and str(e), (number, str(e)[:500])
            str(e).encode()  # it can be printed


def test_names_of_files_that_are_no_utf8_work(tmp_path):
    folder = tmp_path / "f\udcff"
    folder.mkdir()
    path = written(folder, '[fp8]\nbackend = "te"\n[fp8.te]\nrecipe = "current"\n')
    model, _ = octavo.prepare(torch.nn.Linear(16, 16), None, path)
    assert session(model).run.options()["recipe"] == "current"
    assert octavo.prepare(torch.nn.Linear(16, 16), None, str(path)) and "te" in octavo.explain(path)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/zero", tmp_path):
        assert "expected a regular file" in refused(octavo.InvalidError, path)
