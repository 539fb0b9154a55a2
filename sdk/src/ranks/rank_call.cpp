// The arithmetic of the in-process collectives.
#include "sdk/src/ranks/rank_call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "sdk/src/base/dtype.h"

namespace octavo {
namespace {

// Half of what a pointer can span: the sum of two ranges cannot wrap.
constexpr uint64_t kMaxBytes = static_cast<uint64_t>(INT64_MAX);

bool reduces(uint32_t collective) {
  return collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX ||
         collective == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM ||
         collective == OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM;
}

bool all_reduces(uint32_t collective) {
  return collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX ||
         collective == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM;
}

// Whether `whole` elements are `world` parts of `part`.
bool is_multiple(uint64_t whole, uint64_t part, uint64_t world) {
  return whole % world == 0 && whole / world == part;
}

bool asks_the_same(const RankCall &a, const RankCall &b) {
  if (a.is_broadcast != b.is_broadcast || a.root != b.root) return false;
  // Of a broadcast one count is the bytes, the other 0.
  if (a.is_broadcast) return a.send_count + a.recv_count == b.send_count + b.recv_count;
  return a.collective == b.collective && a.dtype == b.dtype && a.send_count == b.send_count &&
         a.recv_count == b.recv_count;
}

// Memory of one rank, as numbers: pointers into different objects have no order.
struct Range {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
};

Range range_of(const void *data, uint64_t count, uint64_t width) {
  return {reinterpret_cast<uintptr_t>(data), count * width};
}

bool overlap(const Range &a, const Range &b) {
  return a.bytes != 0 && b.bytes != 0 && a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes;
}

bool usable(const void *data, uint64_t count, uint64_t width, uint64_t alignment) {
  if (count == 0) return true;
  return data != nullptr && count <= kMaxBytes / width &&
         reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// No rank's result may overlap what another rank reads or writes. An all-reduce may be in place.
bool ranges_are_apart(const std::vector<RankCall> &calls, uint64_t width) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const Range out = range_of(calls[i].recv, calls[i].recv_count, width);
    for (size_t j = 0; j < calls.size(); ++j) {
      const bool in_place =
          i == j && all_reduces(calls[i].collective) && calls[i].send == calls[i].recv;
      if (!in_place && overlap(out, range_of(calls[j].send, calls[j].send_count, width)))
        return false;
      if (i != j && overlap(out, range_of(calls[j].recv, calls[j].recv_count, width))) return false;
    }
  }
  return true;
}

// Elements that are combined before they are written.
constexpr uint64_t kBlock = 1024;

// out = elements [begin, begin + count) of every rank, combined in the order of the ranks.
void combine(const std::vector<RankCall> &calls, bool is_max, uint64_t begin, uint64_t count,
             float *out) {
  std::memcpy(out, static_cast<const float *>(calls[0].send) + begin, count * sizeof(float));
  for (size_t rank = 1; rank < calls.size(); ++rank) {
    const float *in = static_cast<const float *>(calls[rank].send) + begin;
    if (is_max) {
      for (uint64_t i = 0; i < count; ++i)
        if (!(std::isnan(out[i]) || out[i] >= in[i])) out[i] = in[i];
    } else {
      for (uint64_t i = 0; i < count; ++i) out[i] += in[i];
    }
  }
}

// Each rank combines its share of the elements and writes it to all. No element has two owners, and
// a block is read from all ranks before it is written, so a result may overlap its input.
void all_reduce(const std::vector<RankCall> &calls, uint32_t rank) {
  const uint64_t world = calls.size();
  const uint64_t count = calls[0].send_count;
  const uint64_t share = count / world + (count % world != 0 ? 1 : 0);
  const uint64_t first = std::min(count, share * rank);
  const uint64_t last = std::min(count, first + share);
  const bool is_max = calls[0].collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
  std::array<float, kBlock> block;
  for (uint64_t begin = first; begin < last; begin += kBlock) {
    const uint64_t n = std::min(kBlock, last - begin);
    combine(calls, is_max, begin, n, block.data());
    for (const RankCall &c : calls)
      std::memcpy(static_cast<float *>(c.recv) + begin, block.data(), n * sizeof(float));
  }
}

void reduce_scatter(const std::vector<RankCall> &calls, uint32_t rank) {
  const RankCall &own = calls[rank];
  for (uint64_t begin = 0; begin < own.recv_count; begin += kBlock) {
    const uint64_t n = std::min(kBlock, own.recv_count - begin);
    combine(calls, false, rank * own.recv_count + begin, n, static_cast<float *>(own.recv) + begin);
  }
}

// recv part p = part `from(p)` of rank p.
template <typename Part>
void gather(const std::vector<RankCall> &calls, uint32_t rank, uint64_t part_bytes, Part &&from) {
  if (part_bytes == 0) return;
  auto *out = static_cast<char *>(calls[rank].recv);
  for (const RankCall &c : calls) {
    std::memcpy(out, static_cast<const char *>(c.send) + from(c) * part_bytes, part_bytes);
    out += part_bytes;
  }
}

}  // namespace

bool counts_fit(uint32_t collective, uint64_t send_count, uint64_t recv_count, uint64_t world) {
  switch (collective) {
    case OCTAVO_COLLECTIVE_NONE: return true;
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: return send_count == recv_count && send_count % world == 0;
    case OCTAVO_COLLECTIVE_ALL_GATHER: return is_multiple(recv_count, send_count, world);
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: return is_multiple(send_count, recv_count, world);
    default: return send_count == recv_count;
  }
}

RankCall run_call(uint32_t collective, uint32_t dtype, const void *send, uint64_t send_count,
                  void *recv, uint64_t recv_count) {
  RankCall c;
  c.collective = collective;
  c.dtype = dtype;
  c.send = send;
  c.send_count = send_count;
  c.recv = recv;
  c.recv_count = recv_count;
  return c;
}

RankCall broadcast_call(uint32_t root, uint32_t rank, void *data, uint64_t bytes) {
  RankCall c;
  c.is_broadcast = true;
  c.root = root;
  if (rank == root) {
    c.send = data;
    c.send_count = bytes;
  } else {
    c.recv = data;
    c.recv_count = bytes;
  }
  return c;
}

octavo_status check_calls(const std::vector<RankCall> &calls) {
  const RankCall &first = calls[0];
  for (const RankCall &c : calls)
    if (!asks_the_same(first, c)) return OCTAVO_INVALID;
  const uint64_t width = element_bytes(first.dtype);
  if (first.is_broadcast) {
    if (first.root >= calls.size()) return OCTAVO_INVALID;
  } else {
    if (first.collective == OCTAVO_COLLECTIVE_NONE) return OCTAVO_INVALID;
    if (first.collective > OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM || width == 0)
      return OCTAVO_UNSUPPORTED;
    if (reduces(first.collective) && first.dtype != OCTAVO_F32) return OCTAVO_UNSUPPORTED;
    if (!counts_fit(first.collective, first.send_count, first.recv_count, calls.size()))
      return OCTAVO_INVALID;
  }
  // Bytes may have any address; floats are read as such.
  const uint64_t alignment = reduces(first.collective) ? alignof(float) : 1;
  for (const RankCall &c : calls)
    if (!usable(c.send, c.send_count, width, alignment) ||
        !usable(c.recv, c.recv_count, width, alignment))
      return OCTAVO_INVALID;
  return ranges_are_apart(calls, width) ? OCTAVO_OK : OCTAVO_INVALID;
}

void perform(const std::vector<RankCall> &calls, uint32_t rank) {
  const RankCall &own = calls[rank];
  if (own.is_broadcast) {
    if (own.recv_count != 0) std::memcpy(own.recv, calls[own.root].send, own.recv_count);
    return;
  }
  const uint64_t width = element_bytes(own.dtype);
  switch (own.collective) {
    case OCTAVO_COLLECTIVE_ALL_TO_ALL:
      return gather(calls, rank, own.send_count / calls.size() * width,
                    [&](const RankCall &) { return rank; });
    case OCTAVO_COLLECTIVE_ALL_GATHER:
      return gather(calls, rank, own.send_count * width,
                    [](const RankCall &) { return uint64_t{0}; });
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: return reduce_scatter(calls, rank);
    default: return all_reduce(calls, rank);
  }
}

}  // namespace octavo
