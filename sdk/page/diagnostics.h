// The section of the page that explains its results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace octavo {

// "" where nothing was recorded.
std::string diagnostics(const nlohmann::json &data);

}  // namespace octavo
