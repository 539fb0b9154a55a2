// Threads take the next tensor from a common count, and end with the call.
#include "sdk/src/checkpoint/checkpoint_work.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

namespace octavo {
namespace {

constexpr uint64_t kBytesOfThread = 2 << 20;  // for less, starting one costs more than it gains
constexpr uint64_t kMostThreads = 8;

}  // namespace

void work_on_tensors(const std::vector<uint64_t> &bytes, const std::function<void(size_t)> &work) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&] {
    for (size_t i = next++; i < order.size(); i = next++) {
      try {
        work(order[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = order.size();
      }
    }
  };
  const uint64_t total = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const uint64_t threads = std::min<uint64_t>(
      {total / kBytesOfThread, cores, kMostThreads, static_cast<uint64_t>(order.size())});
  std::vector<std::thread> others;
  try {
    for (uint64_t i = 1; i < threads; ++i) others.emplace_back(run);
  } catch (const std::system_error &) {
    // No more threads: those that run share the work.
  } catch (const std::bad_alloc &) {
  }
  run();
  for (std::thread &t : others) t.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace octavo
