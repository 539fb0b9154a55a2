// The casts of kernels/cpu to codes of four bits on raw files, for comparison with other libraries.
//
// Usage: fp4_probe <folder> <rows> <cols>
// Reads in.f32 [rows, cols] from the folder; both sizes are multiples of 16. Writes, for each of
// the ways plain, square and hadamard, the codes and scales of the rows and of the columns and the
// two amax: <way>.codes, .scales, .codes_t, .scales_t (bytes) and .amax (two float32). Exit codes:
// 0; 1 with the reason on stderr; 2 when the arguments are wrong.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/kernels/fp4_case.h"

namespace {

using octavo::test::Fp4Cast;
using octavo::test::Fp4Codes;

std::vector<char> read(const std::string &path, size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> content{std::istreambuf_iterator<char>(file), {}};
  if (content.size() != bytes)
    throw std::runtime_error(path + ": expected " + std::to_string(bytes) + " bytes, found " +
                             std::to_string(content.size()));
  return content;
}

// Without the guard at the end.
void write(const std::string &path, const void *data, size_t bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char *>(data), static_cast<std::streamsize>(bytes));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

void cast(octavo::test::Kernels *kernels, const octavo_tensor &in, const std::string &prefix,
          bool square, uint32_t flags) {
  Fp4Codes out(in.rows, in.cols, square), out_t(in.cols, in.rows, square);
  if (Fp4Cast{in, &out, &out_t, flags}.run(kernels) != OCTAVO_OK)
    throw std::runtime_error(kernels->host().last_text());
  const float amax[] = {out.second, out_t.second};
  write(prefix + ".codes", out.codes.data(), out.codes.size() - 1);
  write(prefix + ".scales", out.scales.data(), out.scales.size() - 1);
  write(prefix + ".codes_t", out_t.codes.data(), out_t.codes.size() - 1);
  write(prefix + ".scales_t", out_t.scales.data(), out_t.scales.size() - 1);
  write(prefix + ".amax", amax, sizeof(amax));
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 4 || std::atoll(argv[2]) < 16 || std::atoll(argv[3]) < 16) {
    std::fprintf(stderr, "usage: fp4_probe <folder> <rows> <cols>\n");
    return 2;
  }
  try {
    const std::string folder = std::string(argv[1]) + "/";
    const int64_t rows = std::atoll(argv[2]), cols = std::atoll(argv[3]);
    std::vector<char> values =
        read(folder + "in.f32", static_cast<size_t>(rows * cols) * sizeof(float));
    const octavo_tensor in{values.data(), rows, cols, cols, OCTAVO_F32, 0};
    octavo::test::Kernels kernels(0);
    cast(&kernels, in, folder + "plain", false, 0);
    cast(&kernels, in, folder + "square", true, 0);
    cast(&kernels, in, folder + "hadamard", false, OCTAVO_FP4_HADAMARD);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}
