"""What machine code and bytes predict for the goals G1 to G13, on a device of compute capability 9.0.

A kernel takes for each element at least its bytes over the bandwidth of a copy, and its instructions
over the rate at which schedulers issue them: 32 lanes, 4 schedulers, all multiprocessors, each clock.
Latencies and full queues come on top, so shares are ceilings.
"""
import csv
import dataclasses
import io


@dataclasses.dataclass
class Device:
    name: str
    copy: float       # bytes a second, read and written
    clock: float = 1.7e9
    multiprocessors: int = 132
    fp8: float = 1350e12   # operations a second that products reach on random values
    bf16: float = 780e12
    kernel: float = 2e-6   # seconds: the least that a kernel takes in a graph
    launch: float = 2.5e-6  # of the host

    @property
    def issue(self):
        return 32 * 4 * self.multiprocessors * self.clock


DEVICES = (Device("H100", 3.08e12), Device("H200", 4.3e12))
ARCH = "90"
TOKENS, WIDTH = 15872, 4096
LINEARS = ((3 * WIDTH, WIDTH), (WIDTH, WIDTH), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH))  # N, K
SHARES = (0.2, 0.3, 0.4)  # of a bf16 step that is no linear layer


class Model:
    def __init__(self, device, measured):
        self.device = device
        self.instr = {kernel: float(row["instr"]) for (kernel, arch), row in measured.items() if arch == ARCH}

    def seconds(self, moved, *kernels):
        """Of one element, of which the kernels move so many bytes together."""
        return max(moved / self.device.copy, sum(self.instr[k] for k in kernels) / self.device.issue)

    def share(self, moved, *kernels):
        """Bytes a second over those of a copy."""
        return moved / self.device.copy / self.seconds(moved, *kernels)

    def cast(self, delayed=True, transposed=False):
        cast = self.seconds(4, "cast_kernel") if transposed else self.seconds(3, "cast_rows_kernel")
        return cast + (0 if delayed else self.seconds(2, "measure_kernel"))

    def products_over_all(self, delayed):
        products = casts = 0.0
        for n, k in LINEARS:
            for a, b, c in ((TOKENS, n, k), (TOKENS, k, n), (n, k, TOKENS)):
                products += 2 * a * b * c / self.device.fp8
                casts += (a + b) * c * self.cast(delayed)
        return products / (products + casts)

    def layers(self):
        """Seconds of the four linears in FP8 and in bf16, and of what this device allows in FP8."""
        ours = limit = bf16 = 0.0
        for n, k in LINEARS:
            operations = 3 * 2 * TOKENS * n * k
            elements = TOKENS * k + n * k + TOKENS * n
            bias = TOKENS * n
            ours += operations / self.device.fp8 + elements * self.cast(transposed=True) + \
                bias * self.seconds(2, "sum_rows_kernel")
            limit += operations / self.device.fp8 + (4 * elements + 2 * bias) / self.device.copy
            bf16 += operations / self.device.bf16 + 2 * bias / self.device.copy
        return ours, limit, bf16

    def small(self, m, width):
        """bf16 over FP8 of a small layer in a graph: 3 products, and 3 casts with FP8."""
        d = self.device
        operations, elements = 2 * m * width * width, (2 * m + width) * width
        bf16 = 3 * max(d.kernel, operations / d.bf16)
        fp8 = 3 * max(d.kernel, operations / d.fp8) + \
            max(3 * d.kernel, elements * self.cast(transposed=True))
        return bf16 / fp8

    def adam(self, passes):
        """torch's 28 bytes over passes, (bytes, kernel) each."""
        return 28 / self.device.copy / sum(self.seconds(*one) for one in passes)

    def sums(self):
        return min(self.share(1 + 1 / ranks, "sum_quantized_kernel") for ranks in (2, 4, 8, 16))


EXACT = (6, "measure_adam_kernel"), (11, "write_adam_kernel")
BOUND = (1, "peak_adam_kernel"), (11, "pass_adam_kernel")


def shares_of_training(model):
    ours, _, bf16 = model.layers()
    return " to ".join(f"{1 / (r + (1 - r) * ours / bf16):.2f}" for r in (SHARES[-1], SHARES[0]))


def rows(models):
    def each(of):
        return [of(m) if isinstance(of(m), str) else f"{of(m):.2f}" for m in models]
    i = models[0].instr

    def limit(m):
        return m.layers()[1] / m.layers()[0]
    small = [(m, w) for w in (512, 1024, 2048) for m in (256, 1024, 4096)]
    yield "G1", "the same library and algorithm as torch's: not our code", each(lambda m: 1.0)
    yield "G2", "rates of products, 1350 over 780 TFLOP/s", each(lambda m: m.device.fp8 / m.device.bf16)
    yield "G3, G4", "products of cuBLASLt: not our code", ["-" for _ in models]
    yield "G5", f"cast: 3 bytes, {i['cast_rows_kernel']} instructions an element", \
        each(lambda m: m.share(3, "cast_rows_kernel"))
    yield "G6", f"cast and transpose: 4 bytes, {i['cast_kernel']} instructions", \
        each(lambda m: m.share(4, "cast_kernel"))
    yield "G7 current", f"and 2 bytes, {i['measure_kernel']} instructions to measure", \
        each(lambda m: m.products_over_all(False))
    yield "G7 delayed", "products, and casts as in G5", each(lambda m: m.products_over_all(True))
    yield "G8", f"products, casts as in G6, and sums of columns: {i['sum_rows_kernel']} instructions", each(limit)
    yield "G9", "worst with only FP8, at 2 us a kernel; a policy that takes bf16 there: 1.00", \
        each(lambda m: min(m.small(*s) for s in small))
    yield "G10", "a cast and a product, 2.5 us a launch", each(lambda m: f"{2e6 * m.device.launch:.1f} us")
    yield "G11", (f"28 bytes over 6 and 11, {i['measure_adam_kernel']} and "
                  f"{i['write_adam_kernel']} instructions"), each(lambda m: m.adam(EXACT))
    yield "G11b", (f"28 bytes over 1 and 11, {i['peak_adam_kernel']} and "
                   f"{i['pass_adam_kernel']} instructions"), each(lambda m: m.adam(BOUND))
    yield "G12", f"sums: a byte and {i['sum_quantized_kernel']} instructions a code", each(lambda m: m.sums())
    yield "G13", f"linears as in G8, and {SHARES[0]:.0%} to {SHARES[-1]:.0%} of a bf16 step for all else", \
        each(shares_of_training)


def table(measured):
    """docs/results/cuda_model.csv."""
    models = [Model(d, measured) for d in DEVICES]
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["Goal", "From", *(f"{d.name}, {d.copy / 1e12:.2f} TB/s" for d in DEVICES)])
    out.writerows([goal, source, *values] for goal, source, values in rows(models))
    return text.getvalue()
