"""Broken plugins of tests/zoo under octavo.prepare, all in this process: each is refused by a typed error with
its reason and a remedy, and the model stays as it was."""
import os
import pathlib
import random
import time

import pytest
import torch

import octavo
from conftest import te
from zoo import library, put, refusal, said_of, settings, throwing


@pytest.fixture(autouse=True)
def alive(monkeypatch, tmp_path):
    """Results of trials are kept in a folder of the test, and afterwards a good backend works in this process."""
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    model, _ = octavo.prepare(torch.nn.Linear(16, 16), overrides=te())
    assert torch.isfinite(model(torch.ones(2, 16))).all()


def test_a_plugin_without_faults_is_taken(tmp_path):
    assert said_of(put(tmp_path / "p", library())) == (None, "")


TRIAL = "the process that tries the plugin first "
# Row of docs/results/faults.csv, fault of tests/zoo/faults.h, and what the refusal says.
FAULTS = [
    (6, "undefined_symbol", "octavo_fake_defined_nowhere"),
    (7, "no_symbol", "expected the symbol octavo_plugin_query_rc4, found none"),
    (7, "symbol_v2", "built for ABI major 2"),
    (8, "symbol_candidate", "built for a release candidate"),
    (8, "abi_major", "the plugin needs ABI 2.0, this host has ABI 1.0"),
    (8, "abi_minor", "the plugin needs ABI 1.7, this host has ABI 1.0"),
    (8, "plugin_kind", "its table is not an octavo_plugin: size 56, kind 4"),
    (8, "plugin_size", "its table is not an octavo_plugin: size 48"),
    (8, "short_backend", "lacks close_session"),
    (9, "null_get_interface", "its get_interface is null"),
    (9, "null_forward", "lacks linear_forward"),
    (9, "null_functions", "has an access for"),
    (10, "wild_option", TRIAL + "ended by signal 11"),
    (10, "slot_huge", "expected fewer than 2^61"),
    (10, "owned_weight", "no host steps a weight or gradient that is not NATIVE"),
    (10, "owned_weight_only", "expected its gradient in a slot of role GRADIENT that is not NATIVE, since its weight is in one"),
    (10, "plan_negative", "expected at most 140737488355328 bytes"),
    (11, "huge_text", "list_options failed with status 2"),
    (11, "option_newline", "list_options failed with status 2"),
    (12, "forward_varies", "gave two outputs for the same inputs"),
    (12, "forward_does_nothing", "100.00 % of the product's norm away"),
    (12, "forward_overruns", "wrote beyond the workspace or the output"),
    (12, "open_fails", "accepted the session and then failed to open it"),
    (14, "load_aborts", TRIAL + "ended by signal 6"),
    (15, "load_crashes", TRIAL + "ended by signal 11"),
    (15, "query_crashes", TRIAL + "ended by signal 7"),
    (15, "exit_crashes", TRIAL + "ended by signal 11"),
    (16, "load_exits", TRIAL + "ended with exit code 0 before its answer"),
    (16, "load_exits_at_once", TRIAL + "ended with exit code 7 before its answer"),
    (18, "open_forks", "the plugin forks the process that loads it"),
    (19, "load_allocates", TRIAL + "ended by signal 6"),
    (19, "plan_memory", "more memory than the helper may use"),
    (20, "load_writes", TRIAL + "sent a malformed answer"),
    (20, "load_closes", TRIAL + "ended with exit code 4"),
]


@pytest.mark.parametrize(("fault", "words"), [f[1:] for f in FAULTS], ids=[f"{f[0]}_{f[1]}" for f in FAULTS])
def test_is_refused_with_its_reason(fault, words, tmp_path):
    assert words in refusal(put(tmp_path / "p", library(fault)))


# The other faults of faults.h: whatever they do, an answer comes, and it is typed.
def test_every_fault_of_the_zoo_has_an_answer(tmp_path):
    header = (pathlib.Path(__file__).parents[2] / "zoo" / "faults.h").read_text()
    names = [line.split()[1].removeprefix("FAULT_").lower() for line in header.splitlines()
             if line.startswith("#define FAULT_")]
    # Hangs have a test of their own; the other three need a variable, or change the process that loads them.
    rest = set(names) - {f[1] for f in FAULTS} - {"load_hangs", "load_stops", "query_hangs", "load_second", "field",
                                                  "load_bends"}
    assert len(rest) > 40
    for name in sorted(rest):
        found, text = said_of(put(tmp_path / name, library(name)))
        assert found is None or type(found) in (octavo.UnsupportedError, octavo.InternalError, octavo.ResourceError), (name, found)


@pytest.mark.parametrize("fault", ["load_hangs", "load_stops", "query_hangs"])
def test_a_hang_ends_at_the_deadline(fault, tmp_path):
    start = time.monotonic()
    text = refusal(put(tmp_path / "p", library(fault)), **{"plugins.probe_timeout_ms": 300})
    assert "did not end within 300 ms" in text and time.monotonic() - start < 5


def processes_with(path):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                found += [entry.name] if str(path) in (entry / "maps").read_text() else []
            except OSError:  # it ended, or is somebody else's
                continue
    return found


def test_no_process_of_a_plugin_stays(tmp_path):
    folder = put(tmp_path / "p", library("load_forks"))
    assert TRIAL + "ended by signal 11" in refusal(folder)
    end = time.monotonic() + 5  # a killed process takes a moment to end
    while processes_with(folder / "fake.so") and time.monotonic() < end:
        time.sleep(0.01)
    assert processes_with(folder / "fake.so") == []


@pytest.mark.parametrize("function", ["query", "get_interface", "list_options", "check_session", "open_session",
                                      "linear_forward"])
@pytest.mark.parametrize("kind", ["text", "number", "object"])
def test_an_exception_is_a_refusal(function, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_THROWS", f"{function} {kind}")
    text = refusal(throwing(tmp_path / "p"))
    # The helper catches it, or ends by it and hands on what its last lines say.
    assert "threw an exception" in text or "terminate called after throwing" in text
    assert kind != "text" or "out of luck" in text


@pytest.mark.parametrize("function", ["open_session", "add_parameter", "add_linear", "seal", "linear_plan"])
def test_an_exception_without_a_trial_is_an_error_of_the_plugin(function, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_THROWS", f"{function} text")
    found, text = said_of(throwing(tmp_path / "p"), **{"plugins.probe": "never"})
    assert type(found) is octavo.InternalError and "out of luck" in text, text


def test_an_exception_out_of_a_thread_ends_the_helper_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_THROWS", "query thread")
    text = refusal(throwing(tmp_path / "p"))
    assert TRIAL + "ended by signal 6 (SIGABRT)" in text and "stage entry" in text


def test_texts_of_a_plugin_are_shown_as_escapes(tmp_path):
    for fault in ("terminal", "not_utf8", "verdict_huge"):
        folder = put(tmp_path / fault, library(fault))
        text = octavo.explain(overrides=settings(folder))
        assert "\x1b" not in text and "\x9b" not in text and "\nerror: forged" not in text
        assert {"terminal": "\\x1b[31mred\\nerror: forged\\xc2\\x9b", "not_utf8": "accepts ",
                "verdict_huge": "a text of 1099511627776 bytes"}[fault] in text


def test_changes_of_the_process_are_warnings(tmp_path):
    folder = put(tmp_path / "p", library("load_bends"))
    here = os.getcwd()
    text = octavo.probe(overrides=settings(folder))
    assert "  fake          accepted, probed in " in text and os.getcwd() == here
    for words in ("changes the locale from", "changes the mode of new files", "changes the current directory to /",
                  "changes the handler of signal 10", "replaces descriptor 0", "leaves a descriptor open"):
        assert f"the plugin {words}" in text, text


def test_a_backend_with_a_fault_leaves_the_fallback(tmp_path):
    """The next backend that the configuration allows is taken, with a warning that names the first."""
    folder = put(tmp_path / "p", library("load_crashes"))
    with pytest.warns(UserWarning, match="(?s)fake.*signal 11"):
        model, _ = octavo.prepare(torch.nn.Linear(16, 16),
                                  overrides=settings(folder, **{"fp8.fallback": "reference"}))
    assert octavo.torch.session_of(model).run.backend == "reference"


def test_damaged_headers_never_end_the_process(tmp_path):
    """Bytes of the first 4 KiB, which hold the headers, drawn and changed: refused, or a plugin that runs."""
    whole, draw, refused = library(), random.Random(23), 0
    for number in range(120):
        damaged = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(1024 if number % 2 else 4096)] = draw.randrange(256)
        found, _ = said_of(put(tmp_path / str(number), bytes(damaged)))
        assert found is None or type(found) is octavo.UnsupportedError, (number, found)
        refused += found is not None
    assert refused > 40
