// What a caller lends for one call: structs, texts and lists that are overwritten right after it.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "octavo/backend.h"

namespace octavo::conformance {

// A struct of a later minor version: fields of this one, and bytes that no reader of it knows.
template <typename Struct>
struct Longer {
  explicit Longer(const Struct &known, uint32_t tail = kTail) : first(known) {
    std::memset(rest, 0xDB, sizeof rest);
    first.size = static_cast<uint32_t>(sizeof first) + tail;
  }
  static constexpr uint32_t kTail = 64;
  Struct first;
  uint8_t rest[kTail];
};

class Lent {
 public:
  octavo_str text(octavo_str t) { return {copy(t.data, t.size), t.size}; }
  const octavo_option_value *options(const octavo_option_value *values, uint64_t count) {
    auto *own = copy(values, count);
    for (uint64_t i = 0; i < count; ++i) {
      own[i].name = text(own[i].name);
      if (own[i].value.type == OCTAVO_VALUE_TEXT) own[i].value.text = text(own[i].value.text);
    }
    return own;
  }
  template <typename Struct>
  const Struct *table(const Struct &known, uint32_t tail) {
    const Longer<Struct> longer(known, tail);
    return &copy(&longer, 1)->first;
  }
  // The call is over: whoever kept a pointer reads other bytes from now on.
  void end() {
    for (std::vector<char> &block : blocks_) std::memset(block.data(), '?', block.size());
  }

 private:
  template <typename Element>
  Element *copy(const Element *from, uint64_t count) {
    if (from == nullptr || count == 0) return nullptr;
    std::vector<char> &block = blocks_.emplace_back(count * sizeof(Element));
    std::memcpy(block.data(), from, block.size());
    return reinterpret_cast<Element *>(block.data());
  }
  char *copy(const char *from, uint64_t count) { return copy<char>(from, count); }

  std::deque<std::vector<char>> blocks_;
};

// The host of one session: forwards to the real one, and counts the errors that it is told.
class HostWatch {
 public:
  explicit HostWatch(const octavo_host *real) : real_(real) {
    table_.size = sizeof table_;
    table_.kind = OCTAVO_KIND_HOST;
    table_.abi_major = OCTAVO_ABI_MAJOR;
    table_.abi_minor = OCTAVO_ABI_MINOR;
    table_.ctx = this;
    table_.diagnose = diagnose;
    table_.get_extension = get_extension;
  }
  HostWatch(const HostWatch &) = delete;
  HostWatch &operator=(const HostWatch &) = delete;

  const octavo_host *table() const { return &table_; }
  // Errors with this code since the last call of this function or forget().
  uint32_t take(octavo_status code) { return code < kCodes ? errors_[code].exchange(0) : 1; }
  uint32_t take_all() {
    uint32_t sum = 0;
    for (auto &errors : errors_) sum += errors.exchange(0);
    return sum;
  }

 private:
  static constexpr octavo_status kCodes = OCTAVO_INTERNAL + 1;
  static void diagnose(void *ctx, const octavo_diagnostic *d) {
    auto &self = *static_cast<HostWatch *>(ctx);
    if (d->severity == OCTAVO_SEVERITY_ERROR && d->code < kCodes) ++self.errors_[d->code];
    if (self.real_ != nullptr) self.real_->diagnose(self.real_->ctx, d);
  }
  static const void *get_extension(void *ctx, octavo_str id) {
    const octavo_host *real = static_cast<HostWatch *>(ctx)->real_;
    return real == nullptr ? nullptr : real->get_extension(real->ctx, id);
  }

  const octavo_host *real_;
  octavo_host table_{};
  std::atomic<uint32_t> errors_[kCodes]{};
};

}  // namespace octavo::conformance
