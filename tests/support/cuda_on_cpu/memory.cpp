// The list of what was given and not yet freed, and the freed memory that is still watched.
#include "memory.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "runtime.h"
#include "sealed.h"

namespace cuda_on_cpu {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kMostWatched = size_t{64} << 20;
/* Of larger blocks only the ends are filled, where time counts. */
constexpr size_t kMostFilled = size_t{1} << 20;

struct Given {
  size_t bytes;
  Place place;
  int device;
  bool is_sealed;
};
struct Freed {
  unsigned char *data;
  size_t bytes;
};

std::mutex mutex;  // guards all below
std::map<const unsigned char *, Given> given;
std::deque<Freed> freed;
size_t watched = 0;
/* What is still watched when the process ends is looked at then. */
struct AtExit {
  ~AtExit() { check_freed(); }
} at_exit;

template <typename Fill>
void on_ends(unsigned char *data, size_t bytes, Fill &&fill) {
  if (bytes <= kMostFilled || script().lazy != 0) return fill(data, bytes);
  fill(data, kMostFilled / 2);
  fill(data + bytes - kMostFilled / 2, kMostFilled / 2);
}

void poison(unsigned char *data, size_t bytes) {
  on_ends(data, bytes, [](unsigned char *at, size_t count) { std::memset(at, kPoison, count); });
}

// Looks at the oldest freed block, and gives it back.
void drop_freed() {
  const Freed f = freed.front();
  freed.pop_front();
  watched -= f.bytes;
  for (size_t i = 0; i < f.bytes && i < kMostFilled / 2; ++i) {
    if (f.data[i] == kPoison) continue;
    std::fprintf(stderr, "cuda_on_cpu: byte %zu of %zu freed ones at %p was written\n", i, f.bytes,
                 static_cast<void *>(f.data));
    std::abort();
  }
  std::free(f.data);
}

const Given *find(const void *data) {
  const auto *byte = static_cast<const unsigned char *>(data);
  auto after = given.upper_bound(byte);
  if (after == given.begin()) return nullptr;
  --after;
  return byte < after->first + after->second.bytes ? &after->second : nullptr;
}

}  // namespace

void *take_memory(size_t bytes, Place place, int device) {
  const bool sealed = place == Place::kDevice && is_sealed();
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void *data = sealed ? sealed_allocate(bytes) : std::aligned_alloc(kAlignment, whole);
  if (data == nullptr) return nullptr;
  if (!sealed) poison(static_cast<unsigned char *>(data), whole);
  const std::lock_guard lock(mutex);
  given[static_cast<unsigned char *>(data)] = {bytes, place, device, sealed};
  return data;
}

bool owns_memory(const void *data, Place place) {
  const std::lock_guard lock(mutex);
  const auto found = given.find(static_cast<const unsigned char *>(data));
  return found != given.end() && found->second.place == place;
}

void give_memory(void *data) {
  const std::lock_guard lock(mutex);
  const auto found = given.find(static_cast<unsigned char *>(data));
  if (found == given.end()) return;
  const Given was = found->second;
  given.erase(found);
  if (was.is_sealed) return sealed_free(data, was.bytes);
  auto *bytes = static_cast<unsigned char *>(data);
  poison(bytes, was.bytes);
  freed.push_back({bytes, was.bytes});
  watched += was.bytes;
  while (watched > kMostWatched) drop_freed();
}

void poison_memory(void *data) {
  const std::lock_guard lock(mutex);
  const auto found = given.find(static_cast<unsigned char *>(data));
  if (found == given.end()) return;
  poison(static_cast<unsigned char *>(open_address(data)), found->second.bytes);
}

Place place_of(const void *data) {
  if (is_sealed() && is_sealed_address(data)) return Place::kDevice;
  const std::lock_guard lock(mutex);
  const Given *found = find(data);
  return found == nullptr ? Place::kPageable : found->place;
}

bool is_foreign(const void *data) {
  if (script().devices < 2 || script().has_peer_access) return false;
  const std::lock_guard lock(mutex);
  const Given *found = find(data);
  return found != nullptr && found->place == Place::kDevice && found->device != current_device();
}

bool points_to_foreign(const void *argument, size_t bytes) {
  if (script().devices < 2) return false;
  for (size_t at = 0; at + sizeof(void *) <= bytes; at += sizeof(void *)) {
    const void *word = nullptr;
    std::memcpy(&word, static_cast<const unsigned char *>(argument) + at, sizeof word);
    if (!is_foreign(word)) continue;
    std::fprintf(
        stderr, "cuda_on_cpu: byte %zu of an argument of %zu is an address of another device, %p\n",
        at, bytes, word);
    return true;
  }
  return false;
}

void check_freed() {
  const std::lock_guard lock(mutex);
  while (!freed.empty()) drop_freed();
}

}  // namespace cuda_on_cpu
