"""Every C and C++ file is as clang-format 14 writes it, by .clang-format at the root, and every Rust file as
rustfmt does, by .rustfmt.toml.

  format_check.py <root>

Exits 77, which ctest reports as a skip, where clang-format 14 or rustfmt is missing: another version of
clang-format would format differently and prove nothing.
"""
import re
import shutil
import subprocess
import sys
import tempfile

import tree

VERSION = "14"


def formatter():
    """The name of a clang-format 14, or None and what was found instead."""
    found = "none"
    for name in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(name):
            text = subprocess.run([name, "--version"], capture_output=True, text=True).stdout.strip()
            if re.search(rf"version {VERSION}\.", text):
                return name, text
            found = text
    return None, found


def check_rust(root):
    """Whether the Rust files are formatted; None without a rustfmt."""
    files = [str(f) for f in tree.files(root) if f.suffix == ".rs"]
    # Debian's first: versions may differ in what they write.
    command = "/usr/bin/rustfmt" if shutil.which("/usr/bin/rustfmt") else shutil.which("rustfmt")
    if not command:
        print(f"expected rustfmt (apt-get install rustfmt), found none: {len(files)} files in Rust were not checked")
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".rs") as planted:
        planted.write("fn  x() {}\n")
        planted.flush()
        check = [command, "--edition", "2021", "--config-path", root, "--check"]
        if subprocess.run([*check, planted.name], capture_output=True).returncode == 0:
            print(f"{command} accepts a badly formatted file; this test proves nothing")
            return False
    result = subprocess.run([*check, *files], cwd=root)
    print(f"{len(files)} files in Rust; to repair: {command} <file>")
    return result.returncode == 0


def main(root):
    is_rust_formatted = check_rust(root)
    command, found = formatter()
    if not command:
        print(f"SKIPPED: expected clang-format {VERSION} (apt-get install clang-format on Debian 12), "
              f"found {found}; no file was checked")
        return 77

    # The check must see a fault.
    planted = [command, "--dry-run", "-Werror", f"--style=file:{root}/.clang-format"]
    if subprocess.run(planted, input="int  x ;\n", text=True, capture_output=True).returncode == 0:
        print(f"{command} accepts a badly formatted file; this test proves nothing")
        return 1

    # .inc files are tables and fragments, no translation units.
    files = [str(f) for f in tree.c_files(root) if f.suffix != ".inc"]
    result = subprocess.run([command, "--dry-run", "-Werror", *files], cwd=root)
    print(f"{len(files)} files, {found}; to repair: {command} -i <file>")
    if result.returncode or not files or is_rust_formatted is False:
        return 1
    return 77 if is_rust_formatted is None else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
