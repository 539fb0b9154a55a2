// rows: with a scale from a slot, a row of y is the same whatever rows came with it.
//
// Padding must not show either, so every M from 1 to 33 is tried, at the start and at the end of
// the batch.
#include <cstring>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {

void check_rows(const Context &context) {
  Session s(context);
  s.add(standard_model());
  s.seal();
  Host host(s, context.seed);
  host.add_standard_batches();
  host.train_step();
  host.train_step();
  // Warm-up is over: a counter that forward reads stands where long training would leave it.
  for (uint32_t slot = 0; slot < s.slots().size(); ++slot) {
    const octavo_slot &d = s.slots()[slot].desc;
    if (d.role != OCTAVO_ROLE_COUNTER || d.dtype != OCTAVO_F32) continue;
    if (d.access[OCTAVO_VERB_FORWARD] != OCTAVO_ACCESS_READ) continue;
    for (uint64_t at = 0; at < host.bytes(slot); at += sizeof(float)) {
      encode(OCTAVO_F32, 1 << 20, host.address(slot) + at);
    }
  }
  host.quantize_weights();
  constexpr int64_t kRows = 33;
  bool any = false;
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    if (!s.forward_reads(id, OCTAVO_ROLE_SCALE)) continue;
    any = true;
    Batch &whole = host.add_batch({id, kRows, mix(context.seed, 400 + id)});
    host.forward(whole);
    const auto bytes = bytes_of(whole.y);
    const size_t width = bytes.size() / kRows;
    for (int64_t m = 1; m < kRows; ++m) {
      Batch &part = host.add_batch({id, m, 0});
      part.bias = whole.bias;
      for (const int64_t first : {int64_t{0}, kRows - m}) {
        for (int64_t row = 0; row < m; ++row) {
          std::memcpy(part.x.element(row, 0), whole.x.element(first + row, 0),
                      static_cast<size_t>(part.x.cols()) * sizeof(float));
        }
        host.forward(part);
        const auto begin = bytes.begin() + first * static_cast<int64_t>(width);
        const std::vector<uint8_t> expected(begin, begin + m * static_cast<int64_t>(width));
        expect_equal_bits(part.y, expected,
                          text("y of rows ", first, " to ", first + m - 1, " of '",
                               s.linears()[id].name, "' alone, against a batch of ", kRows));
      }
    }
  }
  if (!any) {
    throw Skip("current scaling: forward reads no scale slot, so the scale depends on the batch");
  }
}

}  // namespace octavo::conformance
