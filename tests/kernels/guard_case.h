/* tests/kernels/guard_case.h: one call of a verb in hostile memory, on every level.
 *
 * A case is a function that takes its tensors from a CallMemory and calls a verb. It runs on plain
 * memory with the baseline level first; then each level, with one thread and with three, must give
 * the same bytes in every output while each buffer touches a guard page and inputs are read-only.
 */
#ifndef OCTAVO_TESTS_KERNELS_GUARD_CASE_H
#define OCTAVO_TESTS_KERNELS_GUARD_CASE_H

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "tests/kernels/block_matrices.h"
#include "tests/kernels/fake_host.h"
#include "tests/kernels/guarded_memory.h"
#include "tests/kernels/matrices.h"

namespace octavo::test {

/* The sizes that cross the borders of vectors, tiles and blocks. */
constexpr int64_t kGuardSizes[] = {1, 15, 17, 63, 65, 217};

/* The memory of one call: guarded where it has a place, plain without one. */
class CallMemory {
 public:
  explicit CallMemory(std::optional<Place> place) : place_(place) {}

  octavo_tensor input(const Matrix &m) { return tensor(m, false); }
  octavo_tensor output(const Matrix &m) { return tensor(m, true); }
  octavo_scale input(const Scales &s) { return scale(s, false); }
  octavo_scale output(const Scales &s) { return scale(s, true); }
  const float *input(const std::vector<float> &values) { return floats(values, false); }
  float *output(const std::vector<float> &values) { return floats(values, true); }
  /* An address that the call does not change. */
  float *kept(const std::vector<float> &values) { return floats(values, false); }
  void *input_bytes(const std::vector<uint8_t> &bytes) {
    return add(bytes.data(), bytes.size(), 1, false);
  }
  void *output_bytes(const std::vector<uint8_t> &bytes) {
    return add(bytes.data(), bytes.size(), 1, true);
  }
  int32_t *output(int32_t value) {
    return static_cast<int32_t *>(static_cast<void *>(
        add(reinterpret_cast<const uint8_t *>(&value), sizeof(value), 1, true)));
  }
  /* Of exactly `bytes`, filled with NaN; as tensor.h promises, it starts at a multiple of 256. */
  void *workspace(uint64_t bytes) {
    const std::vector<uint8_t> poison(bytes, GuardedBuffer::kMargin);
    uint8_t *data = add(poison.data(), poison.size(), 256, true);
    buffers_.back().is_scratch = true;
    return data;
  }

  /* From here on inputs cannot be written. */
  void seal() {
    for (Buffer &b : buffers_) {
      if (b.guarded && !b.is_output) b.guarded->set_writable(false);
    }
  }

  /* All outputs, one after the other; contents of a workspace mean nothing. */
  std::vector<std::vector<uint8_t>> results() const {
    std::vector<std::vector<uint8_t>> all;
    for (const Buffer &b : buffers_) {
      if (b.is_output && !b.is_scratch) all.emplace_back(b.data, b.data + b.bytes);
    }
    return all;
  }

  /* Nothing around a buffer and nothing between the rows of an output was written. */
  void expect_clean() const {
    int index = 0;
    for (const Buffer &b : buffers_) {
      if (b.guarded) {
        ASSERT_TRUE(b.guarded->margin_is_clean()) << "written around buffer " << index;
      }
      for (size_t at = b.row; b.row > 0 && at < b.bytes; at += b.pitch) {
        for (size_t i = at; i < at + b.pitch - b.row; ++i) {
          ASSERT_EQ(b.data[i], Matrix::kFiller)
              << "written between the rows of buffer " << index << " at byte " << i;
        }
      }
      ++index;
    }
  }

 private:
  struct Buffer {
    std::unique_ptr<GuardedBuffer> guarded;
    std::vector<uint8_t> plain;
    uint8_t *data = nullptr;
    size_t bytes = 0;
    size_t row = 0;   /* bytes of one row; 0: not a matrix with gaps */
    size_t pitch = 0; /* bytes between the starts of two rows */
    bool is_output = false;
    bool is_scratch = false;
  };

  uint8_t *add(const uint8_t *content, size_t bytes, size_t alignment, bool is_output) {
    Buffer &b = buffers_.emplace_back();
    b.bytes = bytes;
    b.is_output = is_output;
    if (place_) {
      b.guarded = std::make_unique<GuardedBuffer>(bytes, *place_, alignment);
      b.data = b.guarded->data();
    } else {
      b.plain.resize(bytes + alignment);
      b.data = b.plain.data();
      const size_t rest = reinterpret_cast<uintptr_t>(b.data) % alignment;
      if (rest != 0) b.data += alignment - rest;
    }
    if (bytes > 0) std::memcpy(b.data, content, bytes);
    return b.data;
  }

  /* The last row ends with its last element: there is no gap behind it. */
  uint8_t *add_rows(const std::vector<uint8_t> &data, int64_t rows, int64_t cols, int64_t stride,
                    size_t element_bytes, bool is_output) {
    const size_t pitch = static_cast<size_t>(stride) * element_bytes;
    const size_t row = static_cast<size_t>(cols) * element_bytes;
    const size_t bytes = rows == 0 ? 0 : static_cast<size_t>(rows - 1) * pitch + row;
    uint8_t *at = add(data.data(), bytes, 1, is_output);
    if (stride > cols) {
      buffers_.back().row = row;
      buffers_.back().pitch = pitch;
    }
    return at;
  }

  octavo_tensor tensor(const Matrix &m, bool is_output) {
    octavo_tensor t = *m.tensor();
    t.data =
        add_rows(m.data(), t.rows, t.cols, t.stride, OCTAVO_DTYPE_BITS(t.dtype) / 8, is_output);
    return t;
  }
  octavo_scale scale(const Scales &s, bool is_output) {
    octavo_scale copy = *s.get();
    copy.data = add_rows(s.data(), s.rows(), s.cols(), copy.stride,
                         OCTAVO_DTYPE_BITS(copy.dtype) / 8, is_output);
    return copy;
  }
  float *floats(const std::vector<float> &values, bool is_output) {
    return static_cast<float *>(
        static_cast<void *>(add(reinterpret_cast<const uint8_t *>(values.data()),
                                values.size() * sizeof(float), 1, is_output)));
  }

  std::optional<Place> place_;
  std::deque<Buffer> buffers_; /* references stay valid while it grows */
};

using GuardCase = std::function<octavo_status(const Kernels &kernels, CallMemory &memory)>;

/* Every level that this CPU has, with one thread and with three, opened once. */
struct GuardLevel {
  std::string name;
  std::unique_ptr<Kernels> kernels;
};
inline const std::vector<GuardLevel> &guard_levels() {
  static const std::vector<GuardLevel> levels = [] {
    std::vector<GuardLevel> all;
    for (const std::string &level : supported_levels()) {
      for (const int threads : {1, 3}) {
        all.push_back({level + ", threads " + std::to_string(threads),
                       std::make_unique<Kernels>(threads, level)});
      }
    }
    return all;
  }();
  return levels;
}

inline void expect_guarded(const std::string &name, const GuardCase &run) {
  static const Kernels plain_kernels(1, "baseline");
  CallMemory plain(std::nullopt);
  ASSERT_EQ(run(plain_kernels, plain), OCTAVO_OK)
      << name << ": " << plain_kernels.host().last_text();
  ASSERT_NO_FATAL_FAILURE(plain.expect_clean()) << name;
  const std::vector<std::vector<uint8_t>> expected = plain.results();
  for (const GuardLevel &level : guard_levels()) {
    for (const Place place : {Place::kEnd, Place::kBegin}) {
      const std::string where =
          name + "; " + level.name + (place == Place::kEnd ? ", guard behind" : ", guard before");
      const FaultReport report(where);
      CallMemory memory(place);
      ASSERT_EQ(run(*level.kernels, memory), OCTAVO_OK)
          << where << ": " << level.kernels->host().last_text();
      ASSERT_NO_FATAL_FAILURE(memory.expect_clean()) << where;
      const std::vector<std::vector<uint8_t>> found = memory.results();
      ASSERT_EQ(found.size(), expected.size()) << where;
      for (size_t i = 0; i < found.size(); ++i) {
        const auto differs =
            std::mismatch(found[i].begin(), found[i].end(), expected[i].begin(), expected[i].end());
        ASSERT_TRUE(differs.first == found[i].end())
            << where << ": output " << i << " of " << found.size() << " differs at byte "
            << differs.first - found[i].begin() << " of " << found[i].size();
      }
    }
  }
}

/* dequantize of a copy of `in` onto a copy of `out`; scale(memory) brings the multipliers there, or
 * none. */
template <typename Scale>
void expect_guarded_dequantize(const std::string &name, const Matrix &in, const Matrix &out,
                               uint32_t accumulate, const Scale &scale) {
  expect_guarded(name, [&](const Kernels &kernels, CallMemory &memory) {
    auto c = make_call<octavo_dequantize>(OCTAVO_KIND_DEQUANTIZE);
    const octavo_tensor from = memory.input(in);
    octavo_tensor to = memory.output(out);
    const std::optional<octavo_scale> scale_inv = scale(memory);
    c.in = &from;
    c.out = &to;
    c.scale_inv = scale_inv ? &*scale_inv : nullptr;
    c.accumulate = accumulate;
    memory.seal();
    return kernels.table->dequantize(kernels.ctx(), &c);
  });
}

/* "17 x 65" */
inline std::string shape_text(int64_t rows, int64_t cols) {
  return std::to_string(rows) + " x " + std::to_string(cols);
}

inline std::string dtype_text(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32: return "f32";
    case OCTAVO_BF16: return "bf16";
    case OCTAVO_F16: return "f16";
    case OCTAVO_E4M3FN: return "e4m3";
    default: return "e5m2";
  }
}

}  // namespace octavo::test

#endif
