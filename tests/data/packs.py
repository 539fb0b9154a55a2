"""Packs: the many small files of a corpus or of a family of vectors as one file of the tree.

packs/<group>/<name>.tar.xz is a tar archive of plain files in the order of their names, without dates,
owners and folders, so equal files make an equal archive. `cmake -E tar xf` unpacks it, too.
"""
import csv
import io
import lzma
import os
import pathlib
import tarfile

TREE = pathlib.Path(__file__).resolve().parent.parent.parent
SUFFIX = ".tar.xz"
# All corpora of fuzz targets together, unpacked: a replay of them stays short.
CORPORA_LIMIT = 2 * 1024 * 1024


class Fault(Exception):
    """What was expected, what was found and where."""


def folder(tree):
    return tree / "tests" / "data" / "packs"


def path_of(tree, name):
    return folder(tree) / (name + SUFFIX)


def names(tree):
    """Every pack as <group>/<name>, sorted."""
    found = folder(tree).glob("*/*" + SUFFIX)
    return sorted(p.relative_to(folder(tree)).as_posix()[:-len(SUFFIX)] for p in found)


def archive(files):
    """The tar archive of {name: bytes}."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)   # mode 0644; date and owner are 0
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))
    return out.getvalue()


def write(path, files):
    packed = lzma.compress(archive(files), format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64,
                           preset=6 | lzma.PRESET_EXTREME)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(packed)
    os.replace(part, path)


def unpacked(path):
    """The tar archive of a pack."""
    try:
        return lzma.decompress(path.read_bytes(), format=lzma.FORMAT_XZ)
    except (OSError, lzma.LZMAError) as error:
        raise Fault(f"{path}: expected a file compressed by xz, found: {error}") from error


def read(path):
    """The files of a pack as {name: bytes}."""
    files = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(unpacked(path)), mode="r:") as tar:
            for entry in tar:
                parts = entry.name.split("/")
                if not entry.isreg() or {"", ".", ".."} & set(parts):
                    raise Fault(f"{path}: expected plain files with relative names, found '{entry.name}'")
                if entry.name in files:
                    raise Fault(f"{path}: expected each name once, found '{entry.name}' twice")
                files[entry.name] = tar.extractfile(entry).read()
    except tarfile.TarError as error:
        raise Fault(f"{path}: expected a tar archive, found: {error}") from error
    return files


def is_corpus(name):
    """Corpora are flat and hold each input once. Vectors have folders, and cases that share inputs."""
    return not name.startswith("vectors/")


def faults_of(name, files):
    """What is wrong with these files as the pack `name`."""
    if not is_corpus(name):
        return []
    faults = [f"{name}: expected a corpus without folders, found {file}" for file in files if "/" in file]
    first = {}
    for file in sorted(files):
        twin = first.setdefault(files[file], file)
        if twin != file:
            faults.append(f"{name}: expected each input once, found {twin} and {file} equal")
    return faults


def index_faults(tree, vectors):
    """`vectors`: the names of all files in packs of vectors. index.csv lists all arrays and tables."""
    with open(tree / "tests" / "vectors" / "index.csv", newline="", encoding="utf-8") as file:
        listed = {row["path"] for row in csv.DictReader(file)}
    faults = [f"tests/vectors/index.csv lists {name}, which no pack holds" for name in listed - vectors]
    faults += [f"tests/vectors/index.csv has no row for {name}" for name in vectors - listed
               if not name.endswith("/manifest.json")]
    return sorted(faults)


def check(tree):
    """The faults of all packs."""
    faults = []
    corpora = 0
    vectors = set()
    present = {path_of(tree, name) for name in names(tree)}
    for path in sorted(folder(tree).rglob("*")):
        if path.is_file() and path not in present:
            faults.append(f"{path}: expected <group>/<name>{SUFFIX} only in the folder of packs")
    for name in names(tree):
        path = path_of(tree, name)
        try:
            files = read(path)
        except Fault as fault:
            faults.append(str(fault))
            continue
        faults += faults_of(name, files)
        # Not the compressed bytes: another version of xz may choose others for the same archive.
        if unpacked(path) != archive(files):
            faults.append(f"{path}: expected names in order, mode 0644, no dates and no owners, found "
                          "another archive; pack.py writes it right")
        group, own = name.split("/")
        if group == "vectors":
            vectors |= {f"{own}/{file}" for file in files}
        if group == "fuzz":
            corpora += sum(map(len, files.values()))
            if not (tree / "tests" / "fuzz" / own).is_dir():
                faults.append(f"{path}: expected the name of a fuzz target, a folder of tests/fuzz")
    if corpora > CORPORA_LIMIT:
        faults.append(f"{folder(tree) / 'fuzz'}: expected at most {CORPORA_LIMIT} bytes in all corpora "
                      f"together, found {corpora}; keep only inputs that add coverage")
    return faults + index_faults(tree, vectors)
