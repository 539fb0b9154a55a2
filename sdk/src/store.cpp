// octavo_store: slots in host memory, with one ready pointer list per object and verb.
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "run.h"
#include "wall.h"

namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kVerbs = OCTAVO_VERB_REDUCE + 1;

struct FreeAligned {
  void operator()(void *p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
};
using Memory = std::unique_ptr<void, FreeAligned>;

size_t width_of(uint32_t dtype) {
  return OCTAVO_DTYPE_BITS(dtype) / 8;
}

size_t bytes_of(const octavo_slot &s) {
  return static_cast<size_t>(s.rows) * static_cast<size_t>(s.cols) * width_of(s.dtype);
}

Memory allocate(const octavo_slot &s) {
  const size_t bytes = bytes_of(s);
  Memory memory(::operator new (bytes, std::align_val_t{kAlignment}));
  std::memset(memory.get(), 0, bytes);
  const size_t count = static_cast<size_t>(s.rows) * static_cast<size_t>(s.cols);
  if (s.initial != 0 && s.dtype == OCTAVO_F32)
    std::fill_n(static_cast<float *>(memory.get()), count, static_cast<float>(s.initial));
  if (s.initial != 0 && s.dtype == OCTAVO_I32)
    std::fill_n(static_cast<int32_t *>(memory.get()), count, static_cast<int32_t>(s.initial));
  return memory;
}

}  // namespace

struct octavo_store {
 public:
  explicit octavo_store(const octavo_run &run) : run_(run) { extend(); }

  const octavo_host *host() const { return run_.host(); }

  void extend() {
    for (size_t i = memory_.size(); i < run_.slots().size(); ++i) {
      const octavo_slot &s = run_.slots()[i];
      const bool native = (s.flags & OCTAVO_SLOT_NATIVE) != 0;
      memory_.push_back(native ? Memory() : allocate(s));
      addresses_.push_back(memory_.back().get());
      if (native) continue;
      total_ += bytes_of(s);
      bytes_by_role_[s.role] += bytes_of(s);
    }
    build_lists();
  }

  void native(uint32_t parameter, uint32_t role, void *data) {
    bool found = false;
    for (const octavo_slot &s : run_.slots()) {
      if (s.owner_kind != OCTAVO_OWNER_PARAMETER || s.owner != parameter || s.role != role ||
          (s.flags & OCTAVO_SLOT_NATIVE) == 0 || s.id >= addresses_.size())
        continue;
      addresses_[s.id] = data;
      found = true;
    }
    if (!found)
      throw octavo::Failure(OCTAVO_INVALID, "octavo.store",
                            "parameter " + std::to_string(parameter) +
                                ": expected a native slot of role " + std::to_string(role) +
                                ", found none; the backend keeps this tensor itself, or the store "
                                "was not extended after the seal");
    build_lists();
  }

  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) const {
    static void *const empty[1] = {nullptr};
    if (verb >= kVerbs || owner_kind < 1 || owner_kind > 3) return empty;
    const auto &owners = lists_[owner_kind - 1];
    if (owner >= owners.size() || owners[owner][verb].empty()) return empty;
    return owners[owner][verb].data();
  }

  void *address(uint32_t slot) const {
    return slot < addresses_.size() ? addresses_[slot] : nullptr;
  }

  uint64_t bytes(uint32_t role) const {
    if (role == 0) return total_;
    const auto found = bytes_by_role_.find(role);
    return found == bytes_by_role_.end() ? 0 : found->second;
  }

 private:
  void build_lists() {
    build(OCTAVO_OWNER_SESSION, 1);
    build(OCTAVO_OWNER_PARAMETER, run_.parameter_count());
    build(OCTAVO_OWNER_LINEAR, run_.linear_count());
  }

  void build(uint32_t owner_kind, uint32_t count) {
    auto &owners = lists_[owner_kind - 1];
    owners.resize(count);
    for (uint32_t owner = 0; owner < count; ++owner) {
      const std::deque<octavo_slot_use> *uses = run_.uses(owner_kind, owner);
      if (uses == nullptr) continue;
      for (size_t verb = 0; verb < kVerbs; ++verb) {
        std::vector<void *> &list = owners[owner][verb];
        list.clear();
        for (const octavo_slot_use &u : *uses) list.push_back(position(u, verb));
      }
    }
  }

  void *position(const octavo_slot_use &u, size_t verb) const {
    if (u.slot >= addresses_.size()) return nullptr;  // of a seal since the last extend
    const octavo_slot &s = run_.slots()[u.slot];
    if (s.access[verb] == OCTAVO_ACCESS_NONE || addresses_[u.slot] == nullptr) return nullptr;
    return static_cast<char *>(addresses_[u.slot]) + u.first * width_of(s.dtype);
  }

  const octavo_run &run_;
  std::vector<Memory> memory_;
  std::vector<void *> addresses_;  // by slot: own memory or the host's tensor
  std::array<std::vector<std::array<std::vector<void *>, kVerbs>>, 3> lists_;
  std::map<uint32_t, uint64_t> bytes_by_role_;
  uint64_t total_ = 0;
};

octavo_status octavo_store_open(const octavo_run *r, octavo_store **out) {
  if (r == nullptr || out == nullptr) return OCTAVO_INVALID;
  return octavo::guarded(r->host(), [&] {
    *out = new octavo_store(*r);
    return OCTAVO_OK;
  });
}

octavo_status octavo_store_extend(octavo_store *s) {
  if (s == nullptr) return OCTAVO_INVALID;
  return octavo::guarded(s->host(), [&] {
    s->extend();
    return OCTAVO_OK;
  });
}

octavo_status octavo_store_native(octavo_store *s, uint32_t parameter, uint32_t role, void *data) {
  if (s == nullptr) return OCTAVO_INVALID;
  return octavo::guarded(s->host(), [&] {
    s->native(parameter, role, data);
    return OCTAVO_OK;
  });
}

void *const *octavo_store_list(const octavo_store *s, uint32_t verb, uint32_t owner_kind,
                               uint32_t owner) {
  return s->list(verb, owner_kind, owner);
}

void *octavo_store_address(const octavo_store *s, uint32_t slot) {
  return s->address(slot);
}

uint64_t octavo_store_bytes(const octavo_store *s, uint32_t role) {
  return s->bytes(role);
}

void octavo_store_close(octavo_store *s) {
  delete s;
}
