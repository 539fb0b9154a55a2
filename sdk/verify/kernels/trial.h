// One call on two sides: the reference in plain memory, then the plugin in hostile memory.
//
// A case is a function that asks its Operands for addresses and makes one call. What it made is
// overwritten as soon as the call returns, since a device that queues its work may not keep it.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../in_flight.h"
#include "calls.h"
#include "grid.h"
#include "side.h"

namespace octavo::conformance::kernels {

// Where operands are.
enum class Place {
  kEnd,   // the last byte is before a guard; around it large numbers
  kBegin  // the first byte is behind a guard; around it NaN. The calls in another floating-point
          // mode
};

class Operands;

// How the calls of a case are made, where it is not at once on the default stream (ways.h).
class Way {
 public:
  virtual ~Way() = default;
  // Before the first call, in place of filling the memory; the stream that calls are given.
  virtual void *begin(Operands &m) = 0;
  // Behind each call, whose structs are overwritten.
  virtual void called() {}
};

class Operands {
 public:
  // The reference's: plain memory. `varied`: with other contents of the same shapes.
  explicit Operands(const Side &side, bool varied = false) : side_(side), varied_(varied) {}
  Operands(const Side &side, Arena &arena, Place place, std::string what, bool varied = false,
           Way *way = nullptr)
      : side_(side),
        arena_(&arena),
        place_(place),
        what_(std::move(what)),
        varied_(varied),
        way_(way) {}

  // A struct of a call, zero but for its size and kind.
  template <typename Call>
  Call *make(uint32_t kind) {
    auto *call = static_cast<Call *>(keep(sizeof(Call)));
    call->size = sizeof(Call);
    call->kind = kind;
    return call;
  }
  template <typename Call>
  Call *make() {
    return static_cast<Call *>(keep(sizeof(Call)));
  }
  octavo_tensor *in(const char *name, const Grid &grid) { return tensor(name, grid, Use::kIn); }
  // An output holds the bytes of `grid` before the call.
  octavo_tensor *out(const char *name, const Grid &grid) { return tensor(name, grid, Use::kOut); }
  // Codes of a cast: also the sign of a NaN is defined.
  octavo_tensor *codes_out(const char *name, const Grid &grid) {
    octavo_tensor *t = out(name, grid);
    if (!grid.bytes.empty()) buffers_.back().has_signs = true;
    return t;
  }
  // `second` is of granularities with a second level.
  octavo_scale *scale_in(const char *name, const Grid &scales, uint32_t granularity,
                         float second = 1) {
    return scale(name, scales, granularity, Use::kIn, second);
  }
  octavo_scale *scale_out(const char *name, const Grid &scales, uint32_t granularity) {
    return scale(name, scales, granularity, Use::kOut, 7);
  }
  float *values_in(const char *name, const std::vector<float> &values) {
    return reinterpret_cast<float *>(place(name, Grid::of_values(values), Use::kIn));
  }
  float *values_out(const char *name, const std::vector<float> &values) {
    return reinterpret_cast<float *>(place(name, Grid::of_values(values), Use::kOut));
  }
  uint8_t *place_in(const char *name, const Grid &grid) { return place(name, grid, Use::kIn); }
  uint8_t *place_out(const char *name, const Grid &grid) { return place(name, grid, Use::kOut); }
  // As large as workspace_bytes states for this call; null where that is 0.
  template <typename Call>
  void *workspace(const Call *c) {
    uint64_t bytes = 0;
    calling("workspace_bytes for " + what_);
    if (side_.table.workspace_bytes(side_.ctx, c, &bytes) != OCTAVO_OK || bytes == 0)
      return nullptr;
    expect(bytes < uint64_t{1} << 24, "workspace_bytes states ", bytes, " bytes for ", what_);
    return place("workspace", Grid::of(OCTAVO_U8, 1, static_cast<int64_t>(bytes)), Use::kScratch,
                 OCTAVO_ALIGNMENT);
  }
  // A function that is missing answers OCTAVO_UNSUPPORTED, as liboctavo's stub does.
  template <typename Table, typename Argument, typename Call>
  octavo_status call(octavo_status (*Table::*member)(void *, const Argument *), Call *c) {
    const Table *table = side_.get<Table>();
    if (table == nullptr || table->*member == nullptr) return OCTAVO_UNSUPPORTED;
    begin();
    calling(what_);
    if (way_ != nullptr) c->stream = stream_;
    const uint64_t before = message_count();
    const octavo_status status = in_mode([&] { return (table->*member)(side_.ctx, c); });
    expect_reported(status, message_count() - before);
    end();
    called_.push_back(name_of_call(member));
    return status;
  }
  // The functions that were called, by their names.
  const std::vector<const char *> &called() const { return called_; }

  struct Result {
    std::string name;
    Grid grid;
    bool has_signs = false;  // of NaN
  };
  // What outputs hold; throws Failure where anything else has changed.
  std::vector<Result> results();
  // What they held before.
  std::vector<Result> initial() const;

  // For ways: the memory, what it holds before the call, and where operands are in it.
  struct Range {
    uint64_t at, bytes;
  };
  Arena &arena() const { return *arena_; }
  const Side &side() const { return side_; }
  const std::string &what() const { return what_; }
  std::vector<uint8_t> image(bool varied) const;
  std::vector<Range> ranges() const;
  void forbid();
  // What the memory held before the next results(), where it is not image(false).
  void expect_image(const std::vector<uint8_t> &image) { image_ = image; }

 private:
  enum class Use { kIn, kOut, kScratch };
  struct Buffer {
    std::string name;
    Grid grid;
    Use use;
    uint64_t at = 0;  // offset in the arena
    std::vector<uint8_t> plain;
    uint8_t *data = nullptr;
    bool has_signs = false;
  };

  void *keep(uint64_t bytes);
  octavo_tensor *tensor(const char *name, const Grid &grid, Use use);
  octavo_scale *scale(const char *name, const Grid &scales, uint32_t granularity, Use use,
                      float second);
  uint8_t *place(const char *name, const Grid &grid, Use use, uint64_t alignment = 0);
  // Where NaN is around operands, the thread also has another floating-point mode.
  octavo_status in_mode(const std::function<octavo_status()> &call) const;
  // A failure has one diagnostic.
  void expect_reported(octavo_status status, uint64_t messages) const;
  void begin();
  void end();
  void expect_kept(const std::vector<uint8_t> &found) const;

  const Side &side_;
  Arena *arena_ = nullptr;
  Place place_ = Place::kEnd;
  std::string what_ = "the reference";
  bool varied_ = false;
  Way *way_ = nullptr;
  void *stream_ = nullptr;
  std::deque<Buffer> buffers_;
  std::vector<std::pair<uint64_t, uint64_t>> guards_;
  std::vector<std::unique_ptr<uint64_t[]>> structs_;
  std::vector<uint64_t> struct_words_;
  uint64_t used_ = 0;
  std::vector<uint8_t> image_;  // of the used part of the arena, before the call
  std::vector<const char *> called_;
};

using Results = std::vector<Operands::Result>;
using Body = std::function<octavo_status(Operands &m)>;
// What is wrong with what the plugin wrote; empty: nothing.
using Judge = std::function<std::string(const Results &expected, const Results &found)>;

struct Case {
  std::string name;     // "quantize float32 [17, 65] to float8_e4m3fn, rule 1"
  std::string variant;  // as it is listed where the plugin does not offer it: "bfloat16 input"
  octavo_ability question{};
  Body body;
  Judge judge = nullptr;  // null: equal bits
  bool repeats = false;   // once more at the same addresses: with equal bits
};

// Bits, but for the sign, unless it counts, and the payload of a NaN; and of 0, where
// `zeros_are_equal`.
std::string differing(const Results &expected, const Results &found, bool zeros_are_equal = false);

class Ways;

struct Bench {
  Tables tables;
  const Side *side;
  uint64_t seed;
  const octavo_open_desc *below = nullptr;  // of a layer: a run on the kernels below it
  Ways *ways = nullptr;  // not null: the cases are run in these ways, not in hostile memory
};

// The cases of one check, and what of them the plugin offers.
class Trial {
 public:
  Trial(const Bench &bench, const char *call);
  void run(const Case &one);
  // Throws Skip where nothing is offered, Failure where an accepted question got no OCTAVO_OK; not
  // where other cases of that question are those of another check.
  void finish(bool has_all_cases = true);
  const Side &side() const { return *bench_.side; }

 private:
  struct Asked {
    bool is_accepted = false, ran = false;
    std::string refused;  // the first case of it
  };
  void run_in_ways(const Case &one);
  octavo_status run_at(const Case &one, Place place, Results *found,
                       std::vector<const char *> *called = nullptr);

  Bench bench_;
  std::string call_;
  std::unique_ptr<Arena> arena_;
  std::map<std::string, Asked> asked_;
  std::vector<std::string> variants_;  // in order
  std::map<std::string, bool> offered_;
  std::map<std::string, int> turns_;  // of each variant, in other ways
  bool any_ = false;
};

octavo_ability asking(uint32_t call, uint32_t dtype = 0, uint32_t granularity = 0,
                      uint32_t flags = 0, uint32_t b_dtype = 0, uint32_t b_granularity = 0);

// What checks found that the plugin does not offer, since the last call.
std::vector<std::string> take_not_offered();
void not_offered(const std::string &what);

}  // namespace octavo::conformance::kernels
