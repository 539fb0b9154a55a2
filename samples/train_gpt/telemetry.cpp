// Finds the columns of the pooled slots by name and label.
#include "telemetry.h"

#include <algorithm>

namespace gpt {
namespace {

// The first, the middle and the last two: in this model an input projection, a hidden layer, the
// last layer of the blocks, and the head.
std::vector<std::string> choose(const std::vector<std::string> &layers) {
  const size_t n = layers.size();
  if (n <= 4) return layers;
  return {layers[0], layers[n / 2], layers[n - 2], layers[n - 1]};
}

}  // namespace

Telemetry::Telemetry(OctavoRun &run, const std::vector<std::string> &layers)
    : device_(run.device()) {
  if (run.store() == nullptr) return;
  follow_reduction(run);
  const std::vector<std::string> wanted = choose(layers);
  // A live amax has a slot of its own, or is row 0 of the history.
  for (const std::string tensor : {"x", "dy"}) {
    for (const std::string name : {"amax", "amax_history", "scale"}) {
      const std::string kind = name == "scale" ? "scale" : "amax";
      for (uint32_t id = 0; id < octavo_slot_count(run.handle()); ++id) {
        const octavo_slot *slot = octavo_get_slot(run.handle(), id);
        if (text(slot->name) != tensor + "/" + name || slot->dtype != OCTAVO_F32) continue;
        if (slot->labels == nullptr) continue;
        const auto *base = static_cast<const float *>(octavo_store_address(run.store(), id));
        for (int64_t column = 0; base != nullptr && column < slot->cols; ++column) {
          const std::string label = text(slot->labels[column]);
          const std::string key = tensor + "/" + label;
          bool known = std::find(wanted.begin(), wanted.end(), label) == wanted.end();
          for (const Source &s : sources_) known = known || (s.kind == kind && s.key == key);
          if (!known) sources_.push_back({kind, key, base + column});
        }
      }
    }
  }
}

void Telemetry::follow_reduction(OctavoRun &run) {
  for (uint32_t id = 0; id < octavo_slot_count(run.handle()); ++id) {
    const octavo_slot *slot = octavo_get_slot(run.handle(), id);
    const bool single = slot->owner_kind == OCTAVO_OWNER_SESSION && slot->dtype == OCTAVO_F32 &&
                        slot->rows == 1 && slot->cols == 1;
    for (const std::string name : {"saturated", "prescale"}) {
      if (!single || text(slot->name) != "reduce/" + name) continue;
      const void *value = octavo_store_address(run.store(), id);
      if (value != nullptr) sources_.push_back({"reduce", name, static_cast<const float *>(value)});
    }
  }
}

nlohmann::json Telemetry::sample() const {
  nlohmann::json all;
  for (const Source &s : sources_) all[s.kind][s.key] = device_.read(s.value);
  return all;
}

}  // namespace gpt
