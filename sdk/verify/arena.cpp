// The arena, its red zones and the comparison of two arenas.
//
// Red zones hold a fixed byte that no cast of plausible data produces in a run, so an overrun shows
// even when it writes zeros.
#include "arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "report.h"

namespace octavo::conformance {
namespace {

constexpr uint64_t kReserved = uint64_t{4} << 30;  // address space; pages are taken when touched
constexpr uint64_t kAlignment = 256;               // what the contract promises to backends
constexpr uint64_t kRedZone = 256;
constexpr uint64_t kLocked = uint64_t{16} << 20;  // bytes that are locked at once
constexpr uint8_t kRedByte = 0xC3;

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Arena::Arena(octavo_device device, uint64_t shift) : next_(kRedZone), lock_(device) {
  mapped_bytes_ = kReserved + shift;
  void *memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Failure("the suite could not map 4 GiB of address space");
  mapped_ = static_cast<uint8_t *>(memory);
  base_ = mapped_ + shift;
  std::memset(base_, kRedByte, kRedZone);
  pages_ = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

Arena::~Arena() {
  lock_.clear();
  munmap(mapped_, mapped_bytes_);
}

uint8_t *Arena::allocate(uint64_t bytes, Use use, std::string name, uint32_t role) {
  const uint64_t begin = next_;
  const uint64_t end = begin + bytes;
  next_ = round_up(end + kRedZone, kAlignment);
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (bytes > kReserved || next_ + page + kLocked > kReserved) {
    throw Failure(text(name, " needs ", bytes,
                       " bytes: the suite's 4 GiB do not suffice, so "
                       "check the size that the backend stated"));
  }
  std::memset(base_ + end, kRedByte, next_ - end);
  pages_ = round_up(next_, page);
  const uint64_t used = pages_ + static_cast<uint64_t>(base_ - mapped_);
  for (; locked_ < used; locked_ += kLocked) lock_.lock(mapped_ + locked_, kLocked);
  regions_.push_back({begin, bytes, use, std::move(name), role});
  return base_ + begin;
}

uint64_t Arena::offset(const void *p) const {
  return static_cast<uint64_t>(static_cast<const uint8_t *>(p) - base_);
}

uint64_t Arena::room_at(const void *p) const {
  const auto at = static_cast<const uint8_t *>(p);
  if (at < base_ || at >= base_ + next_) return UINT64_MAX;
  uint64_t room = 0;
  for (const Region &region : regions_) {
    const uint64_t end = region.begin + region.bytes;
    if (region.begin <= offset(p) && offset(p) <= end) room = end - offset(p);
  }
  return room;
}

std::string Arena::describe(uint64_t offset) const {
  const Region *last = nullptr;
  for (const Region &region : regions_) {
    if (region.begin > offset) break;
    last = &region;
  }
  if (last == nullptr) return text("the red zone at the start of the arena, byte ", offset);
  const uint64_t within = offset - last->begin;
  if (within < last->bytes) return text(last->name, ", byte ", within, " of ", last->bytes);
  return text("the red zone behind ", last->name, " (", last->bytes, " bytes), byte ",
              within - last->bytes);
}

Snapshot Arena::snapshot() const {
  return Snapshot(base_, base_ + next_);
}

void Arena::restore(const Snapshot &snapshot) {
  std::memcpy(base_, snapshot.data(), std::min<uint64_t>(snapshot.size(), next_));
}

void Arena::check_red_zones(const std::string &what) const {
  uint64_t begin = 0;
  const auto check = [&](uint64_t end) {
    for (uint64_t at = begin; at < end; ++at) {
      if (base_[at] == kRedByte) continue;
      throw Failure(text(what, " wrote outside of every buffer, at ", describe(at)));
    }
  };
  for (const Region &region : regions_) {
    check(region.begin);
    begin = region.begin + region.bytes;
  }
  check(next_);
}

void expect_equal(const Arena &arena, const Snapshot &expected, const Snapshot &found,
                  const std::string &what, bool (*ignored)(const Region &region)) {
  const uint64_t size = std::min(expected.size(), found.size());
  for (const Region &region : arena.regions()) {
    if (region.use == Use::kWorkspace || region.use == Use::kSum) continue;
    if (region.begin + region.bytes > size) continue;
    if (ignored != nullptr && ignored(region)) continue;
    for (uint64_t at = region.begin; at < region.begin + region.bytes; ++at) {
      if (expected[at] == found[at]) continue;
      throw Failure(text(what, ": ", arena.describe(at), " should be ", unsigned{expected[at]},
                         " but is ", unsigned{found[at]}));
    }
  }
}

}  // namespace octavo::conformance
