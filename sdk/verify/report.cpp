// Names of statuses for messages, texts that are safe to print, and the list of sub-checks.
//
// A status that this release does not know is a failure like any other and is shown as a number.
#include "report.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "in_flight.h"
#include "sdk/src/base/utf8.h"

namespace octavo::conformance {
namespace {

// Two threads of one check may call verbs at once.
std::mutex steps_mutex;
std::vector<Step> steps;

}  // namespace

void step(const std::string &name) {
  const std::lock_guard<std::mutex> lock(steps_mutex);
  if (!steps.empty()) steps.back().passed = true;
  const auto known =
      std::find_if(steps.begin(), steps.end(), [&](const Step &s) { return s.name == name; });
  if (known == steps.end()) {
    steps.push_back({name, false});
  } else {
    std::rotate(known, known + 1, steps.end());
  }
  char *now = in_flight().step;
  const size_t size = std::min(name.size(), sizeof in_flight().step - 1);
  std::memcpy(now, name.data(), size);
  now[size] = 0;
}

std::vector<Step> take_steps(bool last_passed) {
  const std::lock_guard<std::mutex> lock(steps_mutex);
  if (!steps.empty()) steps.back().passed = last_passed;
  return std::exchange(steps, {});
}

std::string shown(const std::string &s) {
  std::string all;
  for (std::string_view rest = s; !rest.empty();) {
    const size_t length = utf8_character(rest);
    const auto first = static_cast<unsigned char>(rest[0]);
    const bool control =
        first < 0x20 || first == 0x7F ||
        (length == 2 && first == 0xC2 && static_cast<unsigned char>(rest[1]) < 0xA0);
    if (length == 0 || control) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02X", first);
      all += escaped;
      rest.remove_prefix(1);
    } else {
      all += rest.substr(0, length);
      rest.remove_prefix(length);
    }
  }
  return all;
}

std::string status_name(octavo_status status) {
  static const char *const kNames[] = {
      "OCTAVO_OK",           "OCTAVO_UNSUPPORTED",   "OCTAVO_INVALID",     "OCTAVO_WRONG_STATE",
      "OCTAVO_INCOMPATIBLE", "OCTAVO_FAILED_DEVICE", "OCTAVO_NO_RESOURCE", "OCTAVO_INTERNAL"};
  const bool known = status <= OCTAVO_INTERNAL;
  return text(known ? kNames[status] : "unknown status", " (", status, ")");
}

}  // namespace octavo::conformance
