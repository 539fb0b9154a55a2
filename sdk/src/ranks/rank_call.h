// RankCall: what one rank asks of a collective, the check that all ranks ask for the same, and the
// share of the work that one rank does.
//
// No share reads what another share writes, so the shares of one round may run at the same time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/draft/gradients.h"
#include "octavo/octavo.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/sized.h"

namespace octavo {

struct RankCall {
  uint32_t collective = OCTAVO_COLLECTIVE_NONE;
  uint32_t dtype = OCTAVO_U8;
  bool is_broadcast = false;
  uint32_t root = 0;  // of a broadcast
  const void *send = nullptr;
  uint64_t send_count = 0;
  void *recv = nullptr;
  uint64_t recv_count = 0;
};

// Whether the elements to send and to receive are those of the collective among `world` ranks.
bool counts_fit(uint32_t collective, uint64_t send_count, uint64_t recv_count, uint64_t world);

RankCall run_call(uint32_t collective, uint32_t dtype, const void *send, uint64_t send_count,
                  void *recv, uint64_t recv_count);
// The root only sends and the others only receive, each `bytes` of `data`.
RankCall broadcast_call(uint32_t root, uint32_t rank, void *data, uint64_t bytes);

// One answer for all ranks. OCTAVO_INVALID: they ask for different things, counts do not fit the
// world, memory is missing, misaligned or overlaps. OCTAVO_UNSUPPORTED: an unknown collective or
// dtype, or a reduction of anything but f32.
octavo_status check_calls(const std::vector<RankCall> &calls);

// The share of `rank`, after check_calls answered OCTAVO_OK. Sums and maxima are taken in the order
// of the ranks; a maximum with a NaN is that NaN.
void perform(const std::vector<RankCall> &calls, uint32_t rank);

// Throws Failure(OCTAVO_INVALID) for a table without run, or without ranks; `verb` is named.
inline octavo_collective own_collective(const octavo_collective *given, const char *domain,
                                        const char *verb) {
  octavo_collective c{};
  if (given != nullptr)
    c = copy_known_fields(*given, &octavo_collective::ctx, &octavo_collective::run,
                          &octavo_collective::broadcast);
  if (c.run == nullptr)
    throw Failure(OCTAVO_INVALID, domain, verb,
                  ": expected a collective with a run function, found ",
                  given == nullptr ? "no collective" : "null");
  if (c.world < 1)
    throw Failure(OCTAVO_INVALID, domain, verb,
                  ": expected a collective of at least 1 rank, found world 0");
  return c;
}

}  // namespace octavo
