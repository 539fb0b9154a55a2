// The one model of every report, ordered JSON, and how it is printed as text.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/base/json.h"
#include "sdk/src/base/verdict.h"
#include "sdk/src/config/config.h"
#include "sdk/src/plugin/manifest.h"
#include "sdk/src/report/report.h"
#include "sdk/src/run/run.h"

namespace octavo {

// docs/check.schema.json describes the first two.
Json report_model(const Negotiation &n, const octavo_run *run);
// The report when there is no negotiation, since the configuration is wrong.
Json problem_model(const octavo_open_desc &desc, const Verdict &problem);
Json list_model(const Negotiation &n);
Json hardware_model(const Negotiation &n);
// NVIDIA's GPUs, and whether the installed kernels compute FP8 on one; "remedy", with the edit or
// command in "apply" where there is one: what would let a GPU of this machine compute FP8.
Json cuda_model(const Negotiation &n);
inline constexpr const char *kHasUnits = "has FP8 units";
Json config_model(const Negotiation &n);
Json schema_model(const Negotiation &n);

// The casts and products that the kernels of a device execute, and how.
Json ability_json(const OpenDevice &device);

// Bytes of non-native slots by role, in order of first use.
std::vector<std::pair<uint32_t, uint64_t>> bytes_by_role(const octavo_run &run);

// The parts that several models have in common.
Json to_json(const TomlValue &value);
Json to_json(const Setting &setting);
// `apply`: how to carry out the remedy; empty: unknown.
Json to_json(const Verdict &v, const std::string &apply = {});
// Those of a plugin that no candidate stands for.
Json verdicts_json(const Negotiation &n, const std::vector<Verdict> &verdicts);
// The claims of the manifest about the plugin: hints, which its code may contradict.
Json provides_json(const Manifest &m);
// What its author says about `octavo plugin verify`; null when nothing.
Json conformance_json(const Manifest &m);

// The JSON of a value; indent -1: on one line.
std::string dump(const Json &j, int indent = -1);
// A text without its quotes, "nothing" for null, any other value as JSON.
std::string scalar(const Json &j);
// A value or a list of values: "a, b"; "none" for an empty list.
std::string leaf_text(const Json &j);

void report_text(const Json &j, const Lines &lines);
void list_text(const Json &j, const Lines &lines);
void hardware_text(const Json &j, const Lines &lines);
void config_text(const Json &j, const Lines &lines);

}  // namespace octavo
