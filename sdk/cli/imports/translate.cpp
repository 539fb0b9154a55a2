// Each key finds its row; afterwards the rows are put into the order in which people read.
#include <algorithm>

#include "sdk/cli/imports/import.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::imports {
namespace {

const KeyRow *row_of(const std::vector<KeyRow> &rows, const std::string &key, unsigned where) {
  for (const KeyRow &row : rows)
    if ((row.where & where) != 0 && key == row.key) return &row;
  return nullptr;
}

// The recipe's key without what stands around it: fp8_config.fp8_margin and fp8_margin are margin.
// Empty: not a place of recipes.
std::string recipe_key(const std::string &key, unsigned where) {
  if ((where & (kAccelerate | kDeepSpeed)) == 0) return key;
  const char *section = where == kDeepSpeed ? "fp8." : "fp8_config.";
  std::string name;
  if (key.starts_with(section))
    name = key.substr(std::string_view(section).size());
  else if (where == kAccelerate && key.starts_with("fp8_") && key != "fp8_config")
    name = key;
  if (name != "fp8_format" && name.starts_with("fp8_")) name.erase(0, 4);
  return name == "format" ? "fp8_format" : name;
}

[[noreturn]] void refuse_unknown(const Import &import, const Found &found, const std::string &name,
                                 unsigned where) {
  std::vector<std::string> known;
  for (const std::vector<KeyRow> *rows : {&recipe_keys(), &host_keys()})
    for (const KeyRow &row : *rows)
      if ((row.where & where) != 0) known.push_back(row.key);
  const std::string near = nearest(name, known);
  throw Failure(OCTAVO_INVALID, kImportDomain, key_place(import.file, found), ": unknown key \"",
                found.key, "\"",
                near.empty() ? "; remove it, or see what octavo init --list-keys knows"
                             : "; did you mean \"" + near + "\"?");
}

// The same for a key that a recipe and another name of it both have.
void refuse_both(const Import &import, const KeyRow &row, const Found &found) {
  if (row.becomes[0] == '\0' || std::string_view(row.becomes) == "mixed_precision") return;
  const Assignment *other = import.find(row.becomes);
  if (other != nullptr && std::string_view(row.becomes).starts_with("fp8.") &&
      std::string_view(row.becomes) != "fp8.backend")
    throw Failure(OCTAVO_INVALID, kImportDomain, place(import.file, found), ": ", found.key,
                  " sets what ", other->from.key, " at ", place(import.file, other->from),
                  " sets already; keep one of them");
}

std::string section_of(const std::string &key) {
  return key.substr(0, key.find('.'));
}

void take(Import &import, const Found &found) {
  const std::string recipe = recipe_key(found.key, import.where);
  const unsigned where = recipe.empty()                                     ? import.where
                         : (import.where & (kAccelerate | kDeepSpeed)) != 0 ? kFp8Config
                                                                            : import.where;
  const KeyRow *row = row_of(host_keys(), found.key, import.where);
  if (row == nullptr && !recipe.empty()) row = row_of(recipe_keys(), recipe, where);
  if (row == nullptr && import.where == kAccelerate && found.key != section_of(found.key) &&
      recipe.empty())
    row = row_of(host_keys(), section_of(found.key), import.where);
  if (row == nullptr && found.key == "fp8_config" && !found.is_empty && !found.is_null)
    throw Failure(OCTAVO_INVALID, kImportDomain, place(import.file, found),
                  ": fp8_config: expected keys with values, found ", found.shown());
  const bool is_empty_section = found.key == "fp8_config" && (found.is_empty || found.is_null);
  if (row == nullptr && (is_empty_section || (import.where == kDeepSpeed && recipe.empty()))) {
    import.results.push_back(
        {found, Outcome::kIgnored,
         is_empty_section ? "no setting in it" : "DeepSpeed goes on reading it"});
    return;
  }
  if (row == nullptr) refuse_unknown(import, found, recipe.empty() ? found.key : recipe, where);
  if (found.is_null && row->rule != nullptr && row->becomes[0] != '\0') {
    import.results.push_back({found, Outcome::kCopied, "nothing to set: the default applies"});
    return;
  }
  refuse_both(import, *row, found);
  Answer answer = row->rule(import, *row, found);
  if (row->is_misspelt != nullptr && answer.outcome != Outcome::kRejected)
    answer = {Outcome::kTranslated, row->note};
  import.results.push_back({found, answer.outcome, answer.words});
}

// One row for a section that stays as a whole.
void join_sections(Import &import) {
  std::vector<KeyResult> joined;
  for (KeyResult &result : import.results) {
    const std::string section = section_of(result.found.key);
    const bool inner = result.outcome == Outcome::kIgnored && section != result.found.key &&
                       section != "fp8" && section != "msamp" && section != "fp8_config" &&
                       !result.found.key.ends_with(".enabled");
    if (inner && !joined.empty() && joined.back().found.key == section + ".*") continue;
    if (inner) {
      result.found.key = section + ".*";
      result.found.text = "...";
      result.found.is_list = result.found.is_null = result.found.is_empty = false;
    }
    joined.push_back(std::move(result));
  }
  import.results = std::move(joined);
}

// In the order of a file that a person would write.
void sort(Import &import) {
  static const std::vector<std::string> order = {"mixed_precision", "fp8.backend", "fp8.te.recipe"};
  const auto rank = [](const Assignment &a) {
    const auto at = std::find(order.begin(), order.end(), a.key) - order.begin();
    return std::pair(at, a.key.starts_with("device") ? 1 : 0);
  };
  std::stable_sort(import.settings.begin(), import.settings.end(),
                   [&](const Assignment &a, const Assignment &b) { return rank(a) < rank(b); });
}

}  // namespace

unsigned kind_of_file(const std::vector<Found> &found, const std::string &file, bool is_json) {
  for (const Found &f : found)
    if (row_of(host_keys(), section_of(f.key), kAccelerate) != nullptr &&
        section_of(f.key) != "fp16")
      return kAccelerate;
  for (const Found &f : found)
    if (f.key.starts_with("fp8_") || (f.key == "fp16" && !is_json)) return kAccelerate;
  static const char *const sections[] = {"bf16",
                                         "bfloat16",
                                         "fp16",
                                         "fp8",
                                         "msamp",
                                         "zero_optimization",
                                         "optimizer",
                                         "train_batch_size",
                                         "gradient_clipping",
                                         "train_micro_batch_size_per_gpu"};
  for (const Found &f : found)
    for (const char *section : sections)
      if (section_of(f.key) == section) return kDeepSpeed;
  throw Failure(OCTAVO_INVALID, kImportDomain, file,
                ": expected an Accelerate config.yaml or a DeepSpeed JSON file, found ",
                found.empty() ? "no keys" : "the key \"" + found.front().key + "\"",
                "; settings of a script go in as octavo init --kwargs TERecipeKwargs margin=0");
}

Import translate(std::vector<Found> found, const std::string &file, unsigned where) {
  Import import;
  import.file = file;
  import.where = where;
  for (const Found &f : found) take(import, f);
  settle(import);
  for (KeyResult &result : import.results)
    for (Assignment &a : import.settings)
      if (a.from.key == result.found.key && !a.from.key.empty()) {
        result.setting = a.key + " = " + show(a.value);
        if (result.outcome == Outcome::kTranslated && a.comment.empty())
          a.comment = result.words + ".";
      }
  join_sections(import);
  sort(import);
  return import;
}

}  // namespace octavo::cli::imports
