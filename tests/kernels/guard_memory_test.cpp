/* The guard pages themselves: what the other guard tests rely on does happen.
 *
 * Each death test does what a kernel with a mistake would do, through a volatile pointer, so that
 * no compiler can drop it.
 */
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include "tests/kernels/guard_case.h"

namespace octavo::test {
namespace {

uint8_t read_at(const uint8_t *address) {
  return *static_cast<const volatile uint8_t *>(address);
}

void write_at(uint8_t *address) {
  *static_cast<volatile uint8_t *>(address) = 1;
}

TEST(GuardedMemoryDeathTest, one_byte_too_far_faults) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{4096}, size_t{4097}}) {
    GuardedBuffer ends(bytes, Place::kEnd);
    EXPECT_DEATH(read_at(ends.data() + bytes), "") << bytes;
    GuardedBuffer begins(bytes, Place::kBegin);
    EXPECT_DEATH(read_at(begins.data() - 1), "") << bytes;
  }
}

TEST(GuardedMemoryDeathTest, a_write_to_an_input_faults) {
  GuardedBuffer buffer(17, Place::kEnd);
  write_at(buffer.data() + 16);
  buffer.set_writable(false);
  EXPECT_EQ(read_at(buffer.data() + 16), 1);
  EXPECT_DEATH(write_at(buffer.data()), "");
}

TEST(GuardedMemoryDeathTest, a_fault_names_the_case) {
  const FaultReport report("the case that is running");
  GuardedBuffer buffer(5, Place::kEnd);
  EXPECT_DEATH(read_at(buffer.data() + 5), "fault in: the case that is running");
}

/* The whole harness, with a matrix that is stated one element longer than it is: the read of the
 * kernel itself must fault, on every level. */
TEST(GuardedMemoryDeathTest, a_kernel_that_reads_too_far_faults) {
  for (const std::string &level : supported_levels()) {
    EXPECT_DEATH(
        {
          const Kernels kernels(1, level);
          const FaultReport report("compute_amax beyond its matrix");
          CallMemory memory(Place::kEnd);
          octavo_tensor in = memory.input(Matrix(OCTAVO_BF16, 3, 31).fill(1));
          in.cols = in.stride = in.cols + 1;
          auto c = make_call<octavo_compute_amax>(OCTAVO_KIND_COMPUTE_AMAX);
          c.in = &in;
          c.amax = memory.output(std::vector<float>{0.0f});
          memory.seal();
          kernels.table->compute_amax(kernels.ctx(), &c);
        },
        "fault in: compute_amax beyond its matrix")
        << level;
  }
}

TEST(GuardedMemory, every_byte_of_a_buffer_is_usable) {
  for (const Place place : {Place::kEnd, Place::kBegin}) {
    for (size_t bytes = 1; bytes <= 130; ++bytes) {
      GuardedBuffer buffer(bytes, place);
      std::memset(buffer.data(), 0, bytes);
      EXPECT_TRUE(buffer.margin_is_clean()) << bytes;
      EXPECT_EQ(read_at(buffer.data() + bytes - 1), 0);
    }
  }
}

TEST(GuardedMemory, a_write_to_the_margin_is_seen) {
  GuardedBuffer ends(100, Place::kEnd);
  write_at(ends.data() - 1);
  EXPECT_FALSE(ends.margin_is_clean());
  GuardedBuffer begins(100, Place::kBegin);
  write_at(begins.data() + 100);
  EXPECT_FALSE(begins.margin_is_clean());
  GuardedBuffer aligned(100, Place::kEnd, 256);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(aligned.data()) % 256, 0u);
  EXPECT_TRUE(aligned.margin_is_clean());
  write_at(aligned.data() + 255);
  EXPECT_FALSE(aligned.margin_is_clean());
}

void write_between_rows() {
  CallMemory memory(Place::kEnd);
  const octavo_tensor t = memory.output(Matrix(OCTAVO_E4M3FN, 3, 5, 2));
  memory.expect_clean();
  write_at(static_cast<uint8_t *>(t.data) + 7 + 5);
  memory.expect_clean();
}

/* Gives another result every time. */
octavo_status count_runs(const Kernels &, CallMemory &memory) {
  static float runs = 0.0f;
  runs += 1.0f;
  *memory.output(std::vector<float>{0.0f}) = runs;
  return OCTAVO_OK;
}

TEST(GuardedMemory, a_write_between_rows_is_seen) {
  EXPECT_FATAL_FAILURE(write_between_rows(), "between the rows of buffer 0 at byte 12");
}

TEST(GuardedMemory, a_difference_from_plain_memory_is_seen) {
  EXPECT_FATAL_FAILURE(expect_guarded("runs", count_runs), "output 0 of 1 differs at byte");
}

}  // namespace
}  // namespace octavo::test
