"""Who may include, link and import what: the table of docs/architecture.md, enforced.

  include_rules.py <root>        checks every #include, target_link_libraries, Python import and Rust crate
  include_rules.py --self-test   plants one violation of each rule in a small tree and expects it

A header belongs to an area: a folder of the tree ("sdk/include"), a language's library ("c", "c++",
"system") or a package ("boost"). A folder names the areas it may use; all else is a violation.
"""
import pathlib
import re
import tempfile

import python_rules
import rust_rules
import tree

C_HEADERS = {f"{h}.h" for h in (
    "assert ctype errno fenv float inttypes limits locale math setjmp signal stdalign stdarg "
    "stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar "
    "wchar wctype").split()}
# <prefix of the header or target> -> area
PACKAGES = {
    "boost/": "boost", "Boost::": "boost",
    "toml++/": "toml++", "tomlplusplus": "toml++",
    "yaml-cpp/": "yaml-cpp", "CLI/": "CLI11", "CLI11::": "CLI11",
    "nlohmann/": "nlohmann", "nlohmann_json::": "nlohmann",
    "sodium": "sodium", "xxhash": "xxhash", "PkgConfig::sodium": "sodium", "PkgConfig::SODIUM": "sodium",
    "gtest/": "gtest", "gmock/": "gtest", "GTest::": "gtest",
    "cuda": "cuda", "cublas": "cuda", "nccl": "cuda", "nvtx3/": "cuda", "CUDA::": "cuda", "NCCL::": "cuda",
    "mpi": "mpi", "MPI::": "mpi", "CL/": "opencl", "OpenCL::": "opencl",
    # Libraries of this tree for hosts, by the names of their installed headers.
    "octavo_mpi": "host_adapters/ranks/mpi", "octavo_nccl": "host_adapters/ranks/nccl",
    "torch/": "torch", "ATen/": "torch", "c10/": "torch", "torch": "torch", "OctavoTorch::": "torch",
    "xla/": "xla",
    "Threads::": "system", "dl": "system", "m": "system", "rt": "system",
}
SYSTEM = re.compile(r"(sys|linux|asm|arpa|netinet)/\w+\.h|\w*intrin\.h|arm_neon\.h|(unistd|dlfcn|elf|link|fcntl|"
                    r"spawn|pthread|netdb|sched|dirent|poll|pwd|cpuid|execinfo|ucontext|getopt|glob|ftw|"
                    r"fnmatch|semaphore|termios|malloc|sysexits|sanitizer/\w+)\.h")
LANGUAGE = {"c", "c++"}


class Rule:
    """What files under one folder may use, besides the folder itself."""

    def __init__(self, uses, only=None, headers=(), links=()):
        self.uses = set(uses)
        self.only = only or {}        # area -> pattern of the file names that may use it
        self.headers = set(headers)   # single headers of areas that are closed otherwise
        self.links = set(links)       # further areas whose targets may be linked


SDK = LANGUAGE | {"system", "sdk/include", "nlohmann", "sodium"}
KERNELS = LANGUAGE | {"system", "sdk/include", "kernels/format", "kernels/check"}
# The rooms of liboctavo, bottom first: a room includes itself and earlier ones.
ROOMS = ("base file machine config plugin trust probe negotiate run ranks store checkpoint report "
         "api").split()
# Packages and single headers that one room may use: room -> arguments of Rule.
ROOM_EXTRAS = {
    "config": {"only": {"toml++": r"toml\..*"}},
    "checkpoint": {"only": {"xxhash": r"checkpoint_header\..*"}},
    "plugin": {"only": {"boost": r"loader\..*"}},
    "negotiate": {"headers": {"kernels/cpu/table.h"}},
}
SAMPLE = LANGUAGE | {"system", "sdk/include", "CLI11", "nlohmann"}
# The rooms of train_gpt, bottom first: a room includes itself and earlier ones, main.cpp all.
GPT_ROOMS = [f"samples/train_gpt/{room}" for room in ("model", "octavo", "run")]
RULES = {
    "sdk/include": Rule({"c"}, only={"c++": r".*\.hpp", "system": r"regular_file\.hpp"}),
    # What the rooms link together; a file is in one of them.
    "sdk/src": Rule(SDK, links={"kernels/cpu", "boost", "toml++"}),
    **{f"sdk/src/{room}": Rule(SDK | {f"sdk/src/{r}" for r in ROOMS[:place]},
                               **ROOM_EXTRAS.get(room, {}))
       for place, room in enumerate(ROOMS)},
    "sdk/probe": Rule(SDK | {"sdk/src"}, headers={"kernels/cpu/table.h", "kernels/format/float16.h"}, links={"kernels/cpu"}),
    # What a backend must pass: it sees a plugin through the contract alone.
    "sdk/verify": Rule(LANGUAGE | {"system", "sdk/include"}, links={"sdk/src", "kernels/cpu"},
                       only={"nlohmann": r"(record|results)\..*"},
                       headers={"sdk/src/base/utf8.h", "sdk/probe/process_state.h",
                                "sdk/verify/kernels/checks.h"}),
    # The same for kernels, which are compared with those of the CPU.
    "sdk/verify/kernels": Rule(LANGUAGE | {"system", "sdk/include", "sdk/verify", "kernels/format"},
                               headers={"kernels/cpu/table.h"}),
    # The page of a training, for train_gpt and `octavo report`.
    "sdk/page": Rule(LANGUAGE | {"nlohmann"}),
    "sdk/cli": Rule(SDK | {"CLI11", "sdk/verify", "sdk/verify/kernels", "sdk/page"}, links={"sdk/src"},
                    only={"yaml-cpp": r"yaml\..*"},
                    headers={"sdk/src/base/utf8.h", "sdk/src/base/failure.h", "sdk/src/base/text.h",
                             "sdk/src/base/variables.h", "sdk/src/base/descriptor.h", "sdk/src/base/json.h",
                             "sdk/src/config/declared.h", "sdk/src/config/toml.h",
                             "sdk/src/file/allowed.h", "sdk/src/file/atomic_file.h",
                             "sdk/src/file/privilege_file.h",
                             "sdk/src/checkpoint/checkpoint_file.h",
                             "sdk/src/checkpoint/checkpoint_header.h",
                             "sdk/src/checkpoint/checkpoint_set.h",
                             "sdk/src/store/shared_out.h"}),
    "kernels/format": Rule(LANGUAGE | {"sdk/include"}),
    # What every kernels table refuses: descriptors and texts, no device.
    "kernels/check": Rule(LANGUAGE | {"sdk/include", "kernels/format"}),
    "kernels/cuda": Rule(KERNELS | {"cuda"}),
    "kernels/*": Rule(KERNELS),
    # Backends of this tree share octavo/plugin.hpp, as third parties do.
    "plugins/*": Rule(LANGUAGE | {"sdk/include", "kernels/format"}),
    "host_adapters/torch": Rule(LANGUAGE | {"sdk/include", "system", "torch"}, links={"sdk/src"},
                                only={"xxhash": r"hash\..*"}),
    # The sums of ranks, of CPU memory and of NVIDIA's; they check operands as kernels do.
    "host_adapters/ranks/mpi": Rule(KERNELS | {"mpi"}),
    "host_adapters/ranks/nccl": Rule(KERNELS | {"cuda"},
                                     headers={"kernels/cuda/capture_mode.h", "kernels/cuda/device_scope.h"}),
    "host_adapters/jax": Rule(LANGUAGE | {"sdk/include", "xla"}, links={"sdk/src"}),
    # Programs in C++ without a framework; it opens the libraries of ranks.
    "host_adapters/standalone": Rule(LANGUAGE | {"system", "sdk/include"}, links={"sdk/src"},
                                     headers={"octavo_mpi.h", "octavo_nccl.h"}),
    "host_adapters/*": Rule(LANGUAGE | {"sdk/include"}, links={"sdk/src"}),
    "samples/*": Rule(SAMPLE, links={"sdk/src"}),
    # kernels.inc: the bytes of kernels.cl, which the build makes.
    "samples/kernels_cpp": Rule(LANGUAGE | {"system", "sdk/include", "kernels/format"}),
    "samples/opencl_kernels": Rule(LANGUAGE | {"system", "sdk/include", "opencl"}, headers={"kernels.inc"}),
    "samples/train_gpt": Rule(SAMPLE | {"host_adapters/standalone"} | set(GPT_ROOMS), links={"sdk/src", "sdk/page"}),
    **{room: Rule(SAMPLE | {"host_adapters/standalone"} | set(GPT_ROOMS[:place])
                  | ({"sdk/page"} if room.endswith("/run") else set()), links={"sdk/src", "sdk/page"})
       for place, room in enumerate(GPT_ROOMS)},
    # The same program on another host: it shares the model's shapes, the data and the report.
    "samples/torch_gpt": Rule(LANGUAGE | {"system", "sdk/include", "torch", "host_adapters/standalone"} | set(GPT_ROOMS),
                              links={"sdk/src", "host_adapters/torch"}),
}
FREE = re.compile(r"tests/")


def folder_of(path):
    """The folder of the table that a path lies in, and its rule; (None, None) without one."""
    parts = pathlib.PurePosixPath(path).parts
    for length in (3, 2, 1):
        folder = "/".join(parts[:length])
        if len(parts) > length and folder in RULES:
            return folder, RULES[folder]
    if len(parts) > 2 and f"{parts[0]}/*" in RULES:
        return "/".join(parts[:2]), RULES[f"{parts[0]}/*"]
    return None, None


def package_of(name):
    matches = [p for p in PACKAGES if name.startswith(p) and (p[-1] in "/:" or len(p) > 2 or name == p)]
    return PACKAGES[max(matches, key=len)] if matches else None


def header_area(root, includer, name):
    """The area of a header, or None when nobody knows it; the path when it lies in the tree."""
    if name.startswith("octavo/"):
        return "sdk/include", f"sdk/include/{name}"
    near = (root / includer).parent / name
    for path in (near, root / name):
        if path.is_file():
            inside = path.resolve().relative_to(root.resolve()).as_posix()
            return folder_of(inside)[0] or inside, inside
    if name in C_HEADERS:
        return "c", name
    if "/" not in name and "." not in name:
        return "c++", name
    return package_of(name) or ("system" if SYSTEM.fullmatch(name) else None), name


def check_includes(root):
    faults = []
    for path in tree.c_files(root):
        if FREE.match(path.as_posix()):
            continue
        folder, rule = folder_of(path)
        if not rule:
            faults.append(f"{path}: is in no folder of the table")
            continue
        if folder == "sdk/src":
            faults.append(f"{path}: is in no room of sdk/src; expected one of {', '.join(ROOMS)}")
            continue
        for number, line in enumerate(tree.text(root, path).splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            area, header = header_area(root, path, match.group(1))
            named = rule.only.get(area)
            whole = "sdk/src" if area and area.startswith("sdk/src/") else area
            if area == folder or {area, whole} & rule.uses or header in rule.headers:
                continue
            if named and re.fullmatch(named, path.name):
                continue
            where = f"{path}:{number}: includes {match.group(1)}"
            if area is None:
                faults.append(f"{where}, which no area of the table contains")
            elif named:
                faults.append(f"{where}; {area} is for files named {named} only")
            else:
                faults.append(f"{where} of {area}; {folder} may use {', '.join(sorted(rule.uses))}")
    return faults


def check_mirror(root):
    """Tests of liboctavo are in the room that they test, or in hpp with those of the C++ headers."""
    rooms = set(ROOMS) | {"hpp"}
    return [f"{path}: mirrors no room of sdk/src; expected tests/sdk/<room>/ or tests/sdk/hpp/"
            for path in tree.c_files(root)
            if path.parts[:2] == ("tests", "sdk") and (len(path.parts) < 4 or path.parts[2] not in rooms)]


def commands(text, name):
    """The arguments of every call of a CMake command, generator expressions opened."""
    text = re.sub(r"#[^\n]*", "", text)
    text = re.sub(r"\$<(?:BUILD_INTERFACE|INSTALL_INTERFACE|LINK_ONLY):([^<>]*)>", r"\1", text)
    return [m.split() for m in re.findall(rf"\b{name}\s*\(([^)]*)\)", text)]


def target_homes(root, texts):
    """The folder that each target's first source lies in."""
    homes = {"octavo::abi": "sdk/include", "octavo_abi": "sdk/include", "octavo::sdk": "sdk/src",
             "octavo_format": "kernels/format", "octavo::format": "kernels/format", "octavo_conformance": "sdk/verify",
             "octavo::torch": "host_adapters/torch"}
    for path, text in texts.items():
        for command in ("add_library", "add_executable", "octavo_add_plugin", "octavo_add_test"):
            for target, *arguments in commands(text, command):
                if "ALIAS" in arguments:
                    continue
                sources = [a for a in arguments if (root / path.parent / a).is_file()]
                place = path.parent / (sources[0] if sources else "CMakeLists.txt")
                name = f"octavo_plugin_{target}" if command == "octavo_add_plugin" else target
                folder = folder_of(place)[0] or place.parent.as_posix()
                homes.setdefault(name, "sdk/src" if folder.startswith("sdk/src/") else folder)
    return homes


def check_links(root):
    texts = {f: tree.text(root, f) for f in tree.files(root) if f.name == "CMakeLists.txt"}
    homes = target_homes(root, texts)
    faults = []
    for path, text in texts.items():
        for target, *libraries in commands(text, "target_link_libraries"):
            folder = homes.get(target, path.parent.as_posix())
            rule = RULES.get(folder) or RULES.get(f"{folder.split('/')[0]}/*")
            if not rule or "selftest" in target or target.endswith("_test"):
                continue
            allowed = rule.uses | rule.links | set(rule.only) | {folder}
            for library in libraries:
                if library in {"PRIVATE", "PUBLIC", "INTERFACE"} or "$" in library:
                    continue
                area = homes.get(library) or package_of(library)
                if area not in allowed:
                    faults.append(f"{path}: {target} links {library} of {area or 'no known area'}; "
                                  f"{folder} may link {', '.join(sorted(allowed - LANGUAGE))}")
    return faults


def check(root):
    root = pathlib.Path(root)
    return (check_includes(root) + check_mirror(root) + check_links(root) +
            python_rules.check(root) + rust_rules.check(root))


PLANTED = [  # file, content, part of the message; None: legal
    ("sdk/include/octavo/a.h", "#include <stdint.h>\n", None),
    ("sdk/include/octavo/b.h", "#include <vector>\n", "c++ is for files named"),
    ("sdk/src/plugin/loader.cpp", "#include <boost/dll.hpp>\n#include \"octavo/a.h\"\n", None),
    ("sdk/src/plugin/elf.cpp", "#include <boost/dll.hpp>\n", "boost is for files named loader"),
    ("sdk/src/run/dll.cpp", "#include <boost/dll.hpp>\n", "of boost"),
    ("sdk/src/config/keys.cpp", "#include <toml++/toml.h>\n", "toml++ is for files named"),
    ("sdk/src/base/text.h", "#include <string>\n", None),
    ("sdk/src/run/run.h", "#include \"sdk/src/base/text.h\"\n", None),
    ("sdk/src/base/up.cpp", "#include \"sdk/src/run/run.h\"\n", "of sdk/src/run"),
    ("sdk/src/flat.cpp", "", "is in no room"),
    ("sdk/src/attic/old.cpp", "", "is in no room"),
    ("sdk/probe/main.cpp", "#include \"sdk/src/run/run.h\"\n", None),
    ("kernels/cpu/table.h", "#include <stdint.h>\n", None),
    ("kernels/cpu/gemm.h", "#include <immintrin.h>\n", None),
    ("kernels/cpu/gemm_neon.h", "#include <arm_neon.h>\n", None),
    ("sdk/src/negotiate/open.cpp", "#include \"kernels/cpu/table.h\"\n", None),
    ("sdk/src/negotiate/hot.cpp", "#include \"kernels/cpu/gemm.h\"\n", "includes kernels/cpu/gemm.h"),
    ("kernels/format/float8.h", "#include <stdint.h>\n", None),
    ("kernels/cpu/gemm.cpp", "#include \"gemm.h\"\n#include \"kernels/format/float8.h\"\n", None),
    ("kernels/check/check.h", "#include \"kernels/format/float8.h\"\n", None),
    ("kernels/check/gemm.cpp", "#include \"kernels/cpu/gemm.h\"\n", "of kernels/cpu"),
    ("kernels/check/device.cpp", "#include <unistd.h>\n", "of system"),
    ("kernels/cpu/pack.cpp", "#include \"kernels/check/check.h\"\n", None),
    ("kernels/cpu/gpu.cpp", "#include <cuda_runtime.h>\n", "includes cuda_runtime.h of cuda"),
    ("plugins/te/te.cpp", "#include \"kernels/format/float8.h\"\n#include \"octavo/a.h\"\n", None),
    ("plugins/te/checked.cpp", "#include \"kernels/check/check.h\"\n", "of kernels/check"),
    ("plugins/te/fast.cpp", "#include \"../../kernels/cpu/gemm.h\"\n", "of kernels/cpu"),
    ("plugins/msamp/copy.cpp", "#include \"plugins/te/te.cpp\"\n", "of plugins/te"),
    ("samples/gpt/main.cpp", "#include <CLI/CLI.hpp>\n#include \"octavo/a.h\"\n", None),
    ("samples/gpt/inside.cpp", "#include \"sdk/src/plugin/loader.cpp\"\n", "of sdk/src/plugin"),
    ("samples/gpt/other.cpp", "#include <zlib.h>\n", "which no area"),
    ("sdk/verify/fence.cpp", "#include <gtest/gtest.h>\n", "of gtest"),
    ("samples/train_gpt/model/model.h", "#include <octavo/a.h>\n", None),
    ("samples/train_gpt/run/run.h", "#include \"../model/model.h\"\n", None),
    ("samples/train_gpt/model/up.cpp", "#include \"../run/run.h\"\n", "of samples/train_gpt/run"),
    ("samples/train_gpt/main.cpp", "#include \"run/run.h\"\n", None),
    ("tests/conformance/selftest.cpp", "#include <gtest/gtest.h>\n", None),
    ("tests/kernels/gemm_test.cpp", "#include \"kernels/cpu/gemm.h\"\n", None),
    ("tools/x.c", "", "is in no folder"),
    ("tests/sdk/plugin/loader_test.cpp", "#include \"sdk/src/plugin/loader.cpp\"\n", None),
    ("tests/sdk/hpp/octavo_hpp_test.cpp", "", None),
    ("tests/sdk/flat_test.cpp", "", "mirrors no room"),
    ("tests/sdk/attic/old_test.cpp", "", "mirrors no room"),
    ("kernels/check/CMakeLists.txt", "add_library(octavo_check STATIC gemm.cpp)\n"
     "target_link_libraries(octavo_check PUBLIC octavo_cpu)\n",
     "octavo_check links octavo_cpu of kernels/cpu"),
    ("kernels/cpu/CMakeLists.txt", "add_library(octavo_cpu STATIC gemm.cpp)\n"
     "target_link_libraries(octavo_cpu PUBLIC octavo_check)\n", None),
    ("sdk/CMakeLists.txt", "add_library(octavo SHARED src/plugin/loader.cpp)\n"
     "target_link_libraries(octavo PRIVATE $<BUILD_INTERFACE:octavo_cpu> Torch::Torch)\n",
     "octavo links Torch::Torch of no known area"),
    ("plugins/te/CMakeLists.txt",
     "# target_link_libraries(te PRIVATE octavo)\ntarget_link_libraries(te PRIVATE octavo_cpu)\n",
     "te links octavo_cpu of kernels/cpu"),
    *python_rules.PLANTED,
    *rust_rules.PLANTED,
]


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        for name, content, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content)
        faults = check(root)
    wrong = []
    for name, _, message in PLANTED:
        mine = [f for f in faults if f.startswith(f"{name}:")]
        if message and not any(message in f for f in mine):
            wrong.append(f"{name}: expected a fault with '{message}', found {mine}")
        if not message and mine:
            wrong.append(f"{name}: expected no fault, found {mine}")
    return tree.report(wrong, f"{len(PLANTED)} planted files")


if __name__ == "__main__":
    tree.main(__doc__, check, self_test, "includes, links and imports")
