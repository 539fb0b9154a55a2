"""Every snapshot tests/abi/v* is byte for byte what snapshot.py froze, and its binaries are small.

  check_snapshots.py <directory of the snapshots>
  check_snapshots.py --self-test <directory of the snapshots>   on copies that were tampered with
"""
import hashlib
import pathlib
import shutil
import sys
import tempfile

# A larger plugin than one in C has the C++ headers or the standard library of Rust in it.
MAX_BYTES = {"cpp": 200 * 1024, "rust": 400 * 1024, "kernels": 40 * 1024}
MAX_C = 20 * 1024


def most_bytes(binary):
    return MAX_BYTES.get(binary.parent.name, MAX_C)


def check_snapshot(snapshot):
    sums = snapshot / "SHA256SUMS"
    if not sums.is_file():
        return [f"{snapshot}: has no SHA256SUMS, so nothing of it can be checked"]
    listed = dict(reversed(line.split("  ", 1)) for line in sums.read_text().splitlines())
    found = {str(p.relative_to(snapshot)): p for p in snapshot.rglob("*") if p.is_file() and p != sums}
    faults = [f"{snapshot}/{name}: is listed in SHA256SUMS and missing" for name in listed.keys() - found]
    faults += [f"{snapshot}/{name}: is not listed in SHA256SUMS; a snapshot does not grow"
               for name in found.keys() - listed]
    for name in found.keys() & listed.keys():
        digest = hashlib.sha256(found[name].read_bytes()).hexdigest()
        if digest != listed[name]:
            faults.append(f"{found[name]}: expected SHA-256 {listed[name]}, found {digest}; restore it "
                          f"from git: what was frozen is never changed or built again")
        most = most_bytes(found[name])
        if found[name].read_bytes()[:4] == b"\x7fELF" and found[name].stat().st_size > most:
            faults.append(f"{found[name]}: expected at most {most} bytes")
    for part in ("include/octavo/abi.h", "layout.inc", "abi.xml", "BUILT.txt", "golden/gcc/minimal.so"):
        if part not in listed:
            faults.append(f"{sums}: expected an entry for {part}")
    return faults


def check(directory):
    snapshots = sorted(p for p in pathlib.Path(directory).glob("v*") if p.is_dir())
    if not snapshots:
        return [f"{directory}: expected snapshots v*, found none"]
    return [fault for snapshot in snapshots for fault in check_snapshot(snapshot)]


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def self_test(directory):
    wrong = []
    tampering = {
        "expected SHA-256": lambda s: flip(s / "golden" / "gcc" / "minimal.so"),
        "and missing": lambda s: (s / "layout.inc").unlink(),
        "is not listed": lambda s: (s / "golden" / "more").write_text("more"),
        "has no SHA256SUMS": lambda s: (s / "SHA256SUMS").unlink(),
    }
    for message, tamper in tampering.items():
        with tempfile.TemporaryDirectory() as copy:
            snapshot = sorted(pathlib.Path(directory).glob("v*"))[-1]
            shutil.copytree(snapshot, pathlib.Path(copy, snapshot.name))
            tamper(pathlib.Path(copy, snapshot.name))
            faults = check(copy)
            if len(faults) != 1 or message not in faults[0]:
                wrong.append(f"expected one fault with '{message}', found {faults}")
    return wrong


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--self-test":
        problems = self_test(sys.argv[2])
    elif len(sys.argv) == 2:
        problems = check(sys.argv[1])
    else:
        sys.exit(__doc__)
    print("\n".join(problems) or "snapshots are as they were frozen")
    sys.exit(1 if problems else 0)
