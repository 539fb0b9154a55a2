// The operands and results of one XLA call, taken in the order that octavo/jax/ffi.py gives them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "entry.h"
#include "octavo/draft/gradients.h"
#include "xla/ffi/api/ffi.h"

namespace octavo::jax {

namespace ffi = xla::ffi;

// Flags of a call: OCTAVO_FORWARD_... or OCTAVO_BACKWARD_... in bits 0 to 7, and what is there.
constexpr int64_t kBias = 256, kSave = 512, kDx = 1024, kDw = 2048, kDb = 4096, kRecords = 8192;

[[noreturn]] inline void refuse(const std::string &what) {
  throw Error(what, OCTAVO_INVALID, {});
}

inline uint32_t dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F32: return OCTAVO_F32;
    case ffi::DataType::BF16: return OCTAVO_BF16;
    case ffi::DataType::F16: return OCTAVO_F16;
    default:
      refuse("a tensor: expected float32, bfloat16 or float16, found XLA's type " +
             std::to_string(static_cast<int>(type)));
  }
}

class Call {
 public:
  Call(ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t flags)
      : args_(args), rets_(rets), flags_(flags) {}

  bool has(int64_t flag) const { return (flags_ & flag) != 0; }
  int64_t flags() const { return flags_; }
  uint32_t contract_flags() const { return static_cast<uint32_t>(flags_ & 0xFF); }

  ffi::AnyBuffer operand() { return *args_.get<ffi::AnyBuffer>(check(arg_++, args_.size())); }
  ffi::AnyBuffer result() { return **rets_.get<ffi::AnyBuffer>(check(ret_++, rets_.size())); }
  // After the last one: the caller passed as many as were taken.
  void end() const {
    if (arg_ != args_.size() || ret_ != rets_.size())
      refuse("expected " + std::to_string(arg_) + " operands and " + std::to_string(ret_) +
             " results, found " + std::to_string(args_.size()) + " and " +
             std::to_string(rets_.size()));
  }

  // A matrix whose last dimension is `cols`; leading ones are rows.
  static octavo_tensor matrix(const ffi::AnyBuffer &b, int64_t cols, const char *what) {
    const int64_t count = static_cast<int64_t>(b.element_count());
    const auto dims = b.dimensions();
    if (dims.size() == 0 || dims.back() != cols)
      refuse(std::string(what) + ": expected a last dimension of " + std::to_string(cols) +
             ", found " + (dims.size() == 0 ? "none" : std::to_string(dims.back())));
    octavo_tensor t = {};
    t.data = b.untyped_data();
    t.cols = t.stride = cols;
    t.rows = cols > 0 ? count / cols : 0;
    t.dtype = dtype_of(b.element_type());
    return t;
  }

  // Memory that XLA gives for a call: exactly `bytes`, or more.
  void *bytes(uint64_t wanted, const char *what) { return sized(result(), wanted, what); }
  const void *operand_bytes(uint64_t wanted, const char *what) {
    return sized(operand(), wanted, what);
  }

  // What is read and written must be one memory.
  static void same(const ffi::AnyBuffer &in, const void *out, const char *what) {
    if (in.untyped_data() != out && in.element_count() > 0)
      refuse(std::string(what) + ": expected an operand that is also the result");
  }

  // The pointer list of an object. access: how the verb uses an entry, or for all of them
  // OCTAVO_ACCESS_READ or _UPDATE; count: the objects that stacked slots hold. Entries of object i
  // begin at pointers()[i * list.size()].
  void take(const List &list, uint8_t access = OCTAVO_ACCESS_NONE, uint64_t count = 1) {
    pointers_.assign(std::max<size_t>(list.size() * count, 1), nullptr);
    std::vector<std::pair<size_t, uint64_t>> records;
    uint64_t record_bytes = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const Place &place = list[i];
      const uint8_t how = access == OCTAVO_ACCESS_NONE ? place.access : access;
      if (how == OCTAVO_ACCESS_ACCUMULATE) {
        records.emplace_back(i, record_bytes);
        record_bytes += place.bytes;
        continue;
      }
      char *data = static_cast<char *>(slot(place, how, count));
      for (uint64_t c = 0; data != nullptr && c < count; ++c)
        pointers_[c * list.size() + i] = data + c * place.bytes;
    }
    if (records.empty() || !has(kRecords)) return;
    char *record = static_cast<char *>(updated(record_bytes, "the record"));
    for (const auto &[at, offset] : records) pointers_[at] = record + offset;
  }
  void *const *pointers() const { return pointers_.data(); }

 private:
  static size_t check(size_t at, size_t count) {
    if (at >= count) refuse("expected more than " + std::to_string(count) + " operands or results");
    return at;
  }
  static void *sized(const ffi::AnyBuffer &b, uint64_t wanted, const char *what) {
    if (b.size_bytes() != wanted)
      refuse(std::string(what) + ": expected " + std::to_string(wanted) + " bytes, found " +
             std::to_string(b.size_bytes()) +
             "; is this the state of another model, or of another version of octavo?");
    return b.untyped_data();
  }
  void *updated(uint64_t wanted, const char *what) {
    const ffi::AnyBuffer in = operand();
    void *out = bytes(wanted, what);
    sized(in, wanted, what);
    same(in, out, what);
    return out;
  }
  void *slot(const Place &place, uint8_t how, uint64_t count) {
    const uint64_t wanted = place.bytes * count;
    switch (how) {
      case OCTAVO_ACCESS_NONE: return nullptr;
      case OCTAVO_ACCESS_READ: return const_cast<void *>(operand_bytes(wanted, place.slot.c_str()));
      case OCTAVO_ACCESS_WRITE: return bytes(wanted, place.slot.c_str());
      default: return updated(wanted, place.slot.c_str());
    }
  }

  ffi::RemainingArgs args_;
  ffi::RemainingRets rets_;
  int64_t flags_;
  size_t arg_ = 0, ret_ = 0;
  std::vector<void *> pointers_;
};

}  // namespace octavo::jax
