// Pools are told apart by their roles; what stands before "/" in a pool's name is the operand.
#include "cast_statistics.h"

#include <algorithm>
#include <cmath>

namespace gpt {

CastStatistics::CastStatistics(const OctavoRun &run) : device_(run.device()) {
  if (run.store() == nullptr) return;
  for (uint32_t id = 0; id < octavo_slot_count(run.handle()); ++id) read_pool(run, id);
  std::erase_if(columns_, [](const Column &c) {
    return c.saturated == nullptr && c.underflow == nullptr && c.signal == nullptr;
  });
}

CastStatistics::Column &CastStatistics::column(const std::string &operand,
                                               const std::string &tensor) {
  for (Column &c : columns_) {
    if (c.operand == operand && c.tensor == tensor) return c;
  }
  columns_.push_back({operand, tensor});
  return columns_.back();
}

void CastStatistics::read_pool(const OctavoRun &run, uint32_t id) {
  const octavo_slot *slot = octavo_get_slot(run.handle(), id);
  if (slot->labels == nullptr || slot->dtype != OCTAVO_F32) return;
  const auto *base = static_cast<const float *>(octavo_store_address(run.store(), id));
  const std::string name = text(slot->name);
  const size_t slash = name.find('/');
  if (base == nullptr || slash == std::string::npos) return;
  const float *Column::*member = nullptr;
  switch (slot->role) {
    case OCTAVO_ROLE_AMAX:
    case OCTAVO_ROLE_AMAX_HISTORY: member = &Column::amax; break;  // row 0 is live
    case OCTAVO_ROLE_SCALE: member = &Column::scale; break;
    case OCTAVO_ROLE_SATURATED: member = &Column::saturated; break;
    case OCTAVO_ROLE_UNDERFLOW: member = &Column::underflow; break;
    case OCTAVO_ROLE_SIGNAL: member = &Column::signal; break;
    case OCTAVO_ROLE_NOISE: member = &Column::noise; break;
    default: return;
  }
  for (int64_t i = 0; i < slot->cols; ++i) {
    Column &c = column(name.substr(0, slash), text(slot->labels[i]));
    // A live amax of its own comes before row 0 of the history.
    if (c.*member == nullptr || slot->role == OCTAVO_ROLE_AMAX) c.*member = base + i;
  }
}

std::vector<CastRecord> CastStatistics::sample() const {
  std::vector<CastRecord> records;
  for (const Column &c : columns_) {
    CastRecord r;
    r.operand = c.operand;
    r.tensor = c.tensor;
    if (c.amax != nullptr) r.amax = device_.read(c.amax);
    if (c.scale != nullptr) r.scale = device_.read(c.scale);
    if (c.saturated != nullptr) r.saturated = device_.read(c.saturated);
    if (c.underflow != nullptr) r.underflow = device_.read(c.underflow);
    if (c.signal != nullptr && c.noise != nullptr) {
      const double signal = device_.read(c.signal);
      const double noise = device_.read(c.noise);
      // Without noise the codes are exact: no finite number of decibels says so.
      const double sqnr = signal > 0.0 && noise > 0.0 ? 10.0 * std::log10(signal / noise) : 0.0;
      if (signal > 0.0 && noise > 0.0 && std::isfinite(sqnr)) r.sqnr_db = sqnr;
    }
    records.push_back(std::move(r));
  }
  return records;
}

}  // namespace gpt
