// The models as text for people, and how one value of a model reads.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "report.h"

namespace octavo {

// The JSON of a value; indent -1: on one line.
std::string dump(const nlohmann::ordered_json &j, int indent = -1);
// A text without its quotes, "nothing" for null, any other value as JSON.
std::string scalar(const nlohmann::ordered_json &j);
// A value or a list of values: "a, b"; "none" for an empty list.
std::string leaf_text(const nlohmann::ordered_json &j);

void report_text(const nlohmann::ordered_json &j, const Lines &lines);
void list_text(const nlohmann::ordered_json &j, const Lines &lines);
void hardware_text(const nlohmann::ordered_json &j, const Lines &lines);
void config_text(const nlohmann::ordered_json &j, const Lines &lines);

}  // namespace octavo
