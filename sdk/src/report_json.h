// The one model behind every report: ordered JSON, from which tree and JSON are printed.
#pragma once

#include <nlohmann/json.hpp>

#include "run.h"

namespace octavo {

// docs/explain.schema.json describes the first two.
nlohmann::ordered_json report_model(const Negotiation &n, const octavo_run *run);
// The report when there is no negotiation, since the configuration is wrong.
nlohmann::ordered_json problem_model(const octavo_open_desc &desc, const Failure &failure);
nlohmann::ordered_json list_model(const Negotiation &n);
nlohmann::ordered_json hardware_model(const Negotiation &n);
nlohmann::ordered_json config_model(const Negotiation &n);

// "scale_inv", "weight_cache", ...; unknown roles are "other".
const char *role_name(uint32_t role);

// Bytes of non-native slots by role, in order of first use.
std::vector<std::pair<uint32_t, uint64_t>> bytes_by_role(const octavo_run &run);

}  // namespace octavo
