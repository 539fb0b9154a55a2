"""Files of plugins that are damaged, misplaced, changed or not to be trusted, under octavo.prepare in this
process: each is refused by a typed error, and the process goes on."""
import concurrent.futures
import os
import struct

import pytest
import torch

import octavo
from conftest import te
from zoo import MANIFEST, library, put, refusal, said_of, settings

NO_ELF = "expected an ELF shared library, found another file of"
NO_FILE = "which does not exist or is not a regular file"


@pytest.fixture(autouse=True)
def alive(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("OCTAVO_PLUGIN_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    model, _ = octavo.prepare(torch.nn.Linear(16, 16), overrides=te())
    assert torch.isfinite(model(torch.ones(2, 16))).all()


@pytest.fixture
def folder(tmp_path):
    """A plugin without its library."""
    return put(tmp_path / "p")


def test_what_is_no_library(folder):
    at = folder / "fake.so"
    for content, words in ((b"", NO_ELF + " 0 bytes"), (b"This is no library.\n", NO_ELF + " 20 bytes"),
                           (b"MZ" + bytes(254), NO_ELF + " 256 bytes"),
                           (b"\xcf\xfa\xed\xfe" + bytes(252), NO_ELF + " 256 bytes")):
        at.write_bytes(content)
        assert words in refusal(folder)


def test_what_is_no_file(folder):
    at = folder / "fake.so"
    (folder.parent / "elsewhere.so").write_bytes(library())
    for make, words in ((at.mkdir, NO_FILE), (lambda: os.mkfifo(at), NO_FILE),
                        (lambda: at.symlink_to("nowhere.so"), NO_FILE),
                        (lambda: at.symlink_to("fake.so"), "Too many levels of symbolic links"),
                        (lambda: at.symlink_to("../elsewhere.so"), "expected a file inside"),
                        (lambda: at.symlink_to("/dev/zero"), "expected a file inside")):
        make()
        assert words in refusal(folder)
        at.rmdir() if at.is_dir() else at.unlink()


def loaded_bytes(elf):
    """How much of a file its segments take; what follows, such as symbols for a debugger, may be missing."""
    at, count = struct.unpack_from("<Q", elf, 32)[0], struct.unpack_from("<H", elf, 56)[0]
    ends = [sum(struct.unpack_from("<Q", elf, at + 56 * i + field)[0] for field in (8, 32)) for i in range(count)]
    return max(ends)


def test_every_length_of_a_library_that_is_cut(folder):
    whole = library()
    last = loaded_bytes(whole) - 1
    for size in [*range(1, 64, 7), 64, 65, 1000, *range(4096, last, 512), last]:
        (folder / "fake.so").write_bytes(whole[:size])
        text = refusal(folder)
        assert (NO_ELF if size < 64 else "is truncated: its headers name more than its") in text, (size, text)


def test_libraries_of_other_processors(folder):
    for machine, bits, name in ((8, 2, "64-bit ELF machine 8"), (3, 1, "32-bit x86")):  # MIPS, i386
        other = bytearray(library())
        other[4], other[18:20] = bits, machine.to_bytes(2, "little")
        (folder / "fake.so").write_bytes(other)
        assert f"found one for {name}" in refusal(folder)


def test_a_needed_library_that_is_missing_is_named(folder):
    (folder / "fake.so").write_bytes(library().replace(b"libc.so.6", b"libq.so.9"))
    assert "libq.so.9" in refusal(folder)


def test_one_name_in_two_folders(tmp_path, monkeypatch):
    """The first place wins, whether or not it works, and the list has both."""
    first, second = put(tmp_path / "a", library("no_symbol")), put(tmp_path / "b", library())
    monkeypatch.setenv("OCTAVO_PLUGIN_PATH", str(first))
    assert f"{first}/fake.so: expected the symbol" in refusal(second)
    assert f"shadowed by {first}/fake.octavo-plugin.toml" in octavo.list_plugins(overrides=settings(second))


def test_what_others_can_write_is_not_trusted(tmp_path):
    folder = put(tmp_path / "p", library())
    good = {folder: 0o755, folder / "fake.so": 0o755, folder / "fake.octavo-plugin.toml": 0o644}
    for path, mode in good.items():
        path.chmod(mode)
    _, text = said_of(folder, **{"plugins.trust": "owner"})
    if "refuses the file" in text:
        pytest.skip(f"the temporary directory is not trusted itself: {text}")
    for path, mode in good.items():
        for more in (0o020, 0o002):
            path.chmod(mode | more)
            text = refusal(folder, **{"plugins.trust": "owner"})
            assert f"{path} has mode" in text and "writable by group or others" in text and "chmod " in text
        path.chmod(mode)


def test_an_opened_library_that_is_replaced_or_written_to(tmp_path):
    def renamed(at):
        (at.parent / "new.so").write_bytes(library("other_id"))
        (at.parent / "new.so").rename(at)

    def appended(at):
        with at.open("ab") as file:
            file.write(b"more")

    for change in (renamed, appended):
        folder = put(tmp_path / change.__name__, library())
        model, _ = octavo.prepare(torch.nn.Linear(16, 16, bias=False), overrides=settings(folder))
        change(folder / "fake.so")
        assert "was replaced after this process opened it" in refusal(folder)
        assert octavo.torch.session_of(model).run.backend == "fake"


def mapped(path):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return {line.split()[-1] for line in maps if str(path) in line}


def test_a_hard_link_is_the_same_plugin_and_a_copy_another(tmp_path):
    first, linked, copied = put(tmp_path / "a", library()), put(tmp_path / "b"), put(tmp_path / "c", library())
    os.link(first / "fake.so", linked / "fake.so")
    for folder in (first, linked, copied):
        assert said_of(folder) == (None, "")
    assert mapped(tmp_path) == {f"{first}/fake.so", f"{copied}/fake.so"}


def test_sixty_four_threads_load_one_plugin_once(tmp_path):
    good, bad = put(tmp_path / "good", library()), put(tmp_path / "bad", library("load_crashes"))

    def ask(number):
        folder = (good, bad)[number % 2]
        try:
            with octavo_run(folder) as run:
                return run.backend
        except octavo.UnsupportedError as e:
            return "signal 11" in str(e)

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(ask, range(640)))
    assert answers == ["fake", True] * 320
    assert mapped(tmp_path) == {f"{good}/fake.so"}


class octavo_run:
    """A run of liboctavo for the time of a block; closed twice, which is allowed."""

    def __init__(self, folder):
        self.run = octavo.session_run.Run(octavo.Config.of(None, settings(folder)))

    def __enter__(self):
        return self.run

    def __exit__(self, *_):
        self.run.close()
        self.run.close()


def test_a_closed_run_answers_by_a_typed_error(tmp_path):
    with octavo_run(put(tmp_path / "p", library())) as run:
        assert run.precision == "fp8"
    for call in (run.seal, run.report, lambda: run.add_linear("a", 0)):
        with pytest.raises((octavo.InvalidError, octavo.StateError)):
            call()
    assert (run.precision, run.backend, run.slots()) == ("", "", [])


def test_manifests_that_are_malformed(tmp_path):
    for number, (manifest, words) in enumerate((
            ("", "manifest_version"), ("manifest_version = \n", "not valid TOML"),
            (MANIFEST.replace("major = 1", "major = 2"), "the manifest states ABI 2.0, this host has ABI 1.0"),
            (MANIFEST.replace('"fake.so"', '"../fake.so"'), "expected a file inside"),
            (MANIFEST + "[requires.quantum]\nqubits = 3\n", "quantum"), (None, "no backend \"fake\" is installed"))):
        assert words in refusal(put(tmp_path / str(number), library(), manifest)), manifest
