"""What shared libraries export: a plugin one symbol, liboctavo the functions of octavo.h.

  check_symbols.py <nm> plugins <directory>
  check_symbols.py <nm> library <liboctavo.so> <octavo.h>

Anything more would collide with another plugin or become a promise that nobody made.
"""
import pathlib
import re
import subprocess
import sys

QUERY = "octavo_plugin_query_v1"
# Marks that the linker and sanitizers' start-up code leave in every library.
LINKER_MARKS = {"_init", "_fini", "_edata", "_end", "__bss_start"}


def exported(nm, library):
    command = [nm, "-D", "--defined-only", "--format=posix", library]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[0].split("@")[0] for line in output.splitlines()} - LINKER_MARKS


def declared(header):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", pathlib.Path(header).read_text(), flags=re.S)
    return set(re.findall(r"\bOCTAVO_EXPORT\b[^;{]*?\b(octavo_\w+)\s*\(", text))


def report(library, expected, found):
    for name in sorted(found - expected):
        print(f"{library}: exports {name}, expected only declared names; hide it")
    for name in sorted(expected - found):
        print(f"{library}: expected to export {name}, not found")
    return found == expected


def main(arguments):
    if len(arguments) == 3 and arguments[1] == "plugins":
        plugins = sorted(pathlib.Path(arguments[2]).glob("*.so"))
        if not plugins:
            print(f"{arguments[2]}: expected plugins, found none; build all targets first")
            return 1
        results = [report(p, {QUERY}, exported(arguments[0], p)) for p in plugins]
        print(f"{len(plugins)} plugins: {' '.join(p.stem for p in plugins)}")
        return 0 if all(results) else 1
    if len(arguments) == 4 and arguments[1] == "library":
        names = declared(arguments[3])
        if "octavo_open" not in names:
            print(f"{arguments[3]}: octavo_open is not among {len(names)} declarations found")
            return 1
        print(f"{len(names)} functions declared in {arguments[3]}")
        return 0 if report(arguments[2], names, exported(arguments[0], arguments[2])) else 1
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
