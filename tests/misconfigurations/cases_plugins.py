"""Plugins that are missing, broken, or not to be trusted; and what backends decline."""
from case import Case, fake, sha256_of

FAKE = '[fp8]\nbackend = "fake"\n'


def not_elf(place):
    place.library()
    place.manifest()
    place.write("plugins/fake.so", "#!/bin/sh\nexit 1\n", 0o755)


def truncated(place):
    place.library(keep=300)
    place.manifest()


def writable_directory(place):
    fake("good")(place)
    place.plugins.chmod(0o777)


def writable_library(place):
    fake("good")(place)
    (place.plugins / "fake.so").chmod(0o666)


def other_hash(place):
    place.library()
    place.manifest(sha256="0" * 64)


def right_hash_of_a_faulty_one(place):
    place.manifest(sha256=sha256_of(place.library("check_declines")))


def no_library(place):
    place.manifest()


def future_manifest(place):
    place.library()
    place.manifest(version=7)


def other_major(place):
    place.library()
    place.manifest(major=9)


def malformed_manifest(place):
    place.library()
    place.write("plugins/fake.octavo-plugin.toml", "manifest_version = \n")


def empty_manifest(place):
    place.library()
    place.write("plugins/fake.octavo-plugin.toml", "")


def future_requirement(place):
    fake("good")(place)
    path = place.plugins / "fake.octavo-plugin.toml"
    path.write_text(path.read_text() + "[requires.quantum]\nqubits = 3\n")


def broken(name, fault, reason, stage, **more):
    return Case(name, reason, stage, config=FAKE, setup=fake(fault), **more)


CASES = [
    Case("misspelt backend", "manifest", "discovery", config='[fp8]\nbackend = "tee"\n'),
    Case("backend that is not installed", "manifest", "discovery",
         config='[fp8]\nbackend = "quantum_tunnel"\n'),
    Case("precision as a backend", "manifest", "discovery", config='[fp8]\nbackend = "bf16"\n'),
    Case("nothing preferred is installed", "manifest", "discovery",
         config='[fp8]\npreference = [\n  "one_backend",\n  "other_backend",\n]\n',
         then=("manifest",)),
    Case("plugins that nobody allowed", "manifest", "discovery", FAKE + '[plugins]\npath = ["plugins"]\n',
         environment={"OCTAVO_PLUGIN_PATH": ""}, setup=fake("good")),
    Case("plugins in a folder that nobody named", "manifest", "discovery", FAKE,
         environment={"OCTAVO_PLUGIN_PATH": ""}, setup=fake("good"), then=("manifest",)),
    Case("backend in the environment", "manifest", "discovery", config=None, config_name="",
         environment={"OCTAVO_BACKEND": "quantum_tunnel"}),
    Case("misspelt override of the backend", "manifest", "discovery", config=None, config_name="",
         overrides={"fp8.backend": '"refrence"'}),
    Case("backend and fallback are missing", "manifest", "discovery",
         config='[fp8]\nbackend = "te9000x"\nfallback = ["fake_news"]\n', then=("manifest",)),
    Case("manifest that is no TOML", "manifest", "manifest", config=FAKE, setup=malformed_manifest),
    Case("empty manifest", "manifest", "manifest", config=FAKE, setup=empty_manifest),
    Case("manifest of the future", "manifest", "manifest", config=FAKE, setup=future_manifest),
    Case("requirement of the future", "manifest", "manifest", config=FAKE,
         setup=future_requirement),
    Case("manifest without its library", "library", "manifest", config=FAKE, setup=no_library),
    Case("directory that all may write", "trust", "trust", config=FAKE, setup=writable_directory),
    Case("library that all may write", "trust", "trust", config=FAKE, setup=writable_library),
    Case("another hash", "trust", "trust", config=FAKE, setup=other_hash),
    Case("library that is a script", "library", "elf", config=FAKE, setup=not_elf),
    Case("truncated library", "library", "elf", config=FAKE, setup=truncated),
    broken("library without the symbol", "no_symbol", "library", "elf"),
    broken("library with a hole", "undefined_symbol", "library", "load"),
    broken("symbol of another major", "symbol_v2", "abi", "elf"),
    broken("plugin of another major", "abi_major", "abi", "plugin"),
    broken("plugin of a later minor", "abi_minor", "abi", "plugin"),
    broken("plugin of a release candidate", "symbol_candidate", "abi", "elf"),
    broken("query that fails", "query_fails", "library", "plugin"),
    broken("id of another plugin", "other_id", "manifest", "plugin"),
    broken("plugin without a backend", "no_backend", "abi", "plugin"),
    broken("options that cannot be listed", "list_options", "abi", "plugin"),
    Case("manifest of another major", "abi", "manifest", config=FAKE, setup=other_major),
    broken("backend that declines", "check_declines", "device", "session"),
    broken("backend that cannot answer", "check_fails", "kernel", "session"),
    Case("backend with a right hash that declines", "device", "session", config=FAKE,
         setup=right_hash_of_a_faulty_one),
]
