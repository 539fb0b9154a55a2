"""What Rust files and crates may use: their own, the standard library, and octavo-sys. include_rules.py runs this.

So every crate of the tree builds without a registry, and an author's project needs nothing but an installed Octavo.
"""
import pathlib
import re

import tree

OWN = {"crate", "self", "super", "std", "core"}
# package, as `use` spells it -> its folder
CRATES = {"octavo_sys": "sdk/rust/octavo-sys"}
USE = re.compile(r"^\s*(?:pub(?:\([a-z]+\))? )?(?:use|extern crate) (?:::)?(\w+)")


def _fault_of_dependency(root, path, line):
    name, _, value = (part.strip() for part in line.partition("="))
    found = re.search(r'path = "([^"]+)"', value)
    wanted = CRATES.get(name.replace("-", "_"))
    if not wanted or not found:
        return f"depends on {line}; expected {' or '.join(CRATES)} by its path"
    target = (root / path.parent / found[1]).resolve()
    if target != (root / wanted).resolve():
        return f"has {name} in {found[1]}, expected it in {wanted}"
    return None


def check(root):
    root, faults = pathlib.Path(root), []
    for path in tree.files(root):
        lines = list(enumerate(tree.text(root, path).splitlines(), 1)) if (
            path.suffix == ".rs" or path.name == "Cargo.toml") else []
        section = ""
        for number, line in lines:
            why = None
            if path.suffix == ".rs":
                used = USE.match(line)
                if used and used[1] not in OWN | set(CRATES) and not _is_module(root, path, used[1]):
                    why = f"uses {used[1]}; expected one of {', '.join(sorted(OWN | set(CRATES)))}"
            elif line.startswith("["):
                section = line.strip("[] ")
            elif section.endswith("dependencies") and line.strip() and not line.startswith("#"):
                why = _fault_of_dependency(root, path, line)
            if why:
                faults.append(f"{path}:{number}: {why}")
    return faults


def _is_module(root, path, name):
    """Whether a crate's root re-exports a module of its own."""
    return (root / path.parent / f"{name}.rs").is_file()


CRATE = "[dependencies]\n{}\n"
PLANTED = [  # file, content, part of the message; None: legal
    ("sdk/rust/octavo-sys/src/lib.rs", "//! x\nmod pass;\npub use pass::Pass;\n", None),
    ("sdk/rust/octavo-sys/src/pass.rs", "//! x\nuse std::mem;\nuse crate::x;\n", None),
    ("sdk/rust/octavo-sys/src/more.rs", "//! x\nuse libc::c_void;\n", "more.rs:2: uses libc"),
    ("sdk/rust/octavo-sys/Cargo.toml", CRATE.format(""), None),
    ("samples/rust/lib.rs", "//! x\nuse octavo_sys::*;\n", None),
    ("samples/rust/Cargo.toml", CRATE.format('octavo-sys = { path = "../../sdk/rust/octavo-sys" }'), None),
    ("samples/far/Cargo.toml", CRATE.format('octavo-sys = { path = "../octavo-sys" }'), "expected it in sdk/rust"),
    ("samples/web/Cargo.toml", CRATE.format('libc = "0.2"'), "depends on libc"),
    ("samples/tool/Cargo.toml", '[build-dependencies]\nbindgen = "0.60"\n', "depends on bindgen"),
]
