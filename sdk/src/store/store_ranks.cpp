// What the ranks of a store do together: combining accumulators, and sending what owners stepped.
//
// Everything that one rank can find wrong by itself is refused before the first collective. A rank
// that fails later leaves the others waiting in theirs: ending them is the host's part.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "sdk/src/base/dtype.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/base/text.h"
#include "sdk/src/ranks/rank_call.h"
#include "sdk/src/store/shared_out.h"
#include "sdk/src/store/store.h"

namespace {

// FNV-1a over the keys, shapes and labels of slots, in 16-bit words: f32 holds each exactly.
class Digest {
 public:
  static constexpr size_t kWords = 4;
  void add(std::string_view text) {
    for (const char c : text)
      hash_ = (hash_ ^ static_cast<unsigned char>(c)) * uint64_t{1099511628211};
    hash_ = (hash_ ^ 0xFF) * uint64_t{1099511628211};  // in no UTF-8
  }
  float word(size_t i) const { return static_cast<float>((hash_ >> (16 * i)) & 0xFFFF); }

 private:
  uint64_t hash_ = 14695981039346656037u;
};

std::string answered(const char *what, octavo_status status) {
  return octavo::concat(": the host's ", what, " answered status ", status);
}

}  // namespace

// "parameter 3 "h.0.weight", slot 12 "weight/scale_inv""
std::string octavo_store::describe(const octavo_slot &s) const {
  std::string text;
  if (s.owner_kind == OCTAVO_OWNER_PARAMETER && s.owner < run_.parameter_count())
    text = octavo::concat("parameter ", s.owner, " \"", run_.parameter_name(s.owner), "\", ");
  return octavo::concat(text, "slot ", s.id, " \"", octavo::view(s.name), "\"");
}

// The slots that the two functions below send, in an order that is equal on every rank.
void octavo_store::find_exchanged() {
  reduced_.clear();
  are_same_objects_ = false;
  published_.clear();
  for (uint32_t id = 0; id < addresses_.size(); ++id)
    if ((run_.slots()[id].flags & OCTAVO_SLOT_REDUCE) != 0) reduced_.push_back(id);
  for (uint32_t p = 0; p < run_.parameter_count(); ++p) {
    const std::deque<octavo_slot_use> *uses = run_.uses(OCTAVO_OWNER_PARAMETER, p);
    const uint32_t root = assignment_.owner(p);
    if (uses == nullptr || root == OCTAVO_NONE) continue;
    const size_t first = published_.size();
    for (const octavo_slot_use &u : *uses) {
      if (u.slot >= addresses_.size()) continue;
      const octavo_slot &s = run_.slots()[u.slot];
      const bool own = s.owner_kind == OCTAVO_OWNER_PARAMETER && s.owner == p;
      const bool listed =
          std::any_of(published_.begin() + static_cast<std::ptrdiff_t>(first), published_.end(),
                      [&](const Published &e) { return e.slot == s.id; });
      if (own && !listed && octavo::is_published(s)) published_.push_back({s.id, root});
    }
  }
}

octavo_collective octavo_store::checked(const octavo_collective *given, const char *verb) const {
  const octavo_collective c = octavo::own_collective(given, octavo::kStoreDomain, verb);
  if (world_ > 1 && c.world != world_)
    octavo::fail_store(OCTAVO_INVALID, verb, ": the store is distributed over ", world_,
                       " ranks, the collective has ", c.world, ": open the store for ", c.world,
                       " ranks and hand the states over with read_parameter / write_parameter");
  return c;
}

// The columns of a pool belong to objects by name: ranks with other ones, such as experts, would
// mix their maxima. Once for each seal, by one maximum of a digest and of its negative.
void octavo_store::expect_same_objects(const octavo_collective &c, void *stream) {
  if (are_same_objects_) return;
  Digest digest;
  for (const uint32_t id : reduced_) {
    const octavo_slot &s = run_.slots()[id];
    digest.add(run_.slot_keys()[id]);
    digest.add(octavo::concat(s.combine, " ", s.rows, " ", s.cols));
    for (int64_t col = 0; s.labels != nullptr && col < s.cols; ++col)
      digest.add(octavo::view(s.labels[col]));
  }
  std::array<float, 2 *Digest::kWords> words = {};
  for (size_t i = 0; i < Digest::kWords; ++i)
    words[i] = digest.word(i), words[Digest::kWords + i] = -digest.word(i);
  octavo_slot both = {};  // as memory of the device
  both.rows = 1, both.cols = words.size(), both.dtype = OCTAVO_F32;
  // Of the store: a collective that failed here may still be queued, and write later.
  if (digest_ == nullptr) digest_ = allocate(both);
  void *const memory = digest_.get();
  put(both, memory, words.data());
  const octavo_status status = c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_MAX, OCTAVO_F32, memory,
                                     words.size(), memory, words.size(), stream);
  if (status != OCTAVO_OK)
    octavo::fail_store(status, "octavo_store_reduce", answered("collective", status));
  if (is_on_host())
    std::memcpy(words.data(), memory, sizeof words);
  else
    expect_done(device_->memory()->copy(device_->ctx(), words.data(), memory, sizeof words), both,
                "copy");
  for (size_t i = 0; i < Digest::kWords; ++i)
    if (words[i] + words[Digest::kWords + i] != 0.0F)
      octavo::fail_store(
          OCTAVO_INVALID,
          "octavo_store_reduce: expected the same REDUCE slots with the same labels ",
          "on every rank, found others; this rank has ", reduced_.size(), ", the first is ",
          reduced_.empty() ? std::string("none") : run_.slot_keys()[reduced_.front()],
          ": seal the same layers under the same names in the same order, or combine the slots of "
          "ranks with other objects yourself, column by column of a pool's labels");
  are_same_objects_ = true;
}

void octavo_store::reduce(const octavo_collective *given, void *stream) {
  const char *verb = "octavo_store_reduce";
  const octavo_collective c = checked(given, verb);
  for (const uint32_t id : reduced_) {
    const octavo_slot &s = run_.slots()[id];
    if (s.dtype != OCTAVO_F32)
      octavo::fail_store(OCTAVO_UNSUPPORTED, verb, ": ", describe(s),
                         ": expected f32 in a REDUCE slot, found dtype ", s.dtype);
    if (addresses_[id] == nullptr)
      octavo::fail_store(
          OCTAVO_INVALID, verb, ": ", describe(s),
          ": expected the host's tensor, found none: hand it in with octavo_store_native");
  }
  if (c.world == 1) return;
  expect_same_objects(c, stream);
  for (const uint32_t id : reduced_) {
    const octavo_slot &s = run_.slots()[id];
    const uint64_t count = static_cast<uint64_t>(s.rows) * static_cast<uint64_t>(s.cols);
    const uint32_t collective = s.combine == OCTAVO_COMBINE_MAX ? OCTAVO_COLLECTIVE_ALL_REDUCE_MAX
                                                                : OCTAVO_COLLECTIVE_ALL_REDUCE_SUM;
    const octavo_status status =
        c.run(c.ctx, collective, s.dtype, addresses_[id], count, addresses_[id], count, stream);
    if (status != OCTAVO_OK)
      octavo::fail_store(status, verb, ": ", describe(s), answered("collective", status));
  }
}

void octavo_store::publish(const octavo_collective *given, void *stream) const {
  const char *verb = "octavo_store_publish";
  const octavo_collective c = checked(given, verb);
  if (c.world != world_)
    octavo::fail_store(
        OCTAVO_INVALID, verb, ": the store is not distributed, the collective has ", c.world,
        " ranks: open it with octavo_store_open_sharded, or let every rank step every parameter "
        "and publish nothing");
  if (world_ == 1) return;
  if (c.broadcast == nullptr)
    octavo::fail_store(
        OCTAVO_UNSUPPORTED, verb,
        ": expected a collective with a broadcast function, found null: without one a store "
        "cannot be distributed; open it with octavo_store_open");
  for (const Published &e : published_)
    if (addresses_[e.slot] == nullptr)
      octavo::fail_store(
          OCTAVO_INVALID, verb, ": ", describe(run_.slots()[e.slot]),
          ": expected the host's tensor, found none: hand it in with octavo_store_native");
  for (const Published &e : published_) {
    const octavo_slot &s = run_.slots()[e.slot];
    const octavo_status status =
        c.broadcast(c.ctx, e.root, addresses_[e.slot], octavo::slot_bytes(s), stream);
    if (status != OCTAVO_OK)
      octavo::fail_store(status, verb, ": ", describe(s), answered("broadcast", status));
  }
}

octavo_status octavo_store_reduce(octavo_store *s, const octavo_collective *c, void *stream) {
  return octavo::call_guarded(s, [&](octavo_store &store) { store.reduce(c, stream); });
}

octavo_status octavo_store_publish(octavo_store *s, const octavo_collective *c, void *stream) {
  return octavo::call_guarded(s, [&](const octavo_store &store) { store.publish(c, stream); });
}
