// identity: accumulators may live anywhere, start at zero, and be combined by the host.
//
// Maxima are compared bit for bit. Sums depend on the order of additions, so they are compared to a
// few units in the last place.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

float load(const uint8_t *p) {
  float value = 0;
  std::memcpy(&value, p, sizeof value);
  return value;
}

void expect_same_accumulator(const octavo_slot &desc, float found, float expected,
                             const std::string &what) {
  const bool same = desc.combine == OCTAVO_COMBINE_SUM
                        ? std::fabs(found - expected) <= 0x1p-20F * std::fabs(expected)
                        : !(found < expected) && !(expected < found);
  expect(same, what, " should be ", expected, " but is ", found);
}

// Forward and backward of every batch, each call with zeroed accumulators, combined here.
Accumulators combined(Host &host) {
  Accumulators own = host.make_accumulators("one call");
  Accumulators total = host.make_accumulators("all calls");
  for (const auto &[slot, memory] : total)
    std::memcpy(memory, host.address(slot), host.bytes(slot));
  Call call;
  call.own = &own;
  const auto merge = [&] {
    for (const auto &[slot, memory] : own) {
      const octavo_slot &desc = host.session().slots()[slot].desc;
      for (uint64_t at = 0; at < host.bytes(slot); at += sizeof(float)) {
        const float old = load(total[slot] + at);
        const float part = load(memory + at);
        const float now = desc.combine == OCTAVO_COMBINE_SUM ? old + part : std::max(old, part);
        std::memcpy(total[slot] + at, &now, sizeof now);
      }
      std::memset(memory, 0, host.bytes(slot));
    }
  };
  for (Batch &batch : host.batches()) {
    host.forward(batch, call);
    merge();
  }
  for (Batch &batch : host.batches()) {
    host.backward(batch, call);
    merge();
  }
  return total;
}

}  // namespace

void check_identity(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  host.quantize_weights();
  const Snapshot start = host.arena().snapshot();
  for (Batch &batch : host.batches()) host.forward(batch);
  for (Batch &batch : host.batches()) host.backward(batch);
  const Snapshot in_place = host.arena().snapshot();

  host.arena().restore(start);
  const Accumulators total = combined(host);
  for (const auto &[slot, memory] : total) {
    const uint64_t begin = host.arena().offset(host.address(slot));
    for (uint64_t at = 0; at < host.bytes(slot); at += sizeof(float)) {
      expect_same_accumulator(s.slots()[slot].desc, load(memory + at),
                              load(in_place.data() + begin + at),
                              text(host.slot_name(slot), ", column ", at / sizeof(float),
                                   ", combined outside from zeroed accumulators"));
      expect(host.address(slot)[at] == start[begin + at], host.slot_name(slot),
             " changed although the calls got other accumulators");
    }
  }

  host.arena().restore(start);
  Call silent;
  silent.record = false;
  for (Batch &batch : host.batches()) host.forward(batch, silent);
  for (Batch &batch : host.batches()) host.backward(batch, silent);
  const Snapshot unrecorded = host.arena().snapshot();
  for (const Region &region : host.arena().regions()) {
    if (region.use == Use::kWorkspace || region.begin >= start.size()) continue;
    bool accumulator = false;
    for (const auto &[slot, memory] : total) {
      accumulator = accumulator || host.arena().offset(host.address(slot)) == region.begin;
    }
    const Snapshot &expected = accumulator ? start : in_place;
    for (uint64_t at = region.begin; at < region.begin + region.bytes; ++at) {
      if (unrecorded[at] == expected[at]) continue;
      throw Failure(text("with null for every ACCUMULATE slot, ", host.arena().describe(at),
                         accumulator ? " changed" : " differs from a recording run"));
    }
  }

  // Slots may be elsewhere in each call, so a backend keeps no address.
  for (Batch &batch : host.batches()) {
    const uint32_t weight = s.linears()[batch.spec.linear].weight;
    const auto results = [&](bool moves) {
      host.arena().restore(start);
      host.quantize_weight(weight);
      if (moves) host.move_slots();
      host.forward(batch);
      if (moves) host.move_slots();
      host.backward(batch);
      return std::vector{values_of(batch.y), values_of(batch.dx), values_of(batch.db),
                         host.gradient(weight)};
    };
    const auto expected = results(false);
    expect(results(true) == expected, "y, dx, db or dw of ", batch.name,
           " differs if every slot has another address after quantize_weight and after forward");
  }
}

void check_splits(const Context &context) {
  Session s(context);
  s.add(standard_model());
  s.seal();
  Host host(s, context.seed);
  // What is largest stands in row `largest`: behind the first ones, or before the last call. Sums
  // may depend on a scale of the batch then. With -1 each row has the amax of all.
  const auto compare = [&](uint32_t id, int64_t largest,
                           const std::vector<std::vector<int64_t>> &splits) {
    const int64_t rows_of_all = splits.front().front();
    Batch whole = host.add_batch({id, rows_of_all, mix(context.seed, 300 + id)});
    for (Matrix *m : {&whole.x, &whole.dy}) {
      for (int64_t row = 0; row < rows_of_all; ++row) m->set(row, 0, 2);
      if (largest >= 0) m->set(largest, 0, 4);
    }
    host.quantize_weight(s.linears()[id].weight);
    const Accumulators own = host.make_accumulators("a split");
    Call call;
    call.own = &own;
    std::vector<float> expected;
    for (const std::vector<int64_t> &split : splits) {
      for (const auto &[slot, memory] : own) std::memset(memory, 0, host.bytes(slot));
      int64_t first = 0;
      for (const int64_t rows : split) {
        Batch &part = host.add_batch({id, rows, 0});
        const auto copy_rows = [&](const Matrix &from, Matrix &to) {
          for (int64_t row = 0; row < rows; ++row) {
            for (int64_t col = 0; col < from.cols(); ++col) {
              to.set(row, col, from.at(first + row, col));
            }
          }
        };
        copy_rows(whole.x, part.x);
        copy_rows(whole.dy, part.dy);
        host.forward(part, call);
        host.backward(part, call);
        first += rows;
      }
      std::vector<float> found;
      std::vector<uint32_t> slots;
      for (const auto &[slot, memory] : own) {
        if (largest >= 0 && s.slots()[slot].desc.combine == OCTAVO_COMBINE_SUM) continue;
        for (uint64_t at = 0; at < host.bytes(slot); at += sizeof(float)) {
          found.push_back(load(memory + at));
          slots.push_back(slot);
        }
      }
      if (expected.empty()) expected = found;
      for (size_t i = 0; i < found.size(); ++i) {
        expect_same_accumulator(s.slots()[slots[i]].desc, found[i], expected[i],
                                text(host.slot_name(slots[i]), " after ", split.size(),
                                     " micro-batches of '", s.linears()[id].name, "'"));
      }
    }
  };
  for (uint32_t id = 0; id < s.linears().size(); ++id)
    compare(id, -1, {{24}, {12, 12}, {1, 23}, {7, 9, 8}, std::vector<int64_t>(24, 1)});
  if (const auto row = s.find_linear("row"))
    for (const int64_t largest : {0, 299}) compare(*row, largest, {{300}, {150, 150}, {299, 1}});
  if (host.make_accumulators("nothing").empty()) {
    throw Skip("no slot is accumulated: the backend keeps no amax between calls");
  }
}

}  // namespace octavo::conformance
