/* The collectives on MPI: bytes are moved by its nonblocking functions; what is combined is
 * exchanged first and combined by this rank in the order of the ranks.
 *
 * Every rank cuts an operation into the same pieces, since counts, world and scratch are equal on
 * all of them.
 */
#include <algorithm>
#include <cmath>
#include <cstring>

#include "host_adapters/ranks/mpi/communicator.h"

namespace octavo::mpi {
namespace {

/* Up to here every rank gets all of an all-reduce and combines all of it: one exchange of W times
 * the bytes is faster than two of them while latency is what counts. */
constexpr uint64_t kOneShot = 4096; /* elements */

/* Bytes of one part, of which the next one begins `stride` bytes later. */
class Part {
 public:
  Part(uint64_t bytes, uint64_t stride) : count_(bytes == stride ? static_cast<int>(bytes) : 1) {
    if (bytes == stride) return;
    MPI_Datatype plain = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &plain);
    MPI_Type_create_resized(plain, 0, static_cast<MPI_Aint>(stride), &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&plain);
  }
  ~Part() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_); /* when what uses it has ended */
  }
  Part(const Part &) = delete;
  Part &operator=(const Part &) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_BYTE;
  int count_;
};

}  // namespace

/* One operation; the first failure ends it. */
class Operation {
 public:
  Operation(Communicator &c, const char *verb, uint64_t bytes)
      : c_(c), verb_(verb), bytes_(bytes) {}

  /* Bytes of a part of which the world's fit into a piece. */
  uint64_t piece() const { return c_.scratch_bytes_ / c_.world_ / sizeof(float) * sizeof(float); }

  /* send null: the own part is in recv already. */
  octavo_status all_gather(const void *send, uint64_t bytes, void *recv, uint64_t stride) {
    return moved([&](MPI_Request *request) {
      const Part to(bytes, stride);
      return send == nullptr ? MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, recv, to.count(),
                                              to.type(), c_.comm_, request)
                             : MPI_Iallgather(send, static_cast<int>(bytes), MPI_BYTE, recv,
                                              to.count(), to.type(), c_.comm_, request);
    });
  }
  octavo_status all_to_all(const void *send, uint64_t bytes, uint64_t send_stride, void *recv,
                           uint64_t recv_stride) {
    return moved([&](MPI_Request *request) {
      const Part from(bytes, send_stride), to(bytes, recv_stride);
      return MPI_Ialltoall(send, from.count(), from.type(), recv, to.count(), to.type(), c_.comm_,
                           request);
    });
  }
  octavo_status broadcast(uint32_t root, void *data, uint64_t bytes) {
    auto *at = static_cast<char *>(data);
    return in_pieces(bytes, [&](uint64_t begin, uint64_t count) {
      return moved([&](MPI_Request *request) {
        return MPI_Ibcast(at + begin, static_cast<int>(count), MPI_BYTE, static_cast<int>(root),
                          c_.comm_, request);
      });
    });
  }

  octavo_status gather(const CollectiveCall &call, uint64_t part_bytes) {
    const bool is_all_gather = call.collective == OCTAVO_COLLECTIVE_ALL_GATHER;
    const auto *send = static_cast<const char *>(call.send);
    auto *recv = static_cast<char *>(call.recv);
    return in_pieces(part_bytes, [&](uint64_t at, uint64_t n) {
      return is_all_gather ? all_gather(send + at, n, recv + at, part_bytes)
                           : all_to_all(send + at, n, part_bytes, recv + at, part_bytes);
    });
  }
  octavo_status reduce_scatter(const CollectiveCall &call) {
    const uint64_t part = call.recv_count * sizeof(float);
    const auto *send = static_cast<const char *>(call.send);
    auto *recv = static_cast<float *>(call.recv);
    return in_pieces(part, [&](uint64_t at, uint64_t n) {
      const octavo_status status = all_to_all(send + at, n, part, c_.scratch_.get(), n);
      if (status == OCTAVO_OK) combine(n / sizeof(float), false, recv + at / sizeof(float));
      return status;
    });
  }
  /* May be in place: what a piece writes was sent before. */
  octavo_status all_reduce(const CollectiveCall &call) {
    const auto *send = static_cast<const float *>(call.send);
    auto *recv = static_cast<float *>(call.recv);
    const bool is_max = call.collective == OCTAVO_COLLECTIVE_ALL_REDUCE_MAX;
    const uint64_t most = piece() / sizeof(float), world = c_.world_;
    octavo_status status = OCTAVO_OK;
    for (uint64_t at = 0; at < call.send_count && status == OCTAVO_OK;) {
      const uint64_t left = call.send_count - at;
      /* Also what does not divide by the world, which comes last. */
      if (left <= kOneShot || left < world) {
        const uint64_t n = std::min(left, most), bytes = n * sizeof(float);
        status = all_gather(send + at, bytes, c_.scratch_.get(), bytes);
        if (status == OCTAVO_OK) combine(n, is_max, recv + at);
        at += n;
        continue;
      }
      const uint64_t n = std::min(most, left / world), bytes = n * sizeof(float);
      status = all_to_all(send + at, bytes, bytes, c_.scratch_.get(), bytes);
      if (status != OCTAVO_OK) break;
      combine(n, is_max, recv + at + c_.rank_ * n);
      status = all_gather(nullptr, bytes, recv + at, bytes);
      at += n * world;
    }
    return status;
  }

 private:
  template <typename Body>
  octavo_status in_pieces(uint64_t bytes, Body body) {
    octavo_status status = OCTAVO_OK;
    for (uint64_t at = 0; at < bytes && status == OCTAVO_OK; at += piece())
      status = body(at, std::min(piece(), bytes - at));
    return status;
  }
  template <typename Start>
  octavo_status moved(Start start) {
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_SUCCESS;
    {
      const std::lock_guard lock(c_.mutex_);
      code = start(&request);
    }
    return c_.wait(verb_, bytes_, began_, code, &request);
  }
  /* out = the ranks' parts of `count` elements in the scratch, combined in their order; a maximum
   * with a NaN is that NaN. */
  void combine(uint64_t count, bool is_max, float *out) const {
    const float *in = c_.scratch_.get();
    std::memcpy(out, in, count * sizeof(float));
    for (uint32_t r = 1; r < c_.world_; ++r) {
      in += count;
      if (is_max) {
        for (uint64_t i = 0; i < count; ++i)
          if (!(std::isnan(out[i]) || out[i] >= in[i])) out[i] = in[i];
      } else {
        for (uint64_t i = 0; i < count; ++i) out[i] += in[i];
      }
    }
  }

  Communicator &c_;
  const char *verb_;
  const uint64_t bytes_;
  const Clock::time_point began_ = Clock::now();
};

octavo_status Communicator::agree(const char *verb, Ask ask) {
  if (has_failed()) return refuse_after_failure(verb);
  static_assert(sizeof(Ask) == 32, "as in octavo_mpi.h");
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_SUCCESS;
  {
    const std::lock_guard lock(mutex_);
    code = MPI_Iallgather(&ask, sizeof(ask), MPI_BYTE, asks_.data(), sizeof(ask), MPI_BYTE, comm_,
                          &request);
  }
  const octavo_status status = wait(verb, ask.send_count, Clock::now(), code, &request);
  if (status != OCTAVO_OK) return status;
  const auto text_of = [](const Ask &a) {
    return a.collective == OCTAVO_COLLECTIVE_NONE ? "broadcast" : name_of_collective(a.collective);
  };
  for (uint32_t r = 0; r < world_; ++r) {
    const Ask &other = asks_[r];
    if (other.collective == ask.collective && other.dtype == ask.dtype && other.root == ask.root &&
        other.send_count == ask.send_count && other.recv_count == ask.recv_count)
      continue;
    return report_error(
        caller_, OCTAVO_INVALID,
        "%s: rank %u of %u: expected the same call on every rank, found %s of %llu and %llu "
        "elements of dtype %u, root %u, here, and %s of %llu and %llu of dtype %u, root %u, on "
        "rank "
        "%u; every rank makes the same calls in the same order",
        verb, rank_, world_, text_of(ask), static_cast<unsigned long long>(ask.send_count),
        static_cast<unsigned long long>(ask.recv_count), ask.dtype, ask.root, text_of(other),
        static_cast<unsigned long long>(other.send_count),
        static_cast<unsigned long long>(other.recv_count), other.dtype, other.root, r);
  }
  if (ask.status != OCTAVO_OK) return ask.status; /* its text was reported */
  for (uint32_t r = 0; r < world_; ++r)
    if (asks_[r].status != OCTAVO_OK)
      return report_error(caller_, asks_[r].status,
                          "%s: rank %u of %u: not carried out, since rank %u was refused for its "
                          "arguments; its own message has the cause",
                          verb, rank_, world_, r);
  return OCTAVO_OK;
}

octavo_status Communicator::run(const CollectiveCall &c) {
  const char *verb = name_of_collective(c.collective);
  Ask ask;
  ask.collective = c.collective == OCTAVO_COLLECTIVE_NONE ? UINT32_MAX : c.collective;
  ask.dtype = c.dtype;
  ask.send_count = c.send_count;
  ask.recv_count = c.recv_count;
  ask.status = check_collective(caller_, c, world_);
  const octavo_status status = agree(verb, ask);
  if (status != OCTAVO_OK || c.send_count == 0) return status;
  const uint64_t width = element_bytes(c.dtype);
  Operation o(*this, verb, c.send_count * width);
  switch (c.collective) {
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: return o.gather(c, c.send_count / world_ * width);
    case OCTAVO_COLLECTIVE_ALL_GATHER: return o.gather(c, c.send_count * width);
    case OCTAVO_COLLECTIVE_REDUCE_SCATTER_SUM: return o.reduce_scatter(c);
    default: return o.all_reduce(c);
  }
}

octavo_status Communicator::broadcast(uint32_t root, void *data, uint64_t bytes) {
  Ask ask;
  ask.root = root;
  ask.send_count = bytes;
  ask.status = check_broadcast(caller_, root, data, bytes, world_);
  const octavo_status status = agree("broadcast", ask);
  if (status != OCTAVO_OK || bytes == 0) return status;
  return Operation(*this, "broadcast", bytes).broadcast(root, data, bytes);
}

}  // namespace octavo::mpi
