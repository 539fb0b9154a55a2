"""The SBOM of a release, SPDX 2.3 as JSON: every file that its packages install, and what other projects wrote in them.

  sbom.py <root of the repository> <folder of the release> <version> <seconds since 1970> [<versions>]
    > octavo-<version>.spdx.json

Each package of the folder is listed with its hash, and with its files unless it is a source package. components.txt says
which files hold code of other projects; their versions are those of the packages installed here. Whether a file holds a
library or loads it is read from the file.

<versions> is a file with a line `<package> <version>` for each package of another processor that the release was built with,
which tests/environment/aarch64.sh writes.
"""
import hashlib
import importlib.metadata
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tarfile
import time
import zipfile

SOURCE = re.compile(r"octavo-[\d.]+\.tar\.gz")


def fail(text):
    sys.exit(f"error: {text}")


def components(root, others):
    """(name, licence, holders, kind, package, version) for each line of components.txt that a package here answers."""
    for line in (root / "sdk/packaging/components.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, licence, holders, places = (field.strip() for field in line.split("|"))
        found = None
        for place in places.split():
            kind, package = place.split(":")
            if kind == "deb":
                query = subprocess.run(["dpkg-query", "-W", "-f=${db:Status-Status} ${Version}", package],
                                       capture_output=True, text=True, check=False).stdout.split()
                version = others.get(package) or (query[1] if query[:1] == ["installed"] else None)
            else:
                try:
                    version = importlib.metadata.version(package)
                except importlib.metadata.PackageNotFoundError:
                    version = None
            if version:
                found = kind, package, version
                break
        yield name, licence, holders.split(), places, found


def unpack(path, folder):
    if path.suffix == ".deb":
        subprocess.run(["dpkg-deb", "-x", path, folder], check=True)
    elif path.suffix == ".whl":
        with zipfile.ZipFile(path) as content:
            content.extractall(folder)
    else:
        with tarfile.open(path) as content:
            content.extractall(folder, filter="data")


def needed(path):
    """The libraries that an ELF file loads, or None of another file."""
    if path.open("rb").read(4) != b"\x7fELF":
        return None
    dynamic = subprocess.run(["readelf", "-W", "-d", path], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic)


def identity(*parts):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", "-".join(parts))


def checksums(content):
    return [{"algorithm": name.upper(), "checksumValue": hashlib.new(name, content).hexdigest()}
            for name in ("sha1", "sha256")]


class Sbom:
    def __init__(self, root, version, epoch, others):
        self.components = list(components(root, others))
        self.used = set()
        self.relations = []
        self.document = {
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"octavo-{version}",
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
                             "creators": ["Organization: Octavo developers", f"Tool: sbom.py-{version}"]},
            "packages": [], "files": [], "relationships": self.relations}
        self.version = version

    def relate(self, one, kind, other):
        relation = {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
        if relation not in self.relations:
            self.relations.append(relation)

    def add_package(self, path):
        own = identity("Package", path.name)
        package = {"SPDXID": own, "name": path.name.split("_")[0].split("-0")[0], "versionInfo": self.version,
                   "packageFileName": path.name, "downloadLocation": "NOASSERTION", "checksums": checksums(path.read_bytes()),
                   "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION",
                   "filesAnalyzed": not SOURCE.fullmatch(path.name)}
        self.document["packages"].append(package)
        self.relate("SPDXRef-DOCUMENT", "DESCRIBES", own)
        if not package["filesAnalyzed"]:
            return
        with tempfile.TemporaryDirectory() as folder:
            unpack(path, folder)
            hashes = [self.add_file(own, path.name, folder, file) for file in sorted(pathlib.Path(folder).rglob("*"))
                      if file.is_file() and not file.is_symlink()]
        package["packageVerificationCode"] = {
            "packageVerificationCodeValue": hashlib.sha1("".join(sorted(hashes)).encode()).hexdigest()}
        package["licenseInfoFromFiles"] = ["NOASSERTION"]

    def add_file(self, package, package_name, folder, file):
        name = file.relative_to(folder).as_posix()
        own = identity("File", package_name, hashlib.sha256(name.encode()).hexdigest()[:12], file.name)
        libraries = needed(file)
        entry = {"SPDXID": own, "fileName": f"./{name}", "checksums": checksums(file.read_bytes()),
                 "fileTypes": ["BINARY" if libraries is not None else "OTHER"], "licenseConcluded": "NOASSERTION",
                 "licenseInfoInFiles": ["NOASSERTION"], "copyrightText": "NOASSERTION"}
        self.document["files"].append(entry)
        self.relate(package, "CONTAINS", own)
        for component in self.components if libraries is not None else ():
            title, _, holders, _, _ = component
            is_loaded = any(re.fullmatch(rf"(lib)?{re.escape(title)}\.so.*", library) for library in libraries)
            if not is_loaded and file.name.split(".so")[0] not in holders:
                continue
            other = self.add_component(component)
            if file.name.startswith(f"{title}.so"):  # the library itself
                self.relate(own, "GENERATED_FROM", other)
            else:
                self.relate(own, "DYNAMIC_LINK" if is_loaded else "STATIC_LINK", other)
        return entry["checksums"][0]["checksumValue"]

    def add_component(self, component):
        name, licence, _, places, found = component
        own = identity("Component", name)
        if own in self.used:
            return own
        self.used.add(own)
        if not found:
            fail(f"{name} is in this release, and its version is unknown: expected one of the packages {places}, found none; "
                 "run this script with the Python that built the wheel, where the packages of components.txt are installed")
        kind, package, version = found
        purl = f"pkg:deb/debian/{package}@{version}" if kind == "deb" else f"pkg:pypi/{package}@{version}"
        self.document["packages"].append({
            "SPDXID": own, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "licenseConcluded": licence, "licenseDeclared": licence, "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": purl.replace("+", "%2B")}]})
        return own


def main():
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2])
    others = dict(line.split() for path in sys.argv[5:] for line in pathlib.Path(path).read_text().splitlines())
    sbom = Sbom(pathlib.Path(sys.argv[1]), sys.argv[3], int(sys.argv[4]), others)
    packages = sorted(path for path in folder.iterdir() if path.suffix in (".deb", ".whl", ".xz", ".gz"))
    if not packages:
        fail(f"expected packages in {folder}, found none")
    for path in packages:
        sbom.add_package(path)
    seen = hashlib.sha256(json.dumps(sbom.document, sort_keys=True).encode()).hexdigest()
    sbom.document["documentNamespace"] = f"https://spdx.org/spdxdocs/octavo-{sys.argv[3]}-{seen}"
    json.dump(sbom.document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
