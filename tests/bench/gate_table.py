"""The gates: which rows of bench_cpu make each ratio, and what it should be.

A row's rate is the median of items_per_second over the repetitions. Floors are what a merge may not
fall below, moonshots what the hardware seems to allow; both depend on the CPU's vector units, see
classify of gate_rules.py.
"""
import dataclasses

PRODUCTS = ("576x768x768", "1152x1024x1024", "2304x2048x2048", "144x4096x4096")


@dataclasses.dataclass(frozen=True)
class Goal:
    floor: float = None     # None: reported, not judged
    moonshot: float = None


@dataclasses.dataclass(frozen=True)
class Gate:
    id: str
    title: str
    pairs: tuple            # ((row, (opponent, ...)), ...): geometric mean of row / best opponent;
                            # without opponents a row's own rate or, of kind ms, its time
    zen4: Goal
    zen5: Goal
    other: Goal = Goal()    # CPUs without AVX-512 BF16 and VBMI, or a lower level of kernels
    kind: str = "rate"      # rate: higher is better; time, extra_ns, ms, counter: lower is better
    factor: float = 1.0     # what a rate is multiplied by: bytes an element, against copies;
                            # its unit, without opponents
    memory: bool = False    # limited by memory, so judged only where copies are ordinary
    counter: str = ""       # of kind counter
    threads: int = 1        # 2: judged where two threads do what two cores can


def shapes(row, *opponents):
    return tuple((f"{row}/{s}", tuple(f"{o}/{s}" for o in opponents)) for s in PRODUCTS)


def two_threads(pairs):
    return tuple((f"T2/{row}", tuple(f"T2/{o}" for o in opponents)) for row, opponents in pairs)


def one(row, *opponents):
    return ((row, opponents),)


def small_opponents(m):
    return tuple(f"SmallM/{o}/M{m}" for o in ("ours_bf16", "dnnl_bf16", "dnnl_bf16_packed"))


NEVER_SLOWER = Goal(1.0, None)

GATES = (
    Gate("C1", "cast fp32 to E4M3 with amax, 512 KiB / PyTorch's algorithm",
         one("Cast/ours/512KiB", "Cast/aten/512KiB"), Goal(1.5, 2.3), Goal(2.3, 3.1),
         NEVER_SLOWER),
    Gate("C2", "the same from DRAM, bytes / non-temporal copy",
         one("Cast/ours/256MiB", "Copy/nontemporal"), Goal(0.80, 0.93), Goal(0.82, 0.96),
         factor=5, memory=True),
    Gate("C3", "cast from bf16 / from fp32, elements, DRAM",
         one("Cast/ours_bf16/256MiB", "Cast/ours/256MiB"), Goal(1.15, 1.55), Goal(1.5, 1.85),
         memory=True),
    Gate("C4", "cast and transpose 8192x4160, bytes / non-temporal copy",
         one("CastTranspose/ours", "Copy/nontemporal"), Goal(0.45, 0.75), Goal(0.45, 0.75),
         factor=6, memory=True),
    Gate("C4b", "the same / cast, then a tiled transpose",
         one("CastTranspose/ours", "CastTranspose/two_passes"), Goal(), Goal(), memory=True),
    Gate("C5", "decode E4M3 to bf16, 256 KiB / PyTorch's algorithm to fp32",
         one("Decode/ours/256KiB", "Decode/aten/256KiB"), Goal(8, 14), Goal(9, 15),
         NEVER_SLOWER),
    Gate("C6", "FP8 product, decode and pack inside / bf16 of oneDNN",
         shapes("Gemm/fp8", "Gemm/dnnl_bf16"), Goal(0.90, 1.02), Goal(0.94, 1.04)),
    Gate("C7", "FP8 product / decode and fp32 product",
         shapes("Gemm/fp8", "Gemm/dnnl_f32_decode", "Gemm/openblas_f32_decode"),
         Goal(1.8, 2.05), Goal(1.85, 2.1)),
    Gate("C7b", "FP8 product / fp32 product alone",
         shapes("Gemm/fp8", "Gemm/dnnl_f32", "Gemm/openblas_f32"), Goal(), Goal()),
    Gate("C8", "product with 1x128 and 128x128 scales / with one scale",
         shapes("GemmBlock/128", "Gemm/fp8"), Goal(0.85, 0.97), Goal(0.90, 0.98)),
    Gate("C8b", "the same, scales are powers of two",
         shapes("GemmBlock/128_pow2", "Gemm/fp8"), Goal(None, 1.0), Goal(0.96, 1.0)),
    Gate("C6b", "FP8 product, b in panel order before the call / packed bf16 of oneDNN",
         shapes("Gemm/fp8_packed", "Gemm/dnnl_bf16_packed"), Goal(), Goal(0.94, 1.0)),
    Gate("C6.T2", "C6 on two threads", two_threads(shapes("Gemm/fp8", "Gemm/dnnl_bf16")),
         Goal(), Goal(), threads=2),
    Gate("C7b.T2", "C7b on two threads",
         two_threads(shapes("Gemm/fp8", "Gemm/dnnl_f32", "Gemm/openblas_f32")), Goal(), Goal(),
         threads=2),
    Gate("C1.T2", "C1 on two threads", two_threads(one("Cast/ours/512KiB", "Cast/aten/512KiB")),
         Goal(), Goal(), threads=2),
    Gate("C2.T2", "C2 on two threads", two_threads(one("Cast/ours/256MiB", "Copy/nontemporal")),
         Goal(), Goal(), factor=5, memory=True, threads=2),
    *(Gate(f"C9.M{m}", f"product with {rows}, weights in panel order / bf16 weights",
           one(f"SmallM/fp8_packed/M{m}", *small_opponents(m)), zen4, zen5, memory=True)
      for m, rows, zen4, zen5 in (("1", "one row", Goal(1.6, 1.95), Goal(1.55, 1.95)),
                                  ("8", "eight rows", Goal(1.3, 1.8), Goal(1.1, 1.5)))),
    *(Gate(f"C9b.M{m}", f"product with {rows}, weights as they are / bf16 weights",
           one(f"SmallM/fp8/M{m}", *small_opponents(m)), Goal(), Goal(), memory=True)
      for m, rows in (("1", "one row"), ("8", "eight rows"))),
    Gate("C10", "Adam step with FP8 states / fp32, plain AVX-512 loop",
         one("Adam/fp8", "Adam/plain_f32"), Goal(1.5, 2.15), Goal(1.45, 2.15), memory=True),
    Gate("C10b", "the same / fp32 by our kernels",
         one("Adam/fp8", "Adam/ours_f32"), Goal(), Goal(), memory=True),
    Gate("C10.bound", "Adam step with scales from bounds / fp32, plain AVX-512 loop",
         one("Adam/fp8_one_pass", "Adam/plain_f32"), Goal(1.5, 2.15), Goal(1.45, 2.15),
         memory=True),
    Gate("C10.coat", "Adam step with states in EXPANDED_128, 1e9 parameters a second",
         one("Adam/coat"), Goal(0.5), Goal(0.5), factor=1e-9),
    Gate("C11", "call through the table, descriptors built, minus direct call, ns",
         one("Boundary/built", "Boundary/direct"), Goal(10, 4), Goal(10, 4), Goal(10, 4),
         kind="extra_ns"),
    *(Gate(f"C11.{row}", f"linear_forward on empty kernels, {words}, minus direct call, ns",
           one(f"Forward/{row}", "Forward/direct"), goal, goal, goal, kind="extra_ns")
      for row, words, goal in (
          ("empty", "list and call built", Goal(10, 4)),
          ("store", "call built, list of a store", Goal(10, 4)),
          ("reference", "the reference backend's own work included", Goal()))),
    Gate("C12", "load of a plugin with handshake / dlopen",
         one("PluginLoad/handshake", "PluginLoad/dlopen"), Goal(2.0, 1.2), Goal(2.0, 1.2),
         Goal(2.0, 1.2), kind="time"),
    Gate("C12.small", "the same, the reference backend / dlopen",
         one("PluginLoad/handshake_small", "PluginLoad/dlopen_small"), Goal(2.0, 1.2),
         Goal(2.0, 1.2), Goal(2.0, 1.2), kind="time"),
    Gate("C12.load", "load of the reference backend with handshake, ms",
         one("PluginLoad/handshake_small"), Goal(0.1, 0.05), Goal(0.1, 0.05), Goal(0.1, 0.05),
         kind="ms"),
    *(Gate(f"C12.{row}", f"probe of 20 plugins, {words}, ms", one(f"PluginProbe/{row}"), goal, goal,
           goal, kind="ms")
      for row, words, goal in (("fresh", "nothing remembered", Goal(150, 40)),
                               ("cached", "read from the files of another process", Goal(20, 4)))),
    *(Gate(f"C13.W{w}", f"all-reduce of FP8 gradients / fp32, {w} threads",
           one(f"AllReduce/fp8/W{w}", f"AllReduce/f32/W{w}", f"AllReduce/f32_direct/W{w}"),
           Goal(1.5, 3.5), Goal(1.5, 3.5), memory=True) for w in (2, 4, 8)),
    Gate("C15", "bytes on the wire, msamp's reduction / fp32, 8 threads",
         one("AllReduce/msamp/W8", "AllReduce/f32/W8"), Goal(0.27, 0.254), Goal(0.27, 0.254),
         Goal(0.27, 0.254), kind="counter", counter="wire"),
)

# Goals that other programs hold.
ELSEWHERE = (
    ("C14", "error of the FP8 sum: ctest -R MsampErrorGrowth"),
    ("C16", "bits of all 2^32 casts: OCTAVO_STRIDE=1 ctest -L exhaustive"),
)
