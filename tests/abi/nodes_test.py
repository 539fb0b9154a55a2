"""A program that needs a later minor of liboctavo is refused when it is loaded, and one of this minor runs.

  nodes_test.py <C compiler> <folder of liboctavo.so> <include dir>

The later liboctavo is a stand-in with one function more, in the node of the next minor.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM = """#include "octavo/octavo.h"
#include <stdio.h>
octavo_str octavo_later(void);
int main(void) {
  const octavo_str version = NEEDED();
  return printf("%.*s", (int)version.size, version.data) < 0;
}
"""
LATER = """#include "octavo/octavo.h"
octavo_str octavo_later(void);
octavo_str octavo_version(void) { return (octavo_str)OCTAVO_STR("later"); }
octavo_str octavo_later(void) { return (octavo_str)OCTAVO_STR("later"); }
"""


def main(compiler, library, include):
    library, include = pathlib.Path(library).resolve(), pathlib.Path(include).resolve()
    soname, node = (re.search(pattern, subprocess.run(
        ["readelf", "-W", *option, f"{library}/liboctavo.so"], check=True, capture_output=True, text=True).stdout)[1]
        for pattern, option in ((r"SONAME.*\[(.*)\]", ["-d"]), (r"octavo_version@@(\S+)", ["--dyn-syms"])))
    header = pathlib.Path(include, "octavo/abi.h").read_text()
    major, minor = (int(re.search(rf"#define OCTAVO_ABI_{part} (\d+)", header)[1]) for part in ("MAJOR", "MINOR"))
    if soname != f"liboctavo.so.{major}":
        sys.exit(f"expected the soname liboctavo.so.{major}, the major of the ABI, found {soname}")
    later = f"OCTAVO_{major}.{minor + 1}"
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        (place / "program.c").write_text(PROGRAM)
        (place / "later.c").write_text(LATER)
        (place / "later.map").write_text(f"{node} {{ global: octavo_version; local: *; }};\n{later} {{ global: octavo_later; }} {node};\n")
        flags = [compiler, "-std=c11", f"-I{include}"]
        subprocess.run([*flags, "-shared", "-fPIC", "later.c", f"-Wl,-soname,{soname}", "-Wl,--version-script=later.map",
                        "-o", soname], cwd=place, check=True)
        answers = {}
        for needed in ("octavo_version", "octavo_later"):
            subprocess.run([*flags, f"-DNEEDED={needed}", "program.c", soname, "-o", needed], cwd=place, check=True)
            answers[needed] = subprocess.run([place / needed], capture_output=True, text=True,
                                             env={**os.environ, "LD_LIBRARY_PATH": str(library)})
    ran, refused = answers["octavo_version"], answers["octavo_later"]
    if ran.returncode != 0 or not re.fullmatch(r"\d+\.\d+\.\d+", ran.stdout):
        sys.exit(f"a program of this minor: expected liboctavo's version, found {ran.stdout}{ran.stderr}")
    if refused.returncode == 0 or f"version `{later}' not found" not in refused.stderr:
        sys.exit(f"a program of a later minor: expected the loader to miss {later}, found {refused.stdout}{refused.stderr}")
    print(f"{soname}, {node}: a program that needs {later} is refused")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
