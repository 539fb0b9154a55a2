"""nvcc, ptxas and nvdisasm: where they are, and what they say of a source file for an architecture."""
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
CMAKE = ROOT / "kernels" / "cuda" / "CMakeLists.txt"


def flags():
    """The options of kernels/cuda/CMakeLists.txt for device code."""
    found = re.search(r"COMPILE_LANGUAGE:CUDA>:(.*?)>\s", CMAKE.read_text(encoding="utf-8"), re.S)
    return ["-std=c++20", "-O3", "-DNDEBUG", *found[1].split()]


def architectures():
    """Of kernels/cuda/CMakeLists.txt: 89, 90, ..."""
    found = re.search(r'OCTAVO_CUDA_ARCHITECTURES "([^"]+)"', CMAKE.read_text(encoding="utf-8"))
    return [entry.split("-")[0] for entry in found[1].split(";")]


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def find_nvdisasm(nvcc, folders):
    """Of PATH, of the toolkit, or of the package nvidia-cuda-nvdisasm in one of these folders."""
    places = [pathlib.Path(nvcc).parent / "nvdisasm"]
    for folder in [*folders, *sys.path]:
        if folder:
            places += sorted(pathlib.Path(folder).glob("nvidia/*/bin/nvdisasm"))
            places += sorted(pathlib.Path(folder).glob("lib/python3*/site-packages/nvidia/*/bin/nvdisasm"))
    return shutil.which("nvdisasm") or next((str(p) for p in places if p.is_file()), None)


def release(nvcc):
    """As in 13.0."""
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release ([\d.]+)", text)[1]


def read_ptxas(text):
    """{symbol: {registers, stack}} of what ptxas -v prints."""
    found, symbol = {}, None
    for line in text.splitlines():
        if match := re.search(r"(?:Compiling entry function|Function properties for) '?(\w+)'?", line):
            symbol = match[1]
        elif match := re.search(r"(\d+) bytes stack frame", line):
            found.setdefault(symbol, {}).update(stack=int(match[1]))
        elif match := re.search(r"Used (\d+) registers", line):
            found.setdefault(symbol, {}).update(registers=int(match[1]))
    return found


def compile_one(nvcc, source, arch, cubin):
    """What ptxas says of the kernels in `source`."""
    command = [nvcc, *flags(), f"-arch=sm_{arch}", f"-I{ROOT / 'sdk' / 'include'}", f"-I{ROOT}",
               "-Xptxas=-v", "-cubin", "-o", str(cubin), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return read_ptxas(done.stdout + done.stderr)


def compile_all(nvcc, source, archs, folder):
    """{arch: what ptxas says}; cubins are <folder>/<arch>.cubin. Two at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {a: pool.submit(compile_one, nvcc, source, a, pathlib.Path(folder) / f"{a}.cubin")
                for a in archs}
        return {a: job.result() for a, job in jobs.items()}


def disassemble(nvdisasm, cubin):
    done = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{nvdisasm} -c {cubin}: {done.stderr}")
    return done.stdout
