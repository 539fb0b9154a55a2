"""What other readers see in a checkpoint of train_gpt: the safetensors format, and the hashes by hashlib.

  checkpoint_python_test.py <train_gpt> <work folder> [safetensors]

With the last word the package safetensors reads the files, too.
"""
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys


def blake2b(data):
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def unsealed(raw, stated):
    """The bytes with zeros where they state their own hash."""
    assert raw.count(stated.encode()) == 1, stated
    return raw.replace(stated.encode(), b"0" * 64)


def check_file(path, entry, manifest):
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    texts = header.pop("__metadata__")
    assert len(raw) == entry["bytes"], path
    assert texts["octavo.header_blake2b"] == entry["blake2b"], path
    assert blake2b(unsealed(raw[:start], entry["blake2b"])) == entry["blake2b"], path
    assert texts["octavo.run_id"] == manifest["run_id"] and texts["octavo.step"] == str(manifest["step"]), path
    for key, tensor in header.items():
        begin, end = tensor["data_offsets"]
        assert blake2b(raw[start + begin:start + end]) == texts["octavo.blake2b." + key], key
    return header, texts


def check_package(path, header, texts):
    from safetensors import safe_open
    with safe_open(path, "pt") as file:
        assert file.metadata() == texts
        assert set(file.keys()) == set(header)
        for key in header:
            assert list(file.get_tensor(key).shape) == header[key]["shape"], key


def main(program, work, *words):
    work = pathlib.Path(work)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "text").write_text("to be read by others, " * 300)
    subprocess.run([program, "--run", "msamp:opt_level=O3", "--text", work / "text", "--out", work / "out", "--layers",
                    "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "4", "--steps", "2", "--ranks",
                    "2", "--quiet", "--save", work / "save"], check=True, stdout=subprocess.DEVNULL)
    folder = next((work / "save").glob("*/step-00000002"))
    raw = (folder / "manifest.json").read_bytes()
    manifest = json.loads(raw)
    assert blake2b(unsealed(raw, manifest["manifest_blake2b"])) == manifest["manifest_blake2b"]
    assert manifest["step"] == 2 and manifest["world"] == len(manifest["files"]) == 2
    tensors = 0
    for entry in manifest["files"]:
        header, texts = check_file(folder / entry["name"], entry, manifest)
        if "safetensors" in words:
            check_package(folder / entry["name"], header, texts)
        tensors += len(header)
    print(f"{tensors} tensors in {len(manifest['files'])} files")
    assert tensors > 10


if __name__ == "__main__":
    main(*sys.argv[1:])
