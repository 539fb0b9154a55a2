/* The checks of one rank: counts, dtypes and addresses, by the comment of octavo_collective. */
#include "kernels/check/collective.h"

namespace octavo {
namespace {

/* Half of what a pointer can span: the sum of two ranges cannot wrap. */
constexpr uint64_t kMaxBytes = static_cast<uint64_t>(INT64_MAX);

bool reduces(uint32_t collective) {
  return collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX ||
         collective == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM ||
         collective == OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM;
}

/* Whether `whole` elements are `world` parts of `part`. */
bool is_multiple(uint64_t whole, uint64_t part, uint64_t world) {
  return whole % world == 0 && whole / world == part;
}

bool counts_fit(const CollectiveCall &c, uint64_t world) {
  switch (c.collective) {
    case OCTAVO_COLLECTIVE_ALL_TO_ALL:
      return c.send_count == c.recv_count && c.send_count % world == 0;
    case OCTAVO_COLLECTIVE_ALL_GATHER: return is_multiple(c.recv_count, c.send_count, world);
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM:
      return is_multiple(c.send_count, c.recv_count, world);
    default: return c.send_count == c.recv_count;
  }
}

octavo_status check_memory(const Caller &caller, const char *verb, const char *name,
                           const void *data, uint64_t count, uint64_t width, uint64_t alignment) {
  if (count == 0) return OCTAVO_OK;
  if (count > kMaxBytes / width)
    return report_error(caller, OCTAVO_INVALID,
                        "%s: %s: expected fewer than 2^63 bytes, found %llu elements of %llu", verb,
                        name, static_cast<unsigned long long>(count),
                        static_cast<unsigned long long>(width));
  if (data == nullptr)
    return report_error(caller, OCTAVO_INVALID,
                        "%s: %s: expected an address for %llu elements, found null", verb, name,
                        static_cast<unsigned long long>(count));
  if (reinterpret_cast<uintptr_t>(data) % alignment != 0)
    return report_error(caller, OCTAVO_INVALID,
                        "%s: %s: expected a multiple of %llu as address, found %p", verb, name,
                        static_cast<unsigned long long>(alignment), data);
  return OCTAVO_OK;
}

bool overlap(const CollectiveCall &c, uint64_t width) {
  const auto send = reinterpret_cast<uintptr_t>(c.send);
  const auto recv = reinterpret_cast<uintptr_t>(c.recv);
  return c.send_count != 0 && c.recv_count != 0 && send < recv + c.recv_count * width &&
         recv < send + c.send_count * width;
}

}  // namespace

const char *name_of_collective(uint32_t collective) {
  switch (collective) {
    case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX: return "all_reduce_max";
    case OCTAVO_COLLECTIVE_ALL_REDUCE_SUM: return "all_reduce_sum";
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: return "all_to_all";
    case OCTAVO_COLLECTIVE_ALL_GATHER: return "all_gather";
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: return "reduce_scatter_sum";
    default: return "collective";
  }
}

uint64_t element_bytes(uint32_t dtype) {
  switch (dtype) {
    case OCTAVO_F32:
    case OCTAVO_BF16:
    case OCTAVO_F16:
    case OCTAVO_E4M3FN:
    case OCTAVO_E5M2:
    case OCTAVO_E8M0FNU:
    case OCTAVO_U8:
    case OCTAVO_I32: return OCTAVO_DTYPE_BITS(dtype) / 8;
    default: return 0;
  }
}

octavo_status check_collective(const Caller &caller, const CollectiveCall &c, uint32_t world) {
  const char *verb = name_of_collective(c.collective);
  if (c.collective == OCTAVO_COLLECTIVE_NONE)
    return report_error(caller, OCTAVO_INVALID,
                        "%s: expected one of OCTAVO_COLLECTIVE_..., found OCTAVO_COLLECTIVE_NONE",
                        verb);
  const uint64_t width = element_bytes(c.dtype);
  if (c.collective > OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM || width == 0)
    return report_error(caller, OCTAVO_UNSUPPORTED,
                        "%s: expected a collective from 1 to %d of a known dtype, found collective "
                        "%u of dtype %u",
                        verb, OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM, c.collective, c.dtype);
  if (reduces(c.collective) && c.dtype != OCTAVO_F32)
    return report_error(caller, OCTAVO_UNSUPPORTED,
                        "%s: expected f32, found dtype %u; codes are summed by a backend's stages",
                        verb, c.dtype);
  if (!counts_fit(c, world))
    return report_error(caller, OCTAVO_INVALID,
                        "%s: %llu elements to send and %llu to receive do not fit %u ranks; "
                        "octavo_collective has the rule",
                        verb, static_cast<unsigned long long>(c.send_count),
                        static_cast<unsigned long long>(c.recv_count), world);
  const uint64_t alignment = reduces(c.collective) ? alignof(float) : 1;
  octavo_status status = check_memory(caller, verb, "send", c.send, c.send_count, width, alignment);
  if (status == OCTAVO_OK)
    status = check_memory(caller, verb, "recv", c.recv, c.recv_count, width, alignment);
  if (status != OCTAVO_OK) return status;
  const bool is_all_reduce = c.collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX ||
                             c.collective == OCTAVO_COLLECTIVE_ALL_REDUCE_SUM;
  if (overlap(c, width) && !(is_all_reduce && c.send == c.recv))
    return report_error(caller, OCTAVO_INVALID,
                        "%s: expected send and recv apart%s, found %p and %p, which overlap", verb,
                        is_all_reduce ? " or equal" : "", c.send, c.recv);
  return OCTAVO_OK;
}

octavo_status check_broadcast(const Caller &caller, uint32_t root, const void *data, uint64_t bytes,
                              uint32_t world) {
  if (root >= world)
    return report_error(caller, OCTAVO_INVALID,
                        "broadcast: expected a root below %u, the number of ranks, found %u", world,
                        root);
  return check_memory(caller, "broadcast", "data", data, bytes, 1, 1);
}

}  // namespace octavo
