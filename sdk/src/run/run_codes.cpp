// The codes of a slot in row-major order, for every reader that is not a kernel.
//
// The order of packed codes is learned from the kernels themselves, which pack the numbers of the
// places, one byte of them at a time.
#include <cstring>

#include "sdk/src/base/dtype.h"
#include "sdk/src/run/run.h"

namespace {

// For each code of a packed panel [rows, cols], its place in the row-major panel.
std::vector<uint64_t> places_of(const octavo_session_desc &d, uint32_t dtype, int64_t rows,
                                int64_t cols) {
  const uint64_t n = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
  std::vector<uint64_t> places(n);
  std::vector<uint8_t> numbers(n), packed(n);
  for (unsigned shift = 0; shift < 64 && (n - 1) >> shift != 0; shift += 8) {
    for (uint64_t i = 0; i < n; ++i) numbers[i] = static_cast<uint8_t>(i >> shift);
    const octavo_tensor in{numbers.data(), rows, cols, cols, dtype, 0};
    octavo_tensor out{packed.data(), rows, cols, cols, dtype, 0};
    octavo_pack call{};
    call.size = sizeof(call);
    call.kind = OCTAVO_KIND_PACK;
    call.in = &in;
    call.out = &out;
    if (const octavo_status status = d.kernels->pack(d.kernels_ctx, &call); status != OCTAVO_OK)
      octavo::fail_run(status, "octavo_run_codes: the kernels failed to pack a panel of ", rows,
                       " x ", cols, ": status ", status);
    for (uint64_t i = 0; i < n; ++i) places[i] |= uint64_t{packed[i]} << shift;
  }
  for (const uint64_t place : places)
    if (place >= n)
      octavo::fail_run(OCTAVO_INTERNAL, "octavo_run_codes: the kernels pack more than an order");
  return places;
}

}  // namespace

void octavo_run::codes(uint32_t slot, const void *memory, void *out) const {
  if (slot >= slots_.size())
    octavo::fail_run(OCTAVO_INVALID, "octavo_run_codes: expected a slot below ", slots_.size(),
                     ", found ", slot);
  const octavo_slot &s = slots_[slot];
  const uint64_t bytes = octavo::slot_bytes(s);
  if ((s.flags & OCTAVO_SLOT_PACKED) == 0) {
    std::memcpy(out, memory, bytes);
    return;
  }
  if (negotiation_.device->memory() != nullptr)
    octavo::fail_run(OCTAVO_UNSUPPORTED, "octavo_run_codes: slot ", slot,
                     " is packed in the order ",
                     "of a device with separate memory; expected a CPU");
  const auto panel_rows = static_cast<int64_t>(session_desc_.caps->pack_rows);
  const std::vector<uint64_t> places = places_of(session_desc_, s.dtype, panel_rows, s.cols);
  const auto *from = static_cast<const uint8_t *>(memory);
  auto *to = static_cast<uint8_t *>(out);
  for (uint64_t first = 0; first < bytes; first += places.size())
    for (uint64_t i = 0; i < places.size(); ++i) to[first + places[i]] = from[first + i];
}
