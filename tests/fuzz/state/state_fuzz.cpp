// libFuzzer target of the header of checkpoints: 4 bytes of data length, then any bytes as its
// JSON.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "sdk/src/base/failure.h"
#include "sdk/src/checkpoint/checkpoint_header.h"
#include "tests/fuzz/expect.h"

namespace octavo::fuzz {
namespace {

constexpr const char *kWhere = "rank-0000-of-0001.safetensors";

CheckpointHeader parsed(std::string_view json, uint64_t data_bytes) {
  return parse_header(json, data_bytes, kWhere);
}

// Every byte of the data belongs to exactly one tensor.
void check_covered(const CheckpointHeader &header, uint64_t data_bytes) {
  uint64_t sum = 0;
  for (const auto &[name, t] : header.tensors) {
    expect(t.begin <= t.end && t.end <= data_bytes, "tensors lie inside the file", name);
    expect(t.shape.size() <= kMaxShape && checkpoint_dtype_bytes(t.dtype) != 0, "a known tensor",
           name);
    sum += t.end - t.begin;
  }
  expect(sum == data_bytes && header.data_bytes() == data_bytes, "no byte is left over or shared");
}

// A header that is accepted can be laid out and written, and says the same when it is read again.
void check_again(CheckpointHeader header, uint64_t data_bytes) {
  lay_out(header);
  const std::string file = write_header(header, kWhere);
  expect(file.size() % 8 == 0 && file.size() >= 8, "data starts at a multiple of 8 bytes");
  const CheckpointHeader again = parsed(std::string_view(file).substr(8), data_bytes);
  check_covered(again, data_bytes);
  expect(again.metadata == header.metadata, "the texts read back");
  expect(again.tensors.size() == header.tensors.size(), "no tensor is lost");
  for (const auto &[name, t] : header.tensors) {
    const CheckpointTensor &found = again.tensors.at(name);
    expect(found.dtype == t.dtype && found.shape == t.shape && found.begin == t.begin &&
               found.end == t.end,
           "every tensor reads back", name);
  }
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace octavo::fuzz;
  uint32_t length = 0;
  if (size < sizeof(length)) return 0;
  std::memcpy(&length, data, sizeof(length));
  octavo::CheckpointHeader header;
  try {
    header = parsed({reinterpret_cast<const char *>(data) + sizeof(length), size - sizeof(length)},
                    length);
  } catch (const octavo::Failure &f) {
    expect(f.status() == OCTAVO_INVALID && f.text().starts_with(kWhere), "a typed refusal",
           f.text());
    return 0;
  }
  check_covered(header, length);
  try {
    check_again(std::move(header), length);
  } catch (const octavo::Failure &f) {
    broken("what was read can be written and read", f.text());
  }
  return 0;
}
