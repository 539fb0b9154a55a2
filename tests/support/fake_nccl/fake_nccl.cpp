// The functions of libnccl.so.2 that host_adapters/ranks/nccl calls. An aborted communicator is
// kept, so that a call on it is counted instead of undefined.
#include "fake_nccl.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#ifdef FAKE_NCCL_SHARED
#include "shared_clique.h"
#else
#include "clique.h"
#endif
#include <unistd.h>

using namespace octavo::cuda::nccl;
#ifdef FAKE_NCCL_SHARED
using Clique = fake_nccl::SharedClique;
#else
using fake_nccl::Clique;
#endif
using fake_nccl::Control;
using fake_nccl::Request;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Control *fake_nccl_control() {
  static Control control;
  return &control;
}

struct octavo::cuda::nccl::Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  bool blocks = true;
  bool is_gone = false;  // destroyed or aborted
  bool is_finalized = false;
  int operations = 0;
  bool is_waiting = false;  // for `round`
  uint64_t round = 0;
  bool hangs = false;  // an operation, or the start, that never gets on
  Result async_error = kSuccess;
  void *held_stream = nullptr;
  bool holds = false;
};

namespace {

std::mutex registry_mutex;
std::map<std::string, std::shared_ptr<Clique>> cliques;
std::deque<std::unique_ptr<Comm>> comms;
int next_id = 1;

struct Group {
  int depth = 0;
  Comm *comm = nullptr;
  void *stream = nullptr;
  Request request;
  Result failed = kSuccess;
};
thread_local Group group;

Result violate(const char *what) {
  fake_nccl_control()->violation = what;
  ++fake_nccl_control()->violations;
  return kInvalidUsage;
}

bool is_due(const Comm &c, int at) {
  const Control &control = *fake_nccl_control();
  return c.operations == at && (control.at_rank == -1 || control.at_rank == c.rank);
}

Result state_of(const Comm &c) {
  if (c.async_error != kSuccess) return c.async_error;
  if (c.clique->is_broken() && fake_nccl_control()->aborts_are_seen) return kRemoteError;
  if (c.hangs && !c.holds) return kInProgress;
  if (c.is_waiting && !c.clique->has_ended(c.round)) return kInProgress;
  return c.clique->is_complete() ? kSuccess : kInProgress;
}

// Waits in the call, as a communicator that blocks does.
template <typename Lock>
Result wait(Comm &c, Lock &lock) {
  c.clique->changed.wait(lock, [&] { return c.is_gone || state_of(c) != kInProgress; });
  return c.is_gone ? kInternalError : state_of(c);
}

Result submit(Comm *c, Request request, void *stream) {
  Control &control = *fake_nccl_control();
  if (control.settle != nullptr) control.settle(stream);
  std::unique_lock lock(c->clique->mutex);
  if (c->is_gone) return violate("an operation on a communicator that is gone");
  if (c->is_finalized) return violate("an operation after ncclCommFinalize");
  if (!c->blocks && state_of(*c) == kInProgress)
    return violate("an operation while another call is in progress");
  control.last_stream = stream;
  ++control.operations;
  if (is_due(*c, control.fails_at)) return static_cast<Result>(control.fail_result);
  if (is_due(*c, control.blocks_at)) {
    c->clique->changed.wait(lock, [&] { return c->is_gone; });
    return kInternalError;
  }
  if (is_due(*c, control.stalls_at)) {
    c->hangs = c->holds = true;
    c->held_stream = stream;
    c->async_error = static_cast<Result>(control.stall_error);
    control.hold(stream);
    return kSuccess;
  }
  ++c->operations;
  const char *error = nullptr;
  c->round = c->clique->enter(c->rank, std::move(request), &error);
  c->is_waiting = true;
  if (error != nullptr) return violate(error);
  const Result state = state_of(*c);
  return state == kInProgress && c->blocks ? wait(*c, lock) : state;
}

Result collective(Request request, DataType type, Comm *comm, void *stream) {
  if (type != kUint8) return violate("another type than ncclUint8");
  ++fake_nccl_control()->bytes_types;
  if (group.depth > 0) return violate("a collective inside of a group");
  return submit(comm, std::move(request), stream);
}

Result piece(Request::Piece p, bool is_send, DataType type, Comm *comm, void *stream) {
  if (type != kUint8) return violate("another type than ncclUint8");
  if (group.depth == 0) return violate("ncclSend or ncclRecv outside of a group");
  if (group.comm != nullptr && (group.comm != comm || group.stream != stream))
    return violate("a group over several communicators or streams");
  if (is_send && fake_nccl_control()->send_result != kSuccess)
    return group.failed = static_cast<Result>(fake_nccl_control()->send_result);
  group.comm = comm;
  group.stream = stream;
  (is_send ? group.request.sends : group.request.recvs).push_back(p);
  return kSuccess;
}

void end(Comm *c, bool is_abort) {
  const std::unique_lock lock(c->clique->mutex);
  if (is_abort) c->clique->lose_a_rank();
  c->is_gone = true;
  if (c->holds) fake_nccl_control()->release(c->held_stream);
  c->holds = false;
  --fake_nccl_control()->alive;
  c->clique->changed.notify_all();
}

[[maybe_unused]] Comm *join(int world, const UniqueId &id, int rank, bool blocks, Result *result) {
  const std::lock_guard lock(registry_mutex);
  auto &clique = cliques[std::string(id.internal, sizeof(id.internal))];
#ifdef FAKE_NCCL_SHARED
  if (clique == nullptr) clique = std::make_shared<Clique>(std::string(id.internal), world);
#else
  if (clique == nullptr) clique = std::make_shared<Clique>(world);
#endif
  const std::lock_guard in_clique(clique->mutex);
  const char *error = clique->world() != static_cast<size_t>(world) ? "ranks of different worlds"
                                                                    : clique->join(rank);
  *result = error == nullptr ? kSuccess : violate(error);
  if (error != nullptr) return nullptr;
  auto c = std::make_unique<Comm>();
  c->clique = clique;
  c->rank = rank;
  c->blocks = blocks;
  ++fake_nccl_control()->alive;
  clique->changed.notify_all();
  comms.push_back(std::move(c));
  return comms.back().get();
}

}  // namespace

EXPORT Result ncclGetVersion(int *version) {
  *version = fake_nccl_control()->version;
  return kSuccess;
}
EXPORT Result ncclGetUniqueId(UniqueId *id) {
  const std::lock_guard lock(registry_mutex);
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "octavo_fake_nccl.%d.%d", getpid(), next_id++);
  return static_cast<Result>(fake_nccl_control()->get_id_result);
}
#ifndef FAKE_NCCL_WITHOUT_CONFIG
EXPORT Result ncclCommInitRankConfig(Comm **comm, int world, UniqueId id, int rank,
                                     Config *config) {
  const Control &control = *fake_nccl_control();
  *comm = nullptr;
  if (config->magic != 0xcafebeef || config->version < 21400) return kInvalidArgument;
  if (control.init_result != kSuccess) return static_cast<Result>(control.init_result);
  Result result = kSuccess;
  Comm *c = join(world, id, rank, config->blocking != 0, &result);
  if (c == nullptr) return result;
  *comm = c;
  const std::lock_guard lock(c->clique->mutex);
  c->hangs = control.init_hangs;
  c->async_error = static_cast<Result>(control.init_async);
  return kInProgress;
}
#endif
EXPORT Result ncclCommFinalize(Comm *c) {
  const std::lock_guard lock(c->clique->mutex);
  if (c->is_gone) return violate("ncclCommFinalize of a communicator that is gone");
  c->is_finalized = true;
  c->hangs = fake_nccl_control()->finalize_hangs;
  return kInProgress;
}
EXPORT Result ncclCommDestroy(Comm *c) {
  {
    const std::lock_guard lock(c->clique->mutex);
    if (c->is_gone) return violate("ncclCommDestroy of a communicator that is gone");
    if (!c->blocks && !c->is_finalized)
      return violate("ncclCommDestroy before ncclCommFinalize of one that does not block");
  }
  ++fake_nccl_control()->destroys;
  end(c, false);
  return kSuccess;
}
EXPORT Result ncclCommAbort(Comm *c) {
  {
    const std::lock_guard lock(c->clique->mutex);
    if (c->is_gone) return violate("ncclCommAbort of a communicator that is gone");
  }
  ++fake_nccl_control()->aborts;
  end(c, true);
  return kSuccess;
}
EXPORT Result ncclCommGetAsyncError(Comm *c, Result *error) {
  const std::lock_guard lock(c->clique->mutex);
  if (c->is_gone) return violate("ncclCommGetAsyncError of a communicator that is gone");
  *error = state_of(*c);
  return kSuccess;
}
EXPORT const char *ncclGetErrorString(Result) {
  return "a text of the fake";
}
EXPORT const char *ncclGetLastError(Comm *) {
  return "the last error of the fake";
}
EXPORT Result ncclAllGather(const void *send, void *recv, size_t count, DataType type, Comm *comm,
                            void *stream) {
  Request r;
  r.kind = Request::Kind::kAllGather;
  r.send = send;
  r.recv = recv;
  r.bytes = count;
  return collective(std::move(r), type, comm, stream);
}
EXPORT Result ncclBroadcast(const void *send, void *recv, size_t count, DataType type, int root,
                            Comm *comm, void *stream) {
  Request r;
  r.kind = Request::Kind::kBroadcast;
  r.send = send;
  r.recv = recv;
  r.bytes = count;
  r.root = root;
  return collective(std::move(r), type, comm, stream);
}
EXPORT Result ncclSend(const void *data, size_t count, DataType type, int peer, Comm *comm,
                       void *stream) {
  return piece({const_cast<void *>(data), count, peer}, true, type, comm, stream);
}
EXPORT Result ncclRecv(void *data, size_t count, DataType type, int peer, Comm *comm,
                       void *stream) {
  return piece({data, count, peer}, false, type, comm, stream);
}
EXPORT Result ncclGroupStart() {
  ++group.depth;
  return kSuccess;
}
EXPORT Result ncclGroupEnd() {
  if (group.depth == 0) return violate("ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return kSuccess;
  Group done;
  std::swap(done, group);
  if (done.failed != kSuccess) return done.failed;
  if (done.comm == nullptr) return kSuccess;
  ++fake_nccl_control()->bytes_types;
  done.request.kind = Request::Kind::kGroup;
  return submit(done.comm, std::move(done.request), done.stream);
}
