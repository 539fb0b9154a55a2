"""What other readers see in a checkpoint of train_gpt: the safetensors format, and the hashes by hashlib and libxxhash.

  checkpoint_python_test.py <train_gpt> <work folder> [safetensors]

With the last word the package safetensors reads the files, too.
"""
import ctypes
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys


def blake2b(data):
    return hashlib.blake2b(data, digest_size=32).hexdigest()


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


XXHASH = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
XXHASH.argtypes, XXHASH.restype = [ctypes.c_char_p, ctypes.c_size_t], Hash128


def xxh3(data):
    found = XXHASH(data, len(data))
    return f"{found.high:016x}{found.low:016x}"


# By the schema of a file: the key of a tensor's hash, and its function.
TENSOR_HASHES = {"2": ("octavo.blake2b.", blake2b), "3": ("octavo.xxh3_128.", xxh3)}


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
    prefix, function = TENSOR_HASHES[texts["octavo.schema"]]
    for key, tensor in header.items():
        begin, end = tensor["data_offsets"]
        assert function(raw[start + begin:start + end]) == texts[prefix + key], key
    return header, texts


def check_package(path, header, texts):
    from safetensors import safe_open
    with safe_open(path, "pt") as file:
        assert file.metadata() == texts
        assert set(file.keys()) == set(header)
        for key in header:
            assert list(file.get_tensor(key).shape) == header[key]["shape"], key


def check_run(program, work, schema, words):
    config = work / f"schema-{schema}.toml"
    config.write_text('mixed_precision = "fp8"\nfp8.backend = "msamp"\nfp8.msamp.opt_level = "O3"\n' +
                      ('checkpoint.hash = "blake2b"\n' if schema == "2" else ""))
    subprocess.run([program, config, "--run", "config", "--text", work / "text", "--out", work / "out", "--layers",
                    "1", "--width", "32", "--heads", "2", "--context", "16", "--batch", "4", "--steps", "2", "--ranks",
                    "2", "--quiet", "--save", work / schema], check=True, stdout=subprocess.DEVNULL)
    folder = next((work / schema).glob("*/step-00000002"))
    raw = (folder / "manifest.json").read_bytes()
    manifest = json.loads(raw)
    assert blake2b(unsealed(raw, manifest["manifest_blake2b"])) == manifest["manifest_blake2b"]
    assert manifest["step"] == 2 and manifest["world"] == len(manifest["files"]) == 2
    tensors = 0
    for entry in manifest["files"]:
        header, texts = check_file(folder / entry["name"], entry, manifest)
        if "safetensors" in words:
            check_package(folder / entry["name"], header, texts)
        assert texts["octavo.schema"] == schema, texts
        tensors += len(header)
    print(f"{tensors} tensors in {len(manifest['files'])} files")
    assert tensors > 10


def main(program, work, *words):
    work = pathlib.Path(work)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "text").write_text("to be read by others, " * 300)
    for schema in TENSOR_HASHES:
        check_run(program, work, schema, words)


if __name__ == "__main__":
    main(*sys.argv[1:])
