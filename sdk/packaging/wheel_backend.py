"""What pip calls to build the wheel: scikit-build-core, then a platform tag that states what the libraries need.

scikit-build-core tags `linux_x86_64`, which promises nothing and which package indexes refuse. The tag here is
`manylinux_<x>_<y>_<processor>`: for the oldest C library <x>.<y> whose symbols, together with the C++ library of its time,
the ELF files inside need, and for their processor, which a cross compiler chooses. libtorch is no part of the promise: it
comes with the extra `torch`.
"""
import base64
import hashlib
import pathlib
import platform
import re
import sys
import tempfile
import zipfile

from scikit_build_core.build import *  # noqa: F401,F403
from scikit_build_core.build import build_wheel as _build_wheel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
import check_elf  # noqa: E402

# Newest symbol version of libstdc++ and libgcc -> the oldest C library whose distributions all have it.
NEWEST_OF_LIBC = {
    "GLIBCXX": [("3.4.19", "2.17"), ("3.4.22", "2.24"), ("3.4.24", "2.27"), ("3.4.28", "2.31"), ("3.4.29", "2.34"),
                ("3.4.30", "2.35"), ("3.4.33", "2.39")],
    "CXXABI": [("1.3.7", "2.17"), ("1.3.10", "2.24"), ("1.3.11", "2.27"), ("1.3.12", "2.31"), ("1.3.13", "2.34"),
               ("1.3.15", "2.39")],
    "GCC": [("4.8.0", "2.17"), ("7.0.0", "2.27"), ("12.0.0", "2.35")],
}
OLDEST = "2.17"
PROCESSORS = {62: "x86_64", 183: "aarch64"}  # e_machine of ELF


def libc_of(family, number):
    """The oldest C library that comes with a symbol version, or None when it is newer than the table."""
    if family == "GLIBC":
        return number
    if family not in NEWEST_OF_LIBC:
        return OLDEST
    return next((libc for newest, libc in NEWEST_OF_LIBC[family] if check_elf.key(newest) >= check_elf.key(number)),
                None)


def elf_files(folder):
    return [path for path in sorted(pathlib.Path(folder).rglob("*"))
            if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]


def processor(folder):
    """The name that platform tags have for the processor of all ELF files below a folder."""
    found = {path: int.from_bytes(path.open("rb").read(20)[18:], sys.byteorder) for path in elf_files(folder)}
    numbers = set(found.values())
    if len(numbers) != 1 or not numbers <= PROCESSORS.keys():
        listed = ", ".join(f"{path.relative_to(folder)}: {PROCESSORS.get(number, number)}" for path, number in found.items())
        raise SystemExit(f"error: expected ELF files for one of {', '.join(PROCESSORS.values())}, found {listed or 'none'}")
    return PROCESSORS[numbers.pop()]


def floor(folder):
    """The oldest C library that every ELF file below a folder runs with."""
    oldest = OLDEST
    for path in elf_files(folder):
        for family, number in check_elf.Elf("readelf", path).versions.items():
            libc = libc_of(family, number)
            if libc is None:
                raise SystemExit(
                    f"error: {path.relative_to(folder)} needs {family}_{number}; expected at most "
                    f"{family}_{NEWEST_OF_LIBC[family][-1][0]}, the newest in NEWEST_OF_LIBC of {__file__}; "
                    "build with an older compiler, or add the version")
            oldest = max(oldest, libc, key=check_elf.key)
    return oldest


def tagged(wheel, tag):
    """Rewrites a wheel with another platform tag, in file name, WHEEL and RECORD. Returns the new path."""
    target = wheel.with_name(re.sub(r"-[^-]+\.whl$", f"-{tag}.whl", wheel.name))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        contents = {info: old.read(info) for info in old.infolist()}
        name, = (info.filename for info in contents if info.filename.endswith(".dist-info/WHEEL"))
        stated = None
        for info, content in contents.items():  # RECORD is the last one
            if info.filename == name:
                content = re.sub(rb"(?m)^(Tag: .*-)[^-\n]+$", rb"\g<1>" + tag.encode(), content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                stated = f"{name},sha256={digest},{len(content)}"
            elif info.filename == name.replace("/WHEEL", "/RECORD"):
                content = re.sub(rf"(?m)^{re.escape(name)},[^\r\n]*", stated, content.decode()).encode()
            new.writestr(info, content)
    wheel.unlink()
    return target


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    wheel = pathlib.Path(wheel_directory, _build_wheel(wheel_directory, config_settings, metadata_directory))
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return wheel.name
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as content:
            content.extractall(folder)
        tag = f"manylinux_{floor(folder).replace('.', '_')}_{processor(folder)}"
    return tagged(wheel, tag).name
