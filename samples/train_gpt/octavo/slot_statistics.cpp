// Memory counts what exists: a buffer that was released or a slot that another rank keeps adds
// nothing. Pools are told apart by their roles; what stands before "/" in a pool's name is the
// operand.
#include "slot_statistics.h"

#include <cmath>
#include <set>

namespace gpt {
namespace {

void count(const Parameter &p, MemoryUse &use) {
  use.parameters += p.count();
  use.bytes[kMemoryWeight] += p.value.bytes();
  use.bytes[kMemoryGradient] += p.grad.bytes();
  use.bytes[kMemoryExpAvg] += p.exp_avg.bytes();
  use.bytes[kMemoryExpAvgSq] += p.exp_avg_sq.bytes();
}

}  // namespace

const std::array<const char *, kMemoryParts> kMemoryNames = {
    "weight",        "gradient", "exp_avg",      "exp_avg_sq",
    "master_weight", "step",     "weight_cache", "FP8 state"};

MemoryPart part_of(uint32_t role, bool of_parameter) {
  switch (role) {
    case OCTAVO_ROLE_WEIGHT: return kMemoryWeight;
    case OCTAVO_ROLE_GRADIENT: return kMemoryGradient;
    case OCTAVO_ROLE_EXP_AVG: return kMemoryExpAvg;
    case OCTAVO_ROLE_EXP_AVG_SQ: return kMemoryExpAvgSq;
    case OCTAVO_ROLE_MASTER_WEIGHT: return kMemoryMasterWeight;
    case OCTAVO_ROLE_WEIGHT_CACHE: return kMemoryWeightCache;
    case OCTAVO_ROLE_COUNTER: return of_parameter ? kMemoryStep : kMemoryFp8State;
    default: return kMemoryFp8State;
  }
}

double MemoryUse::bytes_per_parameter(MemoryPart last) const {
  uint64_t sum = 0;
  for (size_t i = kMemoryWeight; i <= last; ++i) sum += bytes[i];
  return static_cast<double>(sum) / static_cast<double>(parameters);
}

RankMemory memory_of(Model &model, const OctavoRun &run) {
  RankMemory memory;
  std::set<uint32_t> linear_ids;
  for (const Parameter *p : model.parameters()) count(*p, memory.model);
  for (Linear *linear : model.linears()) {
    count(linear->weight(), memory.linear);
    linear_ids.insert(linear->weight().id);
  }
  if (run.store() == nullptr) return memory;
  for (const octavo_slot &slot : run.slots()) {
    const bool native = (slot.flags & OCTAVO_SLOT_NATIVE) != 0;
    if (native || run.store()->address(slot.id) == nullptr) continue;
    const bool of_parameter = slot.owner_kind == OCTAVO_OWNER_PARAMETER;
    const MemoryPart part = part_of(slot.role, of_parameter);
    const uint64_t bytes =
        static_cast<uint64_t>(slot.rows * slot.cols) * (OCTAVO_DTYPE_BITS(slot.dtype) / 8);
    memory.model.bytes[part] += bytes;
    if (of_parameter && linear_ids.count(slot.owner) > 0) memory.linear.bytes[part] += bytes;
  }
  return memory;
}

std::map<std::string, uint64_t> slot_bytes(const OctavoRun &run) {
  std::map<std::string, uint64_t> bytes;
  if (run.store() == nullptr) return bytes;
  for (const octavo_slot &slot : run.slots())
    if (const uint64_t b = run.store()->bytes(slot.role); b > 0)
      bytes[octavo::role_name(slot.role)] = b;
  return bytes;
}

RankMemory summed(const std::vector<RankMemory> &ranks) {
  RankMemory sum = ranks.front();
  for (size_t i = 1; i < ranks.size(); ++i) {
    for (size_t part = 0; part < kMemoryParts; ++part) {
      sum.model.bytes[part] += ranks[i].model.bytes[part];
      sum.linear.bytes[part] += ranks[i].linear.bytes[part];
    }
  }
  return sum;
}

size_t fullest_rank(const std::vector<RankMemory> &ranks) {
  const auto fullest = std::max_element(ranks.begin(), ranks.end(), [](auto &a, auto &b) {
    return a.model.bytes_per_parameter() < b.model.bytes_per_parameter();
  });
  return static_cast<size_t>(fullest - ranks.begin());
}

SlotStatistics::SlotStatistics(const OctavoRun &run, const std::vector<std::string> &layers)
    : memory_(run.memory()), followed_(layers) {
  // The first, the middle and the last two: in this model an input projection, a hidden layer, the
  // last layer of the blocks, and the head.
  const size_t n = layers.size();
  if (n > 4) followed_ = {layers[0], layers[n / 2], layers[n - 2], layers[n - 1]};
  if (run.store() == nullptr) return;
  for (const octavo_slot &slot : run.slots()) {
    const auto *base = static_cast<const float *>(run.store()->address(slot.id));
    const std::string name = text(slot.name);
    const size_t slash = name.find('/');
    if (base == nullptr || slot.dtype != OCTAVO_F32 || slash == std::string::npos) continue;
    if (name == "reduce/saturated" || name == "reduce/prescale")
      reduce_[name.substr(slash + 1)] = base;
    // Row 0 of a history is live, but a live amax of its own comes before it.
    const bool history = slot.role == OCTAVO_ROLE_AMAX_HISTORY;
    const uint32_t role = history ? uint32_t{OCTAVO_ROLE_AMAX} : slot.role;
    for (int64_t i = 0; slot.labels != nullptr && i < slot.cols; ++i) {
      Column &c = column(name.substr(0, slash), text(slot.labels[i]));
      if (!history || c.at.count(role) == 0) c.at[role] = base + i;
    }
  }
}

SlotStatistics::Column &SlotStatistics::column(const std::string &operand,
                                               const std::string &tensor) {
  for (Column &c : columns_)
    if (c.operand == operand && c.tensor == tensor) return c;
  return columns_.emplace_back(Column{operand, tensor, {}});
}

std::optional<double> SlotStatistics::read(const Column &c, uint32_t role) const {
  const auto found = c.at.find(role);
  if (found == c.at.end()) return {};
  return memory_.read(found->second);
}

bool SlotStatistics::has_casts() const {
  return std::any_of(columns_.begin(), columns_.end(), [](const Column &c) { return c.counts(); });
}

nlohmann::json SlotStatistics::telemetry() const {
  nlohmann::json all;
  for (const auto &[key, value] : reduce_) all["reduce"][key] = memory_.read(value);
  for (const Column &c : columns_) {
    if (c.operand != "x" && c.operand != "dy") continue;
    if (std::find(followed_.begin(), followed_.end(), c.tensor) == followed_.end()) continue;
    for (const uint32_t role : {OCTAVO_ROLE_AMAX, OCTAVO_ROLE_SCALE})
      if (const std::optional<double> value = read(c, role))
        all[octavo::role_name(role)][c.operand + "/" + c.tensor] = *value;
  }
  return all;
}

std::vector<CastRecord> SlotStatistics::casts() const {
  std::vector<CastRecord> records;
  for (const Column &c : columns_) {
    if (!c.counts()) continue;
    CastRecord &r = records.emplace_back();
    r.operand = c.operand, r.tensor = c.tensor;
    r.amax = read(c, OCTAVO_ROLE_AMAX);
    r.scale = read(c, OCTAVO_ROLE_SCALE);
    r.saturated = read(c, OCTAVO_ROLE_SATURATED).value_or(0.0);
    r.underflow = read(c, OCTAVO_ROLE_UNDERFLOW).value_or(0.0);
    const double signal = read(c, OCTAVO_ROLE_SIGNAL).value_or(0.0);
    const double noise = read(c, OCTAVO_ROLE_NOISE).value_or(0.0);
    // Without noise the codes are exact: no finite number of decibels says so.
    const double sqnr = signal > 0.0 && noise > 0.0 ? 10.0 * std::log10(signal / noise) : INFINITY;
    if (std::isfinite(sqnr)) r.sqnr_db = sqnr;
  }
  return records;
}

}  // namespace gpt
