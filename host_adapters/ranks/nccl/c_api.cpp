/* octavo_nccl.h: what is refused before anything is opened, and the border that no exception
 * crosses. */
#include <cstring>
#include <memory>
#include <new>

#include "host_adapters/ranks/nccl/communicator.h"

namespace nccl = octavo::cuda::nccl;
using octavo::Caller;
using octavo::report_error;

struct octavo_nccl {
  explicit octavo_nccl(const octavo_nccl_desc &desc) : communicator(desc) { init_table(); }
  void init_table();
  nccl::Communicator communicator;
  octavo_collective table = {}, host_table = {};
};

namespace {

constexpr uint64_t kLeastScratch = 65536;

Caller caller_of(const octavo_host *host) {
  return {host, "octavo.nccl"};
}

/* Runs body where no exception gets out; `caller` gets its message. */
template <typename Body>
octavo_status guarded(const Caller &caller, const char *verb, Body &&body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return report_error(caller, OCTAVO_NO_RESOURCE, "%s: out of memory on the host", verb);
  } catch (const std::exception &e) {
    return report_error(caller, OCTAVO_NO_RESOURCE, "%s: %s", verb, e.what());
  }
}

/* A call on a communicator: in a child of fork it is refused. */
template <typename Body>
octavo_status on(octavo_nccl *c, const char *verb, Body &&body) {
  if (c == nullptr) return OCTAVO_INVALID;
  const Caller &caller = c->communicator.caller();
  if (c->communicator.is_inherited())
    return report_error(caller, OCTAVO_WRONG_STATE,
                        "%s: expected the process that opened the communicator, found a child of "
                        "fork, where neither CUDA nor NCCL works; open it after exec",
                        verb);
  return guarded(caller, verb, [&] { return body(c->communicator); });
}

octavo_status run(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                  uint64_t send_count, void *recv, uint64_t recv_count, void *stream) {
  return on(
      static_cast<octavo_nccl *>(ctx), octavo::name_of_collective(collective),
      [&](nccl::Communicator &c) {
        return c.run(nccl::Call{collective, dtype, send, send_count, recv, recv_count, stream});
      });
}

octavo_status broadcast(void *ctx, uint32_t root, void *data, uint64_t bytes, void *stream) {
  return on(static_cast<octavo_nccl *>(ctx), "broadcast",
            [&](nccl::Communicator &c) { return c.broadcast(root, data, bytes, stream); });
}

octavo_status run_on_host(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                          uint64_t send_count, void *recv, uint64_t recv_count, void *stream) {
  return on(static_cast<octavo_nccl *>(ctx), octavo::name_of_collective(collective),
            [&](nccl::Communicator &c) {
              return c.run_on_host(
                  nccl::Call{collective, dtype, send, send_count, recv, recv_count, stream});
            });
}

octavo_status broadcast_on_host(void *ctx, uint32_t root, void *data, uint64_t bytes, void *) {
  return on(static_cast<octavo_nccl *>(ctx), "broadcast",
            [&](nccl::Communicator &c) { return c.broadcast_on_host(root, data, bytes); });
}

octavo_status check_desc(const Caller &caller, const octavo_nccl_desc &d) {
  const char *verb = "octavo_nccl_open";
  if (d.id == nullptr)
    return report_error(caller, OCTAVO_INVALID, "%s: id: expected the id of rank 0, found null",
                        verb);
  if (d.world < 1 || d.world > nccl::kMostRanks || d.rank >= d.world)
    return report_error(caller, OCTAVO_INVALID,
                        "%s: expected 1 to %u ranks and a rank below them, found rank %u of %u",
                        verb, nccl::kMostRanks, d.rank, d.world);
  if (d.scratch_bytes != 0 && (d.scratch_bytes < kLeastScratch || d.scratch_bytes % 8 != 0))
    return report_error(caller, OCTAVO_INVALID,
                        "%s: expected scratch_bytes of 0 or a multiple of 8 from %llu on, found "
                        "%llu",
                        verb, static_cast<unsigned long long>(kLeastScratch),
                        static_cast<unsigned long long>(d.scratch_bytes));
  if (d.library.size != 0 && d.library.data == nullptr)
    return report_error(caller, OCTAVO_INVALID, "%s: library: expected an address, found null",
                        verb);
  if (d.reserved != 0)
    return report_error(caller, OCTAVO_INVALID, "%s: expected reserved 0, found %u", verb,
                        d.reserved);
  return OCTAVO_OK;
}

}  // namespace

void octavo_nccl::init_table() {
  table.size = sizeof(table);
  table.kind = OCTAVO_KIND_COLLECTIVE;
  table.ctx = this;
  table.run = run;
  table.broadcast = broadcast;
  host_table = table;
  host_table.run = run_on_host;
  host_table.broadcast = broadcast_on_host;
}

octavo_status octavo_nccl_get_id(const octavo_host *host, octavo_str library, octavo_nccl_id *out) {
  if (host == nullptr || host->diagnose == nullptr) return OCTAVO_INVALID; /* nobody to tell */
  const char *verb = "octavo_nccl_get_id";
  const Caller caller = caller_of(host);
  if (out == nullptr || (library.size != 0 && library.data == nullptr))
    return report_error(caller, OCTAVO_INVALID, "%s: %s: expected an address, found null", verb,
                        out == nullptr ? "out" : "library");
  return guarded(caller, verb, [&]() -> octavo_status {
    const nccl::Functions *functions = nullptr;
    const octavo_status status = nccl::find_library(caller, verb, library, &functions);
    if (status != OCTAVO_OK) return status;
    nccl::UniqueId id;
    const nccl::Result result = functions->GetUniqueId(&id);
    if (result != nccl::kSuccess)
      return report_error(caller, nccl::status_of(result),
                          "%s: ncclGetUniqueId answered %s: %s (%s); NCCL_DEBUG=WARN lets NCCL say "
                          "more",
                          verb, nccl::name_of(result), functions->GetErrorString(result),
                          functions->GetLastError(nullptr));
    std::memcpy(out, &id, sizeof(*out));
    return OCTAVO_OK;
  });
}

octavo_status octavo_nccl_open(const octavo_nccl_desc *desc, octavo_nccl **out) {
  if (desc == nullptr) return OCTAVO_INVALID;
  octavo_nccl_desc d;
  OCTAVO_TAKE(d, desc);
  if (d.host == nullptr || d.host->diagnose == nullptr) return OCTAVO_INVALID; /* nobody to tell */
  const Caller caller = caller_of(d.host);
  if (out == nullptr)
    return report_error(caller, OCTAVO_INVALID,
                        "octavo_nccl_open: out: expected an address, found null");
  *out = nullptr;
  octavo_status status = check_desc(caller, d);
  if (status != OCTAVO_OK) return status;
  return guarded(caller, "octavo_nccl_open", [&] {
    auto made = std::make_unique<octavo_nccl>(d);
    try {
      status = made->communicator.open(d);
    } catch (...) {
      made->communicator.abort();
      made->communicator.close();
      throw;
    }
    if (status != OCTAVO_OK) {
      made->communicator.close();
      return status;
    }
    made->table.world = made->host_table.world = made->communicator.world();
    *out = made.release();
    return status;
  });
}

const octavo_collective *octavo_nccl_collective(octavo_nccl *c) {
  return c == nullptr ? nullptr : &c->table;
}

const octavo_collective *octavo_nccl_host_collective(octavo_nccl *c) {
  return c == nullptr ? nullptr : &c->host_table;
}

octavo_status octavo_nccl_check(octavo_nccl *c) {
  return on(c, "octavo_nccl_check", [](nccl::Communicator &one) { return one.check(); });
}

void octavo_nccl_abort(octavo_nccl *c) {
  on(c, "octavo_nccl_abort", [](nccl::Communicator &one) -> octavo_status {
    one.abort();
    return OCTAVO_OK;
  });
}

void octavo_nccl_close(octavo_nccl *c) {
  /* In a child of fork the memory stays: its thread does not exist, and its device is gone. */
  if (on(c, "octavo_nccl_close", [](nccl::Communicator &one) -> octavo_status {
        one.close();
        return OCTAVO_OK;
      }) == OCTAVO_OK)
    delete c;
}
