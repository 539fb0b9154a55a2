// Memory and random data of bench_cpu.
#include "tests/bench/bench.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace octavo::bench {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

struct Block {
  uint64_t bytes = 0;
  void *data = nullptr;
  void *mapped = nullptr;
  uint64_t mapped_bytes = 0;
};

Block map_block(uint64_t bytes) {
  const uint64_t size = (bytes / kHugePage + 2) * kHugePage;
  void *raw = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    std::fprintf(stderr, "bench_cpu: expected %llu bytes of memory, found too little\n",
                 static_cast<unsigned long long>(bytes));
    std::exit(2);
  }
  const auto address = reinterpret_cast<uintptr_t>(raw);
  void *aligned = reinterpret_cast<void *>((address + kHugePage - 1) / kHugePage * kHugePage);
  madvise(aligned, size - kHugePage, MADV_HUGEPAGE);  // without it rows are slower, not wrong
  // The first touch makes a page, full of zeros: not in the middle of a row.
  for (uint64_t i = 0; i < bytes; i += 4096) static_cast<volatile char *>(aligned)[i] = 0;
  return {bytes, aligned, raw, size};
}

// How many elements of data each name's memory holds.
std::map<std::string, int64_t> &filled() {
  static std::map<std::string, int64_t> names;
  return names;
}

// Whether memory of this name lacks `count` elements of data; it is about to get them.
bool needs_data(const std::string &name, int64_t count) {
  int64_t &have = filled()[name];
  if (have >= count) return false;
  have = count;
  return true;
}

constexpr int64_t kDistinct = 1 << 20;

size_t piece_of(int64_t count) {
  return static_cast<size_t>(count < kDistinct ? count : kDistinct);
}

// Fills `count` elements by repeating the first kDistinct.
void repeat(void *data, int64_t count, size_t width) {
  for (int64_t first = kDistinct; first < count; first += kDistinct) {
    std::memcpy(static_cast<char *>(data) + static_cast<size_t>(first) * width, data,
                piece_of(count - first) * width);
  }
}

const std::vector<float> &distinct_normals() {
  static const std::vector<float> values = [] {
    std::vector<float> v(kDistinct);
    std::mt19937 bits(20240607);
    std::normal_distribution<float> normal;
    for (float &value : v) value = normal(bits);
    return v;
  }();
  return values;
}

}  // namespace

bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

bool has_avx512_bf16() {
#if defined(__x86_64__)
  return has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

void *memory(const std::string &name, uint64_t bytes) {
  static std::map<std::string, Block> blocks;
  Block &block = blocks[name];
  if (block.data == nullptr || block.bytes < bytes) {
    if (block.data != nullptr) munmap(block.mapped, block.mapped_bytes);
    filled().erase(name);
    block = map_block(bytes);
  }
  return block.data;
}

float *normals(const std::string &name, int64_t count) {
  auto *values = memory_of<float>(name, count);
  if (!needs_data(name, count)) return values;
  std::memcpy(values, distinct_normals().data(), piece_of(count) * sizeof(float));
  repeat(values, count, sizeof(float));
  return values;
}

uint16_t *normals_bf16(const std::string &name, int64_t count) {
  auto *values = memory_of<uint16_t>(name, count);
  if (!needs_data(name, count)) return values;
  const auto piece = static_cast<int64_t>(piece_of(count));
  const octavo_tensor in = tensor(normals("distinct", kDistinct), 1, piece, OCTAVO_F32);
  octavo_tensor out = tensor(values, 1, piece, OCTAVO_BF16);
  auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
  c.in = &in;
  c.out = &out;
  if (kernels().dequantize(context(), &c) != OCTAVO_OK) std::exit(2);
  repeat(values, count, sizeof(uint16_t));
  return values;
}

octavo_tensor tensor(void *data, int64_t rows, int64_t cols, uint32_t dtype) {
  return {data, rows, cols, cols, dtype, 0};
}

octavo_scale tensor_scale(float *value) {
  return OCTAVO_SCALE(value, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
}

Codes codes(const std::string &name, int64_t rows, int64_t cols, uint32_t dtype) {
  const int64_t count = rows * cols;
  const Codes result = {tensor(memory(name, static_cast<uint64_t>(count)), rows, cols, dtype),
                        tensor_scale(memory_of<float>(name + ".scale_inv", 1))};
  if (!needs_data(name, count)) return result;
  const auto piece = static_cast<int64_t>(piece_of(count));
  const octavo_tensor in = tensor(normals("distinct", kDistinct), 1, piece, OCTAVO_F32);
  octavo_tensor out = tensor(result.tensor.data, 1, piece, dtype);
  auto c = make_call<octavo_quantize>(OCTAVO_KIND_QUANTIZE);
  c.in = &in;
  c.out = &out;
  c.out_scale_inv = &result.scale_inv;
  c.format_max = dtype == OCTAVO_E4M3FN ? 448.0f : 57344.0f;
  c.rule = OCTAVO_RULE_QUOTIENT;
  if (kernels().quantize(context(), &c) != OCTAVO_OK) std::exit(2);
  repeat(result.tensor.data, count, 1);
  return result;
}

bool pack(benchmark::State &state, const std::string &name, Codes *codes) {
  octavo_kernels_caps caps{};
  caps.size = sizeof(caps);
  if (!passed(state, kernels().describe(context(), &caps), "describe")) return false;
  const auto step = static_cast<int64_t>(caps.pack_rows);
  if (step == 0) {
    state.SkipWithError("the kernels have no panel order");
    return false;
  }
  const octavo_tensor in = codes->tensor;
  const int64_t rows = (in.rows + step - 1) / step * step;
  codes->tensor.data = memory(name, static_cast<uint64_t>(rows * in.cols));
  if (!needs_data(name, rows * in.cols)) return true;
  octavo_tensor out = tensor(codes->tensor.data, rows, in.cols, in.dtype);
  auto c = make_call<octavo_pack>(OCTAVO_KIND_PACK);
  c.in = &in;
  c.out = &out;
  return passed(state, kernels().pack(context(), &c), "pack");
}

bool passed(benchmark::State &state, octavo_status status, const char *what) {
  if (status == OCTAVO_OK) return true;
  state.SkipWithError((std::string(what) + " answered status " + std::to_string(status)).c_str());
  return false;
}

}  // namespace octavo::bench
