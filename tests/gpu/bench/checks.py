"""Each kind of call against torch's arithmetic, so that what is timed is also right."""
import torch

from gpu_kernels import BLOCK_128X128, BLOCK_1X128, PER_ROW, PER_TENSOR, Codes

M, N, K = 144, 256, 384


def check_casts(bench):
    for granularity in (PER_TENSOR, PER_ROW, BLOCK_1X128, BLOCK_128X128):
        source = bench.random(M, K)
        codes = Codes(M, K, bench.device, granularity, transposed=granularity == PER_TENSOR)
        bench.kernels.quantize(source, codes)()
        # Half a step of 3 bits of mantissa: 2^-4 of a value, or of 0.02 where codes may be subnormal.
        worst = ((codes.decoded() - source.float()).abs() / source.float().abs().clamp_min(2e-2)).max()
        if not worst <= 2 ** -4 * 1.01:
            yield f"cast of granularity {granularity}: an error of {worst:.4f} of a value"
        if codes.out_t is not None and not torch.equal(codes.out_t.view(torch.uint8),
                                                       codes.out.view(torch.uint8).t()):
            yield "the transpose of a cast has other codes"


def check_products(bench):
    pairs = ((PER_TENSOR, PER_TENSOR), (PER_ROW, PER_ROW), (BLOCK_1X128, BLOCK_128X128))
    for a_kind, b_kind in pairs:
        a, b = Codes(M, K, bench.device, a_kind), Codes(N, K, bench.device, b_kind)
        for codes, rows in ((a, M), (b, N)):
            bench.kernels.quantize(bench.random(rows, K), codes)()
        out = torch.empty(M, N, device=bench.device, dtype=torch.bfloat16)
        bias = bench.random(1, N)
        bench.kernels.multiply(a, b, out, fast=False, bias=bias)()
        left, right = a.decoded().double(), b.decoded().double()
        exact = left @ right.t() + bias.double()
        # One rounding to bf16, and that of sums of 128 products: tests/gpu/gemm_test.cpp.
        bound = 2 ** -8 * exact.abs() + 4 * 2 ** -13 * (left.abs() @ right.abs().t())
        if not ((out.double() - exact).abs() <= bound).all():
            yield f"product of granularities {a_kind} and {b_kind} is further off than rounding"


def check_sums(bench):
    codes = torch.randn(4, 3000, device=bench.device).to(torch.float8_e4m3fn)
    out = torch.empty(3000, dtype=torch.float8_e4m3fn, device=bench.device)
    bench.kernels.sum_quantized(codes, out)()
    total = codes[0].float()
    for shard in codes[1:]:
        total = total + shard.float()
    if not torch.equal(out.view(torch.uint8), total.to(torch.float8_e4m3fn).view(torch.uint8)):
        yield "the sum of codes has other codes"


def check_columns(bench):
    source, out = bench.random(M, N), torch.empty(1, N, device=bench.device)
    bench.kernels.sum_rows(source, out)()
    exact = source.double().sum(0)
    if not torch.equal(out[0], exact.float()):  # sums in fp64 of 144 values of 8 bits are exact
        yield "sums of columns are not exact"


def check_all(bench):
    """What is wrong, as texts; empty when nothing is."""
    return [*check_casts(bench), *check_products(bench), *check_sums(bench), *check_columns(bench)]
