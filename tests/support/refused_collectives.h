// Calls of a collective among two ranks or more that one rank can refuse, and what its text says.
#pragma once

#include "tests/support/collective.h"

namespace octavo::test {

struct RefusedCollective {
  uint32_t collective, dtype;
  uint64_t send_count, recv_count;
  int send_at, recv_at;  // bytes into the rank's memory, of 256 bytes; -1: null
  const char *text;      // with two ranks
};

inline constexpr RefusedCollective kRefusedCollectives[] = {
    {OCTAVO_COLLECTIVE_NONE, OCTAVO_F32, 4, 4, 0, 64, "found OCTAVO_COLLECTIVE_NONE"},
    {99, OCTAVO_F32, 4, 4, 0, 64, "found collective 99 of dtype"},
    {OCTAVO_COLLECTIVE_ALL_GATHER, 12345, 4, 8, 0, 64, "of dtype 12345"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_U8, 4, 4, 0, 64, "all_reduce_sum: expected f32"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_BF16, 4, 4, 0, 64, "all_reduce_max: expected f32"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, 4, 5, 0, 64, "do not fit 2 ranks"},
    {OCTAVO_COLLECTIVE_ALL_TO_ALL, OCTAVO_U8, 5, 5, 0, 64, "do not fit 2 ranks"},
    {OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, 4, 7, 0, 64, "do not fit 2 ranks"},
    {OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM, OCTAVO_F32, 4, 4, 0, 64, "do not fit 2 ranks"},
    {OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, uint64_t{1} << 63, 0, 0, 64, "do not fit"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, uint64_t{1} << 62, uint64_t{1} << 62, 0, 64,
     "fewer than 2^63 bytes"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, 4, 4, -1, 64, "send: expected an address"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, 4, 4, 0, -1, "recv: expected an address"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, 4, 4, 2, 64, "expected a multiple of 4"},
    {OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, 4, 4, 0, 8, "apart or equal"},
    {OCTAVO_COLLECTIVE_ALL_GATHER, OCTAVO_U8, 4, 8, 64, 64, "send and recv apart, found"}};

inline octavo_status run(const octavo_collective &c, const RefusedCollective &k, void *memory) {
  auto *base = static_cast<char *>(memory);
  return c.run(c.ctx, k.collective, k.dtype, k.send_at < 0 ? nullptr : base + k.send_at,
               k.send_count, k.recv_at < 0 ? nullptr : base + k.recv_at, k.recv_count, nullptr);
}

}  // namespace octavo::test
