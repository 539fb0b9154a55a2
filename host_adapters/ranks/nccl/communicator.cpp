/* Opening a communicator on one device, and ending it. */
#include "host_adapters/ranks/nccl/communicator.h"

#include <unistd.h>

#include <cstring>
#include <vector>

namespace octavo::cuda::nccl {
namespace {

constexpr uint64_t kScratchBytes = uint64_t{32} << 20;
constexpr uint32_t kDeadline = 10 * 60 * 1000; /* ms */

}  // namespace

Communicator::Communicator(const octavo_nccl_desc &desc)
    : caller_{desc.host, "octavo.nccl"},
      world_(desc.world),
      rank_(desc.rank),
      device_(desc.device),
      deadline_(std::chrono::milliseconds(desc.deadline_ms == 0 ? kDeadline : desc.deadline_ms)),
      scratch_bytes_(desc.scratch_bytes == 0 ? kScratchBytes : desc.scratch_bytes),
      process_(getpid()) {}

bool Communicator::is_inherited() const {
  return getpid() != process_;
}

octavo_status Communicator::open(const octavo_nccl_desc &desc) {
  const char *verb = "octavo_nccl_open";
  octavo_status status = find_library(caller_, verb, desc.library, &nccl_);
  if (status != OCTAVO_OK) return status;
  failed_.store(false);
  const DeviceScope device(device_);
  int multiprocessors = 1;
  cudaError_t error = device.error();
  if (error == cudaSuccess)
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_);
  if (error == cudaSuccess)
    error = cudaMalloc(reinterpret_cast<void **>(&scratch_), scratch_bytes_);
  if (error == cudaSuccess) error = pending_.open();
  if (error != cudaSuccess) return fail_cuda(verb, error);
  blocks_ = 8 * static_cast<unsigned>(multiprocessors);
  start_watching();
  status = make(verb, *desc.id);
  return status == OCTAVO_OK ? compare_scratch(verb) : status;
}

octavo_status Communicator::make(const char *verb, const octavo_nccl_id &id) {
  UniqueId unique;
  static_assert(sizeof(unique) == sizeof(id));
  std::memcpy(&unique, &id, sizeof(unique));
  Config config;
  Comm *comm = nullptr;
  Lock lock(mutex_);
  call_verb_.store(verb);
  call_began_.store(Clock::now().time_since_epoch().count());
  const Result result = nccl_->CommInitRankConfig(&comm, static_cast<int>(world_), unique,
                                                  static_cast<int>(rank_), &config);
  call_began_.store(0);
  comm_.store(comm);
  if (result == kSuccess) return OCTAVO_OK;
  return wait_until_done(lock, verb, "ncclCommInitRankConfig", 0, result);
}

/* The first exchange: ranks that cut their operations differently would wait for each other, or
 * read foreign parts. */
octavo_status Communicator::compare_scratch(const char *verb) {
  std::vector<uint64_t> all(world_);
  cudaStream_t stream = nullptr;
  const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return fail_cuda(verb, error);
  octavo_status status = exchange_scratch(verb, stream, all.data());
  cudaStreamDestroy(stream);
  for (uint32_t r = 0; r < world_ && status == OCTAVO_OK; ++r)
    if (all[r] != scratch_bytes_)
      status =
          fail(OCTAVO_INVALID,
               "%s: expected equal scratch_bytes on every rank, found %llu on rank %u and %llu "
               "on rank %u; give every rank the same",
               verb, static_cast<unsigned long long>(scratch_bytes_), rank_,
               static_cast<unsigned long long>(all[r]), r);
  return status;
}

octavo_status Communicator::exchange_scratch(const char *verb, cudaStream_t stream, uint64_t *all) {
  auto *own = reinterpret_cast<uint64_t *>(scratch_);
  cudaError_t error =
      cudaMemcpyAsync(own, &scratch_bytes_, sizeof(*own), cudaMemcpyHostToDevice, stream);
  if (error != cudaSuccess) return fail_cuda(verb, error);
  octavo_status status = call(verb, "ncclAllGather", 0, [&](const Functions &nccl, Comm *comm) {
    return nccl.AllGather(own, own + 1, sizeof(*own), kUint8, comm, stream);
  });
  if (status != OCTAVO_OK) return status;
  {
    const Lock lock(mutex_);
    error = pending_.add({verb, 0}, stream);
  }
  if (error != cudaSuccess) return fail_cuda(verb, error);
  status = wait_for_pending(verb); /* a copy to the host would wait without a deadline */
  if (status != OCTAVO_OK) return status;
  error = cudaMemcpyAsync(all, own + 1, world_ * sizeof(*own), cudaMemcpyDeviceToHost, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  return error == cudaSuccess ? OCTAVO_OK : fail_cuda(verb, error);
}

octavo_status Communicator::wait_for_pending(const char *verb) {
  for (;;) {
    {
      const Lock lock(mutex_);
      look();
      if (!has_failed() && pending_.empty()) return OCTAVO_OK;
    }
    if (has_failed()) return refuse_after_failure(verb, "given up");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

octavo_status Communicator::end_own() {
  const octavo_status status =
      call("octavo_nccl_close", "ncclCommFinalize", 0,
           [](const Functions &nccl, Comm *comm) { return nccl.CommFinalize(comm); });
  if (status != OCTAVO_OK) return status;
  const Lock lock(mutex_);
  Comm *comm = comm_.exchange(nullptr);
  failed_.store(true);
  if (comm != nullptr) nccl_->CommDestroy(comm);
  return OCTAVO_OK;
}

void Communicator::close() {
  const DeviceScope device(device_);
  if (!has_failed() && wait_for_pending("octavo_nccl_close") == OCTAVO_OK) end_own();
  if (watcher_.joinable()) {
    {
      const std::lock_guard lock(watch_mutex_);
      stops_ = true;
    }
    wake_.notify_all();
    watcher_.join();
  }
  const Lock lock(mutex_);
  pending_.look();
  pending_.close();
  if (scratch_ != nullptr) cudaFree(scratch_);
  release_staged();
  scratch_ = nullptr;
}

}  // namespace octavo::cuda::nccl
