// libFuzzer target of the TOML wrapper and of the configuration behind it: any bytes as a file.
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config_fuzz.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/config/toml.h"
#include "tests/fuzz/expect.h"

namespace octavo::fuzz {
namespace {

constexpr const char *kName = "f.toml";
constexpr const char *kDomain = "octavo.config";

std::optional<std::string> refusal_of_guard(std::string_view text) {
  try {
    guard_toml(text, kName, kDomain);
    return std::nullopt;
  } catch (const Failure &f) {
    return f.text();
  }
}

bool same(const TomlValue &a, const TomlValue &b) {
  if (a.index() != b.index()) return false;
  if (const auto *x = std::get_if<int64_t>(&a)) return *x == std::get<int64_t>(b);
  if (const auto *x = std::get_if<bool>(&a)) return *x == std::get<bool>(b);
  if (const auto *x = std::get_if<std::string>(&a)) return *x == std::get<std::string>(b);
  if (const auto *x = std::get_if<std::vector<std::string>>(&a))
    return *x == std::get<std::vector<std::string>>(b);
  const double x = std::get<double>(a);
  const double y = std::get<double>(b);
  if (std::isnan(x) || std::isinf(x)) return std::isnan(x) ? std::isnan(y) : x == y;
  return std::abs(x - y) <= 1e-8 * std::abs(x);  // nine digits are shown
}

// What messages and remedies show of a value is TOML, and reads back as that value.
void check_shown(const TomlValue &value) {
  if (std::holds_alternative<OtherToml>(value)) return;
  // Nine digits of the largest and of the smallest numbers round to what TOML++ refuses.
  if (const auto *f = std::get_if<double>(&value);
      f != nullptr && std::isfinite(*f) && (std::abs(*f) > 1e300 || std::abs(*f) < 1e-300))
    return;
  const std::string text = "k = " + show(value);
  try {
    const std::vector<TomlEntry> again = parse_toml(text, kName, kDomain);
    expect(again.size() == 1 && same(value, again[0].value), "a shown value reads back", text);
  } catch (const Failure &f) {
    broken("a shown value is TOML", text + ": " + f.text());
  }
}

void check_entry(const TomlEntry &e, size_t lines) {
  const std::string key = dotted(e.path);
  expect(!e.path.empty(), "a key for every value");
  expect(e.line >= 1 && e.column >= 1 && e.value_line >= 1 && e.value_column >= 1,
         "places are counted from 1", key);
  expect(e.line <= lines && e.value_line <= lines && e.end_line <= lines, "a place inside the text",
         key);
  expect(
      e.end_line > e.value_line || (e.end_line == e.value_line && e.end_column >= e.value_column),
      "a value ends behind its start", key);
  expect(!kind_of(e.value).empty(), "a kind for every value", key);
  check_shown(e.value);
}

void read(std::string_view text) {
  const std::optional<std::string> refused = refusal_of_guard(text);
  try {
    const std::vector<TomlEntry> entries = parse_toml(text, kName, kDomain);
    expect(!refused, "what the guard refuses is not parsed", refused.value_or(""));
    size_t lines = 1;
    for (const char c : text) lines += c == '\n' ? 1 : 0;
    for (const TomlEntry &e : entries) check_entry(e, lines);
  } catch (const Failure &f) {
    expect(f.status() == OCTAVO_INVALID && f.domain() == std::string(kDomain), "a typed refusal",
           f.text());
    expect(names_place(f.text(), kName), "a refusal names line and column", f.text());
    expect(!refused || *refused == f.text(), "what the guard refuses never reaches the parser",
           f.text());
  }
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A block of its own length: the sanitizer sees every byte that is read behind it.
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  octavo::fuzz::read(text);
  octavo::fuzz::read_as_config(text);
  return 0;
}
