// Values of other tools in the types of Octavo's keys.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "sdk/cli/imports/import.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::imports {
namespace {

constexpr std::pair<unsigned, const char *> kPlaces[] = {
    {kAccelerate, "config.yaml"},        {kFp8Config, "fp8_config"},
    {kDeepSpeed, "DeepSpeed"},           {kTeKwargs, "TERecipeKwargs"},
    {kMsampKwargs, "MSAMPRecipeKwargs"}, {kAoKwargs, "AORecipeKwargs"},
    {kFp8Kwargs, "FP8RecipeKwargs"}};

[[noreturn]] void expected(const Import &import, const Found &found, const std::string &what) {
  throw Failure(OCTAVO_INVALID, kImportDomain, place(import.file, found), ": ", found.key,
                ": expected ", what, ", found ", found.shown());
}

}  // namespace

std::string upper(std::string text) {
  for (char &c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string lower(std::string text) {
  for (char &c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

int64_t integer_of(const Import &import, const Found &found) {
  int64_t number = 0;
  const char *end = found.text.data() + found.text.size();
  const auto parsed = std::from_chars(found.text.data(), end, number);
  if (found.is_list || parsed.ec != std::errc() || parsed.ptr != end)
    expected(import, found, "an integer");
  return number;
}

// The words that Accelerate's launcher takes.
bool boolean_of(const Import &import, const Found &found) {
  const std::string word = lower(found.text);
  if (!found.is_list)
    for (const char *yes : {"1", "true", "yes", "on", "y", "t"})
      if (word == yes) return true;
  if (!found.is_list)
    for (const char *no : {"0", "false", "no", "off", "n", "f"})
      if (word == no) return false;
  expected(import, found, "true or false");
}

std::string choice_of(const Import &import, const Found &found, const std::string &value,
                      const std::vector<std::string> &choices) {
  if (!found.is_list && std::find(choices.begin(), choices.end(), value) != choices.end())
    return value;
  std::string near;
  throw Failure(OCTAVO_INVALID, kImportDomain, place(import.file, found), ": ", found.key,
                ": expected ", not_a_choice(found.shown(), choices, &near));
}

void Import::set(const std::string &key, TomlValue value, const Found &from) {
  drop(key);
  settings.push_back({key, std::move(value), from, ""});
}

const Assignment *Import::find(const std::string &key) const {
  for (const Assignment &a : settings)
    if (a.key == key) return &a;
  return nullptr;
}

void Import::drop(const std::string &key) {
  std::erase_if(settings, [&](const Assignment &a) { return a.key == key; });
}

const std::string &Import::precision() const {
  return std::get<std::string>(find("mixed_precision")->value);
}

std::string reason_of(const KeyRow &row) {
  const std::string note = row.note;
  const size_t at = note.find("refused: ");
  return at == std::string::npos ? note : note.substr(at + 9);
}

std::string words_of(unsigned where) {
  std::string all;
  for (const auto &[bit, name] : kPlaces)
    if ((where & bit) != 0) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

unsigned handler_of(const std::string &name) {
  for (const auto &[bit, known] : kPlaces)
    if (bit >= kTeKwargs && name == known) return bit;
  return 0;
}

const char *word_of(Outcome outcome) {
  static const char *const words[] = {"arrives", "translated", "stays", "refused"};
  return words[static_cast<size_t>(outcome)];
}

}  // namespace octavo::cli::imports
