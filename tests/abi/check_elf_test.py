"""check_elf.py on libraries that break one rule each: it must name the fault, and pass the good one.

  check_elf_test.py <C compiler> <readelf> <include dir>
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "sdk" / "cli"), str(ROOT / "tests" / "misconfigurations")]
import check_elf  # noqa: E402
import schema  # noqa: E402

GOOD = """#include "octavo/plugin.h"
octavo_status octavo_plugin_query_1(const octavo_host *host, const octavo_plugin **out) {
  (void)host, (void)out;
  return OCTAVO_INCOMPATIBLE;
}
"""
HARDENED = ["-Wl,-z,relro,-z,now"]
# fault -> further source, further options of the compiler, options of check_elf, what it must say
CASES = {
    "good": ("", [], [], None),
    "second_symbol": ("OCTAVO_EXPORT int more(void); int more(void) { return 1; }", [], [],
                      "exports more, expected only declared names"),
    "no_symbol": ("", [f"-D{check_elf.QUERY}=octavo_other"], [],
                  f"expected to export {check_elf.QUERY}"),
    "foreign": ("OCTAVO_EXPORT int ncclInit(void); int ncclInit(void) { return 1; }", [], [],
                "dynamic symbol ncclInit belongs to another library"),
    "constructor": ("__attribute__((constructor)) static void early(void) {}", [], [],
                    "runs 1 static constructors"),
    # As rustc marks a library today, and as Debian 12's, which leaves no mark but paths in messages.
    "rust": ("__attribute__((constructor)) static void early(void) {}"
             "__asm__(\".section .comment,\\\"MS\\\",@progbits,1\\n.string \\\"rustc version 1.85.0\\\"\\n.text\");", [], [], None),
    "rust_of_debian": ("__attribute__((constructor)) static void early(void) {}\nextern const char at[];\n"
                       "__attribute__((used)) const char at[] = \"/usr/src/rustc-1.63.0/library/std/src/sync/once.rs\";",
                       ["-Wl,-s"], [], None),
    "not_rust": ("__attribute__((constructor)) static void early(void) {}\nextern const char at[];\n"
                 "__attribute__((used)) const char at[] = \"/usr/src/thing/library/std\";", [], [],
                 "runs 1 static constructors"),
    "nvcc": ("__attribute__((constructor)) static void one(void) {}\n__attribute__((constructor)) static void two(void) {}\n"
             "__attribute__((constructor)) static void runtime(void) {}\n"
             "__attribute__((used, section(\".nvFatBinSegment\"))) static long module[3] = {1};", [], [], None),
    "not_nvcc": ("".join(f"__attribute__((constructor)) static void early{i}(void) {{}}\n" for i in range(4)) +
                 "__attribute__((used, section(\".nvFatBinSegment\"))) static long module[3] = {1};", [], [],
                 "runs 1 static constructors"),
    "lld": ("", [], [], None),  # see align_stack_to_0
    "needed": ("", ["-Wl,--no-as-needed", "-lresolv"], [], "needs libresolv.so.2; expected only"),
    # What MANIFESTS states.
    "needed_and_stated": ("", ["-Wl,--no-as-needed", "-lresolv"], [], None),
    "another_is_stated": ("", ["-Wl,--no-as-needed", "-lresolv"], [],
                          "needs libresolv.so.2; expected only ld-linux-aarch64, ld-linux-x86-64, libc, libdl, libgcc_s, libm, "
                          "libpthread, libstdc++, libresolv.so.1: load it at run time, or state it in "
                          "another_is_stated.octavo-plugin.toml as [requires] libraries"),
    "floor": ("#include <stdlib.h>\nvoid *take(void);\n__attribute__((used)) "
              "void *take(void) { return malloc(8); }", [], ["--libc", "2.0"],
              "needs GLIBC_2."),
    "stack": ("", ["-Wl,-z,execstack"], [], "wants an executable stack"),
    "rpath": ("", ["-Wl,-rpath,/opt/lib"], [], "searches libraries in /opt/lib"),
    "origin": ("", ["-Wl,-rpath,$ORIGIN/lib"], [], None),
    "lazy": ("", ["-Wl,-z,lazy"], ["--strict"], "keeps its table of addresses writable"),
    "without_relro": ("", ["-Wl,-z,norelro,-z,now"], ["--strict"], "keeps its table of addresses writable"),
    "lazy_is_advice": ("", ["-Wl,-z,lazy"], [], None),
    "path": ("", ["-g", *HARDENED], ["--strict"], "holds 1 paths of the machine that built it, such as /"),
    "hardened": ("", ["-g", *HARDENED, "-ffile-prefix-map=/=mapped/"], ["--strict"], None),
    "segment": ("", [], [], "writable and executable"),  # see make_segment
    "textrel": ("int far_away[3]; __attribute__((used)) int near(void) { return far_away[1]; }"
                "__asm__(\".text\\n.quad malloc\\n\");", ["-Wl,-z,notext"], [], "text relocations"),
}
MANIFESTS = {"needed_and_stated": '[requires]\nlibraries = ["libfoo.so.1", "libresolv.so.2"]\n',
             "another_is_stated": '[requires]\nlibraries = ["libresolv.so.1"]\n',
             "damaged": "[requires", "not_a_list": '[requires]\nlibraries = "libresolv.so.2"\n'}
FOREIGN = ["ncclAllReduce", "torch_version", "c10_x", "cublasCreate_v2", "cudaMalloc", "at::empty",
           "_ZN2at5emptyEv", "_ZN3c106DeviceC1Ev", "_ZN5torch8autogradEv", "_ZNK2at6Tensor3dimEv",
           "_Z9ncclThingv", "_Z10cudaThing2v", "_ZN4nccl4initEv"]
OWN = [check_elf.QUERY, "malloc", "_Znwm", "_ZNSt6vectorIfE2atEm", "_ITM_registerTMClone",
       "_ZN6octavo5msamp4atEv", "atexit", "_ZNSs2atEm"]


def change_segment(library, kind, field, form, value):
    """Writes a field of the first program header of this kind, at this offset in it."""
    data = bytearray(library.read_bytes())
    start, size = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 54)[0]
    first = next(at for at in range(start, len(data), size)
                 if struct.unpack_from("<I", data, at)[0] == kind)
    struct.pack_into(form, data, first + field, value)
    library.write_bytes(data)


def make_segment(library):
    """The first segment that is loaded becomes writable and executable, which no linker makes."""
    change_segment(library, 1, 4, "<I", 7)


def align_stack_to_0(library):
    """As lld writes it, which readelf prints as 0 and not as 0x0."""
    change_segment(library, 0x6474E551, 48, "<Q", 0)


def faults_of_json(printed, validator, message):
    """What is wrong with the JSON about a library that must have this fault, or none."""
    report = json.loads(printed.stdout)
    yield from validator.faults(report)
    texts = [finding["text"] for finding in report["files"][0]["faults"]]
    if report["ok"] != (message is None) or printed.returncode != (0 if report["ok"] else 1):
        yield f"expected ok where there is no fault, found {report['ok']} and exit code {printed.returncode}"
    if message is not None and not any(message in text for text in texts):
        yield f"expected '{message}' in the JSON, found {texts}"


def main(compiler, readelf, include):
    wrong = [f"{n} was not recognised as foreign" for n in FOREIGN if not check_elf.is_foreign(n)]
    wrong += [f"{n} was taken for foreign" for n in OWN if check_elf.is_foreign(n)]
    script = pathlib.Path(check_elf.__file__)
    validator = schema.Validator.of_file(ROOT / "docs" / "check_elf.schema.json")
    with tempfile.TemporaryDirectory() as directory:
        for name, (source, flags, options, message) in CASES.items():
            file, library = pathlib.Path(directory, f"{name}.c"), pathlib.Path(directory, f"{name}.so")
            file.write_text(GOOD + source)
            subprocess.run([compiler, "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}", file,
                            "-o", library, *flags], check=True, stderr=subprocess.DEVNULL)
            if name in MANIFESTS:
                library.with_name(f"{name}.octavo-plugin.toml").write_text(MANIFESTS[name])
            if name == "segment":
                make_segment(library)
            if name == "lld":
                align_stack_to_0(library)
            command = [sys.executable, script, "--readelf", readelf, *options, library]
            result = subprocess.run(command, capture_output=True, text=True)
            said = result.stdout + result.stderr
            if message is None and result.returncode != 0:
                wrong.append(f"{name}: expected no fault, found: {said}")
            if message is not None and (result.returncode != 1 or message not in said):
                wrong.append(f"{name}: expected '{message}', found: {said}")
            printed = subprocess.run([*command, "--json"], capture_output=True, text=True)
            wrong += [f"{name}: {fault}" for fault in faults_of_json(printed, validator, message)]
        needs = pathlib.Path(directory, "needed.so").read_bytes()
        for name, expected in (("damaged", "expected a manifest, found: "),
                               ("not_a_list", "[requires] libraries: expected a list of texts, found 'libresolv.so.2'")):
            library = pathlib.Path(directory, f"{name}.so")
            library.write_bytes(needs)
            library.with_name(f"{name}.octavo-plugin.toml").write_text(MANIFESTS[name])
            result = subprocess.run([sys.executable, script, "--readelf", readelf, library], capture_output=True, text=True)
            if result.returncode != 1 or expected not in result.stderr:
                wrong.append(f"{name}: expected '{expected}', found: {result.stdout + result.stderr}")
    result = subprocess.run([sys.executable, script, "--may-need", "libz.so.1", script], capture_output=True, text=True)
    if result.returncode != 2 or "what a plugin needs is [requires] libraries of its manifest" not in result.stderr:
        wrong.append(f"--may-need of a plugin: expected a refusal, found: {result.stdout + result.stderr}")
    for options, expected in (([script], f"{script}: expected an ELF library, "),
                              (["--readelf", "no-such-readelf", script], "no-such-readelf: expected the program")):
        result = subprocess.run([sys.executable, script, *options], capture_output=True, text=True)
        if result.returncode != 1 or not result.stderr.startswith(expected) or len(result.stderr.splitlines()) != 1:
            wrong.append(f"expected one line that begins with '{expected}', found: {result.stdout + result.stderr}")
    print("\n".join(wrong) or f"{len(CASES)} libraries judged rightly")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
