/* octavo_mpi.h: what is refused before anything is opened, and the border that no exception
 * crosses. */
#include <memory>
#include <new>

#include "host_adapters/ranks/mpi/communicator.h"

namespace mpi = octavo::mpi;
using octavo::Caller;
using octavo::report_error;

struct octavo_mpi {
  explicit octavo_mpi(const octavo_mpi_desc &desc) : communicator(desc) {}
  mpi::Communicator communicator;
  octavo_collective table = {};
  std::atomic<bool> is_busy{false};
};

namespace {

constexpr uint64_t kLeastScratch = 65536;
constexpr const char *kOpen = "octavo_mpi_open";

/* Runs body where no exception gets out; `caller` gets its message. */
template <typename Body>
octavo_status guarded(const Caller &caller, const char *verb, Body &&body) {
  try {
    return body();
  } catch (const std::exception &e) {
    return report_error(caller, OCTAVO_NO_RESOURCE, "%s: %s", verb, e.what());
  }
}

/* A call on a communicator: in a child of fork it is refused. */
template <typename Body>
octavo_status on(octavo_mpi *c, const char *verb, Body &&body) {
  if (c == nullptr) return OCTAVO_INVALID;
  const Caller &caller = c->communicator.caller();
  if (c->communicator.is_inherited())
    return report_error(caller, OCTAVO_WRONG_STATE,
                        "%s: expected the process that opened the communicator, found a child of "
                        "fork, where MPI does not work",
                        verb);
  return guarded(caller, verb, [&] { return body(c->communicator); });
}

/* A collective, of which a rank makes one at a time. */
template <typename Body>
octavo_status alone(void *ctx, const char *verb, Body &&body) {
  auto *c = static_cast<octavo_mpi *>(ctx);
  return on(c, verb, [&](mpi::Communicator &communicator) {
    if (c->is_busy.exchange(true, std::memory_order_acquire))
      return report_error(communicator.caller(), OCTAVO_WRONG_STATE,
                          "%s: expected one thread at a time, found another one in a call of this "
                          "rank; make the calls one after another",
                          verb);
    struct Leave {
      std::atomic<bool> &is_busy;
      ~Leave() { is_busy.store(false, std::memory_order_release); }
    } const leave{c->is_busy};
    return body(communicator);
  });
}

octavo_status run(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                  uint64_t send_count, void *recv, uint64_t recv_count, void *stream) {
  return alone(ctx, octavo::name_of_collective(collective), [&](mpi::Communicator &c) {
    return c.run({collective, dtype, send, send_count, recv, recv_count, stream});
  });
}

octavo_status broadcast(void *ctx, uint32_t root, void *data, uint64_t bytes, void *) {
  return alone(ctx, "broadcast",
               [&](mpi::Communicator &c) { return c.broadcast(root, data, bytes); });
}

}  // namespace

octavo_status octavo_mpi_open(const octavo_mpi_desc *desc, octavo_mpi **out) {
  if (desc == nullptr) return OCTAVO_INVALID;
  octavo_mpi_desc d;
  OCTAVO_TAKE(d, desc);
  if (d.host == nullptr || d.host->diagnose == nullptr) return OCTAVO_INVALID; /* nobody to tell */
  const Caller caller = {d.host, "octavo.mpi"};
  if (out == nullptr)
    return report_error(caller, OCTAVO_INVALID, "%s: out: expected an address, found null", kOpen);
  *out = nullptr;
  if (d.scratch_bytes != 0 && (d.scratch_bytes < kLeastScratch || d.scratch_bytes % 8 != 0))
    return report_error(caller, OCTAVO_INVALID,
                        "%s: expected scratch_bytes of 0 or a multiple of 8 from %llu on, found "
                        "%llu",
                        kOpen, static_cast<unsigned long long>(kLeastScratch),
                        static_cast<unsigned long long>(d.scratch_bytes));
  return guarded(caller, kOpen, [&] {
    auto made = std::make_unique<octavo_mpi>(d);
    const octavo_status status = made->communicator.open(d);
    if (status != OCTAVO_OK) {
      made->communicator.close();
      return status;
    }
    made->table.size = sizeof(made->table);
    made->table.kind = OCTAVO_KIND_COLLECTIVE;
    made->table.ctx = made.get();
    made->table.world = made->communicator.world();
    made->table.run = run;
    made->table.broadcast = broadcast;
    *out = made.release();
    return status;
  });
}

const octavo_collective *octavo_mpi_collective(octavo_mpi *c) {
  return c == nullptr ? nullptr : &c->table;
}

uint32_t octavo_mpi_rank(const octavo_mpi *c) {
  return c == nullptr ? OCTAVO_NONE : c->communicator.rank();
}

octavo_status octavo_mpi_check(octavo_mpi *c) {
  return on(c, "octavo_mpi_check", [](mpi::Communicator &one) { return one.check(); });
}

void octavo_mpi_abort(octavo_mpi *c) {
  on(c, "octavo_mpi_abort", [](mpi::Communicator &one) -> octavo_status {
    one.abort();
    return OCTAVO_OK;
  });
}

void octavo_mpi_close(octavo_mpi *c) {
  /* In a child of fork the memory stays: its communicator is the parent's. */
  if (on(c, "octavo_mpi_close", [](mpi::Communicator &one) -> octavo_status {
        one.close();
        return OCTAVO_OK;
      }) == OCTAVO_OK)
    delete c;
}
