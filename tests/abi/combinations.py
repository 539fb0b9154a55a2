"""Old and new hosts with old and new plugins: what each pair must print, line by line.

  combinations.py direct <host> <plugin.so> <age of the host: old or new>
  combinations.py library <program> <liboctavo.so> <plugin.so> <age of the program> [age of liboctavo]
  combinations.py parallel <program> <liboctavo.so> <plugin.so> <age>   the program gives threads, which kernels use
  combinations.py unknown <program> <liboctavo.so> <plugin.so>   values of a later minor that a host must not ignore
  combinations.py conformance <octavo> <plugin.so> [key=value ...]   no check fails
  combinations.py provider <octavo> <kernels.so> <backend.so> [key=value ...]   a backend trains on golden kernels
  combinations.py refused <octavo> <host> <plugin.so>   a plugin of another candidate: explain says so, a host finds no entry
  combinations.py --emulator <machine> <words> <kind> ...   one of these, where a program starts by words, with | between
                                                           them, that emulate a machine such as aarch64

"old" is a binary of a snapshot, "new" was built with the headers of next_headers.py. The numbers are
equal everywhere; what differs is what each side finds of the other. A plugin is run from a copy in a
directory of its own, since the rights in a checkout are not those that the trust check wants.
"""
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

NUMBERS = {
    "minimal": ["y, dx, dw, db: exact", "gradients: none", "optimizer: none"],
    "stateful": ["y, dx, dw, db: exact", "gradients: averaged over 2 ranks", "optimizer: stepped"],
}
NUMBERS["next"] = NUMBERS["current"] = NUMBERS["rustcurrent"] = NUMBERS["minimal"]
SLOTS = {"minimal": 2, "stateful": 5, "next": 3, "current": 5, "rustcurrent": 5}
# Checks of `octavo plugin verify` that ask for more than a candidate did: all of its plugins fail these, and no other.
# A new snapshot empties the set.
STRICTER = set()
# What a later minor may add and a host that does not know it refuses at seal -> a part of its words.
UNKNOWN = {"flag": "flag 16 is not known", "combine": "combine 3 is not known",
           "shard": "shard 2 is not known", "owner": "found 0 of kind 4", "dtype": "unknown dtype 1056",
           "plan flag": "flag 32 is not known"}
EMULATOR = []
BORDER = ["contract.table", "contract.refusals", "contract.slots", "checkpoint", "extents.empty", "twice", "late", "fused",
          "shard"]
MANIFEST = """manifest_version = 1
[plugin]
name = "{name}"
version = "1.0.0"
[abi]
major = 1
minor = 0
[library]
linux-x86_64 = "{name}.so"
linux-aarch64 = "{name}.so"
"""


def expected_of_host(host, plugin):
    """What host.c prints without liboctavo."""
    new, old_plugin = host == "new", plugin != "next"
    marked = 0 if old_plugin else SLOTS[plugin] - 1
    # An old host sees that slots are longer; a new one reads the field in those that carry a mark.
    longer = marked if new or old_plugin else SLOTS[plugin]
    lines = [f"host of minor {1 if new else 0}, plugin {plugin} for minor 0"]
    if new:
        lines.append("next field of an answer: " + ("0" if old_plugin else "used"))
    lines += NUMBERS[plugin]
    unknown = 0 if old_plugin else 1
    lines.append(f"slots: {SLOTS[plugin]}, {longer} with a newer field, {unknown} of an unknown role")
    if new:
        lines.append("next interface: " + ("none" if old_plugin else "used"))
        lines.append("next field of a kernel call: " + ("0" if old_plugin else "used"))
        lines.append("next function: " + ("unsupported" if old_plugin else "used"))
        lines.append("next field of a call: " + ("not read" if old_plugin else "used"))
    return lines


def expected_of_program(program, plugin, library="old"):
    """What program.c prints over liboctavo, which is older than next_headers.py unless next_library.sh
    built it with them."""
    lines = [f"program of minor {1 if program == 'new' else 0}, backend {plugin}"]
    lines.append(f"slots: {SLOTS[plugin]}, {0 if plugin != 'next' else 1} of role OTHER")
    lines += NUMBERS[plugin]
    if program == "new" and library == "old":
        lines.append("next function: not in liboctavo's table")
    elif program == "new":
        used = plugin == "next"
        lines.append("next function: " + ("used" if used else "unsupported"))
        lines.append("next field of a call: " + ("used" if used else "not read"))
    return lines


def run(command, directory):
    command = [*EMULATOR, *command]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OCTAVO_", "XDG_"))}
    environment["HOME"] = str(directory)
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=280)
    return result.returncode, result.stdout, result.stderr


def put(plugin, directory):
    """The plugin with a manifest, as an installation would lay it out."""
    target = directory / "plugins"
    target.mkdir(mode=0o755)
    shutil.copy(plugin, target)
    manifest = plugin.with_suffix(".octavo-plugin.toml")
    text = manifest.read_text() if manifest.is_file() else MANIFEST.format(name=plugin.stem)
    (target / manifest.name).write_text(text)
    for file in target.iterdir():
        file.chmod(0o644)
    return target


def executable(path, directory):
    copy = pathlib.Path(shutil.copy(path, directory))
    copy.chmod(0o755)
    return copy


def settings(options):
    return [word for option in options for word in ("--set", option)]


def compare(command, directory, expected):
    code, out, err = run(command, directory)
    found = out.splitlines()
    if code == 0 and found == expected:
        print("\n".join(found))
        return 0
    print(f"{' '.join(map(str, command))}: exit code {code}\nexpected:", *expected, "found:", *found,
          "stderr:", err, sep="\n  ")
    return 1


def main(arguments):
    machine = platform.machine()
    if arguments[0] == "--emulator" and len(arguments) > 3:
        machine, words, *arguments = arguments[1:]
        EMULATOR.extend(words.split("|"))
    kind, *rest = arguments
    golden = any("/golden/" in argument for argument in rest)
    built_for = "aarch64" if any("/golden/aarch64/" in argument for argument in rest) else "x86_64"
    if golden and machine != built_for:
        print(f"SKIPPED: these binaries of snapshots are for {built_for}, this is", machine)
        return 77
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        if kind == "direct" and len(rest) == 3:
            host, plugin, age = rest
            return compare([executable(host, directory), pathlib.Path(plugin).resolve()], directory,
                           expected_of_host(age, pathlib.Path(plugin).stem))
        if kind == "library" and len(rest) in (4, 5):
            program, library, plugin, *ages = rest
            plugin = pathlib.Path(plugin)
            command = [executable(program, directory), pathlib.Path(library).resolve(), put(plugin, directory), plugin.stem]
            return compare(command, directory, expected_of_program(ages[0], plugin.stem, *ages[1:]))
        if kind == "parallel" and len(rest) == 4:
            plugin = pathlib.Path(rest[2])
            command = [executable(rest[0], directory), pathlib.Path(rest[1]).resolve(), put(plugin, directory), plugin.stem]
            return compare(command, directory, [f"program of minor {1 if rest[3] == 'new' else 0} gives threads: used",
                                                "copy: exact"])
        if kind == "unknown" and len(rest) == 3:
            program, library, plugin = rest[0], pathlib.Path(rest[1]).resolve(), pathlib.Path(rest[2])
            program, faults = executable(program, directory), 0
            for what, words in UNKNOWN.items():
                os.environ["NEXT_UNKNOWN"] = what
                home = directory / what  # of its own, since trials of a file are remembered
                home.mkdir()
                code, out, err = run([program, library, put(plugin, home), plugin.stem], home)
                faults += code != 1 or words not in out + err
                print(f"{what}: exit code {code}, expected 1 and '{words}'", out, err, sep="\n")
            return 1 if faults else 0
        if kind == "refused" and len(rest) == 3:
            program, host, plugin = rest[0], executable(rest[1], directory), pathlib.Path(rest[2])
            if (found := run([host, plugin.resolve()], directory))[:2] != (2, ""):
                print(f"expected a host without liboctavo to find no entry, found {found}")
                return 1
            code, out, err = run([program, "check", "--plugin-dir", put(plugin, directory), "--set",
                                  "mixed_precision=fp8", "--set", f"fp8.backend={plugin.stem}"], directory)
            print(out, err)
            return 0 if code != 0 and ", built for a release candidate; " in out + err and \
                "rebuild the plugin" in out + err else 1
        if kind == "conformance" and len(rest) >= 2:
            program, plugin, *options = rest
            plugin = pathlib.Path(plugin)
            # Of another processor, those that concern the border: Aarch64.verify_* run all, on plugins of the tree.
            checks = [word for check in BORDER for word in ("--only", check)] if EMULATOR else []
            code, out, err = run([program, "plugin", "verify", put(plugin, directory) / plugin.name, *checks,
                                  *settings(options)], directory)
            failed = {line.split()[1].rstrip(":") for line in out.splitlines() if line.startswith("FAIL")}
            print(out, err, f"failed: {sorted(failed)}, expected: {sorted(STRICTER)}")
            return int(failed != STRICTER or code != bool(STRICTER))
        if kind == "provider" and len(rest) >= 3:
            program, kernels, backend, *options = rest
            folder, home = directory / "kernels", directory / "backend"
            folder.mkdir(), home.mkdir()
            places = [put(pathlib.Path(kernels), folder), put(pathlib.Path(backend), home)]
            # An emulator takes a minute for a hundred steps, the fewest that count.
            code, out, err = run([program, "plugin", "try", pathlib.Path(backend).stem, "--seconds", "150",
                                  *(word for place in places for word in ("--plugin-dir", place)), *settings(options)], directory)
            print(out, err)
            return code
    sys.exit(__doc__)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
