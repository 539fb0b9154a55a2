// Operands in pages of their own, what is compared, and the list of what a plugin does not offer.
#include "trial.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "mode.h"
#include "ways.h"

namespace octavo::conformance::kernels {
namespace {

constexpr uint64_t kArena = uint64_t{8} << 20;
constexpr uint64_t kPage = Arena::kPage;
constexpr char kElsewhere[] =
    ", NaN around its operands, called in a floating-point mode that rounds upwards and flushes "
    "subnormals";

std::vector<std::string> missing;

uint64_t rounded(uint64_t bytes, uint64_t to) {
  return (bytes + to - 1) / to * to;
}

std::string hex_of(const Grid &g, int64_t row, int64_t col) {
  std::ostringstream out;
  out << "0x" << std::hex;
  const uint32_t code = g.code(row, col);
  for (uint64_t digit = g.bits() / 4; digit > 0; --digit)
    out << "0123456789abcdef"[code >> 4 * (digit - 1) & 15];
  if (g.dtype != OCTAVO_I32 && g.dtype != OCTAVO_U8) out << " (" << g.at(row, col) << ")";
  return out.str();
}

bool is_equal(const Operands::Result &expected, const Grid &b, int64_t row, int64_t col,
              bool zeros) {
  const Grid &a = expected.grid;
  if (a.code(row, col) == b.code(row, col)) return true;
  if (a.dtype == OCTAVO_I32 || a.dtype == OCTAVO_U8) return false;
  if (expected.has_signs && a.is_nan(row, col)) return false;
  return (a.is_nan(row, col) && b.is_nan(row, col)) ||
         (zeros && a.at(row, col) == 0 && b.at(row, col) == 0);
}

std::string key_of(const octavo_ability &q) {
  return text(q.call, " ", q.flags, " ", q.dtype, " ", q.granularity, " ", q.b_dtype, " ",
              q.b_granularity);
}

}  // namespace

std::vector<std::string> take_not_offered() {
  return std::exchange(missing, {});
}
void not_offered(const std::string &what) {
  missing.push_back(what);
}

octavo_ability asking(uint32_t call, uint32_t dtype, uint32_t granularity, uint32_t flags,
                      uint32_t b_dtype, uint32_t b_granularity) {
  octavo_ability q{};
  q.call = call;
  q.flags = flags;
  q.dtype = dtype;
  q.granularity = granularity;
  q.b_dtype = b_dtype;
  q.b_granularity = b_granularity;
  return q;
}

void *Operands::keep(uint64_t bytes) {
  const uint64_t words = rounded(bytes, 8) / 8;
  structs_.push_back(std::make_unique<uint64_t[]>(words));
  struct_words_.push_back(words);
  return structs_.back().get();
}

octavo_tensor *Operands::tensor(const char *name, const Grid &grid, Use use) {
  auto *t = make<octavo_tensor>();
  t->data = grid.bytes.empty() ? nullptr : place(name, grid, use);
  t->rows = grid.rows;
  t->cols = grid.cols;
  t->stride = grid.stride;
  t->dtype = grid.dtype;
  return t;
}

octavo_scale *Operands::scale(const char *name, const Grid &scales, uint32_t granularity, Use use,
                              float second) {
  auto *s = make<octavo_scale>();
  s->data = scales.bytes.empty() ? nullptr : place(name, scales, use);
  s->stride = granularity == OCTAVO_PER_TENSOR || is_state(granularity) ? 0 : scales.stride;
  s->dtype = scales.dtype;
  s->granularity = granularity;
  if (is_fp4(granularity))
    s->second = reinterpret_cast<float *>(place("second", Grid::of_values({second}), use));
  return s;
}

uint8_t *Operands::place(const char *name, const Grid &grid, Use use, uint64_t alignment) {
  if (alignment == 0) alignment = grid.element();
  Buffer &b = buffers_.emplace_back();
  b.name = name;
  b.grid = grid;
  if (varied_ && use != Use::kScratch) b.grid.vary();
  b.use = use;
  const uint64_t bytes = grid.bytes.size();
  if (arena_ == nullptr) {
    b.plain.resize(bytes + OCTAVO_ALIGNMENT);
    const auto address = reinterpret_cast<uintptr_t>(b.plain.data());
    b.data = b.plain.data() + (OCTAVO_ALIGNMENT - address % OCTAVO_ALIGNMENT) % OCTAVO_ALIGNMENT;
    if (bytes > 0) std::memcpy(b.data, b.grid.bytes.data(), bytes);
    return b.data;
  }
  // A guard before its pages, another behind them. The first page of all is a guard, too.
  const uint64_t pages = rounded(std::max<uint64_t>(bytes, 1), kPage);
  if (used_ == 0) guards_.emplace_back(0, used_ = kPage);
  const uint64_t last = (pages - bytes) / alignment * alignment;
  b.at = used_ + (place_ == Place::kEnd ? last : 0);
  used_ += pages;
  guards_.emplace_back(used_, used_ + kPage);
  used_ += kPage;
  expect(used_ <= arena_->bytes(), "the operands of ", what_, " are larger than the arena");
  b.data = arena_->data() + b.at;
  return b.data;
}

octavo_status Operands::in_mode(const std::function<octavo_status()> &call) const {
  if (arena_ == nullptr || place_ != Place::kBegin || way_ != nullptr) return call();
  const OtherMode mode;
  const octavo_status status = call();
  expect(mode.is_kept(), what_,
         ": the call changed the rounding or the subnormals of the calling thread");
  return status;
}

// A run's table has stubs for what its kernels lack, which report nothing.
void Operands::expect_reported(octavo_status status, uint64_t messages) const {
  const bool is_stub = side_.is_run() && messages == 0;
  if (arena_ == nullptr || status == OCTAVO_OK || messages == 1 || is_stub) return;
  throw Failure(text(what_, ": answered ", status_name(status), " with ", messages,
                     " diagnostics; expected one through octavo_host.diagnose"));
}

// Fills the memory of the plugin. A second call of a case finds what the first one left.
void Operands::begin() {
  if (arena_ == nullptr || !image_.empty() || used_ == 0) return;
  image_ = image(false);
  if (way_ == nullptr)
    side_.copy(arena_->data(), image_.data(), used_);
  else
    stream_ = way_->begin(*this);
  forbid();
}

std::vector<uint8_t> Operands::image(bool varied) const {
  std::vector<uint8_t> image(used_, place_ == Place::kEnd ? kLargeFiller : kNanFiller);
  for (const Buffer &b : buffers_) {
    Grid g = b.grid;
    if (varied && b.use != Use::kScratch) g.vary();
    const uint64_t row = g.row_bytes();
    for (int64_t r = 0; r < g.rows && row > 0; ++r)
      std::memcpy(image.data() + b.at + g.offset(r, 0), g.bytes.data() + g.offset(r, 0), row);
  }
  return image;
}

std::vector<Operands::Range> Operands::ranges() const {
  std::vector<Range> all;
  for (const Buffer &b : buffers_)
    if (!b.grid.bytes.empty()) all.push_back({b.at, b.grid.bytes.size()});
  return all;
}

void Operands::forbid() {
  for (const auto &[from, to] : guards_) arena_->forbid(from, to);
}

void Operands::end() {
  if (arena_ == nullptr) return;
  for (size_t i = 0; i < structs_.size(); ++i)
    std::memset(structs_[i].get(), 0xA5, struct_words_[i] * 8);
  if (way_ != nullptr) return way_->called();
  calling("octavo.memory/1: synchronize after " + what_);
  side_.synchronize();
  calling(what_);
  arena_->allow();
}

void Operands::expect_kept(const std::vector<uint8_t> &found) const {
  std::vector<uint8_t> expected = image_;
  for (const Buffer &b : buffers_) {
    if (b.use == Use::kIn) continue;
    const Grid &g = b.grid;
    const uint64_t row = g.row_bytes();
    for (int64_t r = 0; r < g.rows && row > 0; ++r) {
      const uint64_t at = b.at + g.offset(r, 0);
      std::memcpy(expected.data() + at, found.data() + at, row);
    }
  }
  if (expected == found) return;
  const auto at = static_cast<uint64_t>(
      std::mismatch(expected.begin(), expected.end(), found.begin()).first - expected.begin());
  for (const Buffer &b : buffers_) {
    const uint64_t bytes = b.grid.bytes.size();
    if (at >= b.at && at < b.at + bytes)
      throw Failure(text(what_, ": wrote byte ", at - b.at, " of '", b.name, "' ",
                         shape_text(b.grid),
                         b.use == Use::kIn ? ", which the call only reads" : ", between its rows"));
    if (at + kPage >= b.at && at < b.at + bytes + kPage)
      throw Failure(at < b.at ? text(what_, ": wrote ", b.at - at, " bytes before '", b.name, "'")
                              : text(what_, ": wrote ", at - b.at - bytes + 1, " bytes behind '",
                                     b.name, "' of ", bytes, " bytes"));
  }
  throw Failure(text(what_, ": wrote outside of its operands"));
}

std::vector<Operands::Result> Operands::results() {
  std::vector<uint8_t> found;
  if (arena_ != nullptr && !image_.empty()) {
    found.resize(used_);
    side_.copy(found.data(), arena_->data(), used_);
    expect_kept(found);
  }
  std::vector<Result> all;
  for (const Buffer &b : buffers_) {
    if (b.use != Use::kOut) continue;
    Result r{b.name, b.grid, b.has_signs};
    if (!r.grid.bytes.empty() && (arena_ == nullptr || !found.empty())) {
      const uint8_t *from = arena_ == nullptr ? b.data : found.data() + b.at;
      std::memcpy(r.grid.bytes.data(), from, r.grid.bytes.size());
    }
    all.push_back(std::move(r));
  }
  return all;
}

Results Operands::initial() const {
  Results all;
  for (const Buffer &b : buffers_)
    if (b.use == Use::kOut) all.push_back({b.name, b.grid, b.has_signs});
  return all;
}

std::string differing(const Results &expected, const Results &found, bool zeros_are_equal) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const Grid &e = expected[i].grid, &f = found[i].grid;
    int64_t count = 0, row = 0, col = 0;
    for (int64_t r = e.rows - 1; r >= 0; --r)
      for (int64_t c = e.cols - 1; c >= 0; --c)
        if (!is_equal(expected[i], f, r, c, zeros_are_equal)) ++count, row = r, col = c;
    if (count > 0)
      return text(expected[i].name, "[", row, ", ", col, "]: expected ", hex_of(e, row, col),
                  ", found ", hex_of(f, row, col), "; ", count, " of ", e.rows * e.cols,
                  " elements differ");
  }
  return {};
}

Trial::Trial(const Bench &bench, const char *call)
    : bench_(bench), call_(call), arena_(std::make_unique<Arena>(*bench.side, kArena)) {}

octavo_status Trial::run_at(const Case &one, Place place, Results *found,
                            std::vector<const char *> *called) {
  Operands m(*bench_.side, *arena_, place,
             one.name + (arena_->has_guards() ? place == Place::kEnd ? ", a guard page behind"
                                                                     : ", a guard page before"
                                              : ""));
  const octavo_status status = one.body(m);
  *found = m.results();
  if (called != nullptr) *called = m.called();
  if (status != OCTAVO_OK) {
    const std::string written = differing(m.initial(), *found);
    expect(written.empty(), one.name, ": answered ", status_name(status), ", but wrote ", written);
  }
  return status;
}

void Trial::run(const Case &one) {
  if (bench_.ways != nullptr) return run_in_ways(one);
  step(one.variant.empty() ? call_ : call_ + ", " + one.variant);
  Operands plain(reference());
  const octavo_status wanted = one.body(plain);
  expect(wanted == OCTAVO_OK, "the reference refuses the case ", one.name, ": ", last_message());
  const Results expected = plain.results();
  Asked &asked = asked_[key_of(one.question)];
  asked.is_accepted = bench_.side->decision(one.question) != OCTAVO_DECLINE;
  if (offered_.emplace(one.variant, false).second) variants_.push_back(one.variant);
  for (const Place place : {Place::kEnd, Place::kBegin}) {
    Results found;
    std::vector<const char *> called;
    const octavo_status status = run_at(one, place, &found, &called);
    expect(asked.is_accepted || status != OCTAVO_OK, one.name,
           ": ability declines it, but the call answers OCTAVO_OK");
    if (status != OCTAVO_OK) {
      expect(status == OCTAVO_UNSUPPORTED || !asked.is_accepted, one.name, ": answered ",
             status_name(status), ": ", last_message(),
             "; expected OCTAVO_OK, or OCTAVO_UNSUPPORTED for what the plugin does not offer");
      // The rule of a cast and other values may be refused; a question about prologues is for each.
      expect(!asked.is_accepted || call_ != "prologue", one.name, ": answered ",
             status_name(status), ": ", last_message(),
             "; ability accepts prologues of this dtype, which means every one of prologue.h");
      if (asked.refused.empty()) asked.refused = one.name;
      return;
    }
    const std::string problem = one.judge ? one.judge(expected, found) : differing(expected, found);
    expect(problem.empty(), one.name, place == Place::kEnd ? "" : kElsewhere, ": ", problem);
    compared().add(called, one.question);
    if (one.repeats && place == Place::kEnd &&
        (bench_.side->caps.flags & OCTAVO_CAPS_DETERMINISTIC) != 0) {
      Results again;
      run_at(one, place, &again);
      const std::string changed = differing(found, again);
      expect(changed.empty(), one.name,
             ": the same call gave other bits the second time: ", changed,
             "; describe states OCTAVO_CAPS_DETERMINISTIC");
    }
  }
  asked.ran = offered_[one.variant] = any_ = true;
}

// Two cases of each variant suffice: numbers are for the other checks.
void Trial::run_in_ways(const Case &one) {
  if (bench_.side->decision(one.question) == OCTAVO_DECLINE || turns_[one.variant] >= 2) return;
  Results expected[2], own[2];
  for (const bool varied : {false, true}) {
    Operands plain(reference(), varied);
    const octavo_status wanted = one.body(plain);
    expect(wanted == OCTAVO_OK, "the reference refuses the case ", one.name, ": ", last_message());
    expected[varied] = plain.results();
    Operands at_once(*bench_.side, *arena_, Place::kEnd, one.name, varied);
    if (one.body(at_once) != OCTAVO_OK) return;
    own[varied] = at_once.results();
  }
  ++turns_[one.variant];
  step(one.variant.empty() ? call_ : call_ + ", " + one.variant);
  bench_.ways->run(one, *arena_, [&](const Results &found, bool varied, const std::string &how) {
    std::string problem;
    if (one.judge == nullptr)
      problem = differing(expected[varied], found);
    else if (!varied)
      problem = one.judge(expected[0], found);
    else if ((bench_.side->caps.flags & OCTAVO_CAPS_DETERMINISTIC) != 0)
      problem = differing(own[1], found);
    expect(problem.empty(), one.name, ", ", how, ": ", problem);
  });
}

void Trial::finish(bool has_all_cases) {
  if (bench_.ways != nullptr) return;
  for (const auto &[key, asked] : asked_)
    expect(!has_all_cases || !asked.is_accepted || asked.ran || asked.refused.empty(),
           asked.refused,
           ": ability accepts this call and its formats, but no case of it was executed: ",
           last_message());
  if (!any_) {
    not_offered(call_);
    throw Skip(text("not offered: ", call_));
  }
  // "to float16" says enough of "to float16, out_t".
  const auto is_said = [&](const std::string &variant) {
    for (size_t at = variant.find(", "); at != std::string::npos; at = variant.find(", ", at + 1)) {
      const auto whole = offered_.find(variant.substr(0, at));
      if (whole != offered_.end() && !whole->second) return true;
    }
    return false;
  };
  // Where all of "blocks of 1x128, ..." is missing, once "blocks of 1x128".
  const auto family = [](const std::string &variant) {
    return variant.substr(0, variant.find(", "));
  };
  std::map<std::string, bool> families;
  for (const auto &[variant, is_there] : offered_) {
    bool &any = families[family(variant)];
    any = any || is_there;
  }
  std::set<std::string> listed;
  for (const std::string &variant : variants_) {
    if (offered_[variant] || is_said(variant)) continue;
    const std::string said = families[family(variant)] ? variant : family(variant);
    if (listed.insert(said).second) not_offered(call_ + ", " + said);
  }
}

}  // namespace octavo::conformance::kernels
