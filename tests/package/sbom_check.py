#!/usr/bin/env python3
"""The SBOM of a folder that sdk/packaging/release.sh filled: valid, and true of the packages next to it.

Usage: sbom_check.py <folder>

Needs spdx-tools. Each package of the folder is in it with its hash, each file that holds another project's code says so, and a
file that is changed after the SBOM was written is seen. Exit code 1 and one line for each fault.
"""
import copy
import hashlib
import json
import pathlib
import sys
import tempfile

from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

# (suffix of the package, name of the file in it) -> what it holds and what it loads, by hand.
EXPECTED = {
    ("tar.xz", "bin/octavo"): ({"cli11", "nlohmann_json", "xxhash", "yaml-cpp"}, {"libsodium"}),
    ("tar.xz", "lib/liboctavo.so.1.0"): ({"boost", "nlohmann_json", "tomlplusplus", "xxhash"}, {"libsodium"}),
    ("amd64.deb", "usr/bin/octavo"): ({"cli11", "nlohmann_json", "xxhash"}, {"libsodium", "yaml-cpp"}),
    ("arm64.deb", "usr/bin/octavo"): ({"cli11", "nlohmann_json", "xxhash"}, {"libsodium", "yaml-cpp"}),
    ("whl", "octavo/lib/octavo/octavo"): ({"cli11", "nlohmann_json", "xxhash", "yaml-cpp"}, {"libsodium"}),
    ("whl", "octavo/lib/liboctavo_torch_ops.so"): ({"pytorch", "xxhash"}, set()),
}


def validation(document):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "octavo.spdx.json")
        path.write_text(json.dumps(document))
        return [message.validation_message for message in validate_full_spdx_document(parse_file(str(path)))]


def faults(folder, document):
    packages = {p["packageFileName"]: p for p in document["packages"] if "packageFileName" in p}
    made = {p.name: p for p in folder.iterdir() if p.suffix in (".deb", ".whl", ".gz", ".xz")}
    if set(packages) != set(made) or not made:
        yield f"expected the packages {sorted(made)}, found {sorted(packages)}"
    for name in sorted(set(packages) & set(made)):
        stated = {c["algorithm"]: c["checksumValue"] for c in packages[name]["checksums"]}
        if stated.get("SHA256") != hashlib.sha256(made[name].read_bytes()).hexdigest():
            yield f"{name}: the SBOM states another hash than the file has"
    titles = {p["SPDXID"]: p["name"] for p in document["packages"]}
    owner = {r["relatedSpdxElement"]: r["spdxElementId"] for r in document["relationships"]
             if r["relationshipType"] == "CONTAINS"}
    names = {p["SPDXID"]: p["packageFileName"] for p in packages.values()}
    for entry in document["files"]:
        package = names[owner[entry["SPDXID"]]]
        for (suffix, file), expected in EXPECTED.items():
            if not package.endswith(suffix) or not entry["fileName"].endswith(f"/{file}"):
                continue
            found = tuple({titles[r["relatedSpdxElement"]] for r in document["relationships"]
                           if r["spdxElementId"] == entry["SPDXID"] and r["relationshipType"] == kind}
                          for kind in ("STATIC_LINK", "DYNAMIC_LINK"))
            if found != expected:
                yield f"{package}: {entry['fileName']}: expected that it holds and loads {expected}, found {found}"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    page, = folder.glob("*.spdx.json")
    document = json.loads(page.read_text())
    wrong = validation(document) + list(faults(folder, document))
    # What is planted must be found.
    planted = copy.deepcopy(document)
    planted["packages"][0]["checksums"][1]["checksumValue"] = "0" * 64
    if not any("another hash" in fault for fault in faults(folder, planted)):
        wrong.append("a hash that was changed was not seen")
    del planted["creationInfo"]["created"]
    try:
        if not validation(planted):
            wrong.append("an SBOM without its time was taken for valid")
    except Exception as error:  # the parser refuses it
        print(f"sbom: as expected, {type(error).__name__}")
    print("\n".join([*wrong, f"sbom: {len(document['packages'])} packages, {len(document['files'])} files, {len(wrong)} faults"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
