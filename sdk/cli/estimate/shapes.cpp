// A shapes file: {"linears": [{"name", "n", "k", "bias", "input", "count"}],
// "parameters": [{"name", "rows", "cols", "count"}]}.
#include "sdk/cli/estimate/shapes.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/json.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo::cli::estimate {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr int64_t kMostSize = int64_t{1} << 31;
constexpr size_t kMostTensors = 100000;

std::string bytes_of(const std::string &path) {
  try {
    return CheckedFile(path, kEstimateDomain).read(kMostBytes);
  } catch (const Failure &f) {
    throw Failure(f.status(), kEstimateDomain, f.text(),
                  "; a Hugging Face config.json, or a shapes file (page estimate), is meant");
  }
}

std::string text_at(const std::string &where, const Json &j, const char *key,
                    const std::string &otherwise) {
  if (!j.contains(key)) {
    if (!otherwise.empty()) return otherwise;
    throw Failure(OCTAVO_INVALID, kEstimateDomain, where, ".", key,
                  ": expected a text, found none");
  }
  if (!j[key].is_string() || j[key].get<std::string>().empty())
    throw Failure(OCTAVO_INVALID, kEstimateDomain, where, ".", key, ": expected a text, found ",
                  j[key].dump());
  return j[key];
}

// The objects of a list, each with its place for messages; other keys than these are refused.
template <typename Use>
void for_each_entry(const std::string &path, const Json &j, const char *list,
                    const std::vector<std::string> &known, Use use) {
  if (!j.contains(list)) return;
  if (!j[list].is_array())
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": ", list, ": expected a list, found ",
                  j[list].type_name());
  for (size_t i = 0; i < j[list].size(); ++i) {
    const Json &one = j[list][i];
    const std::string where = concat(path, ": ", list, "[", i, "]");
    if (!one.is_object())
      throw Failure(OCTAVO_INVALID, kEstimateDomain, where, ": expected an object, found ",
                    one.type_name());
    for (const auto &[key, value] : one.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw Failure(OCTAVO_INVALID, kEstimateDomain, where, ": unknown key \"", key,
                      "\"; expected ", enumerate(known, "or"));
    use(where, one);
  }
}

// count copies have names of their own: "block.0", "block.1", ...
std::string copy_name(const std::string &name, int64_t i, int64_t count) {
  return count == 1 ? name : concat(name, ".", i);
}

Shapes listed(const std::string &path, const Json &j) {
  for (const auto &[key, value] : j.items())
    if (key != "linears" && key != "parameters")
      throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": unknown key \"", key,
                    "\"; expected linears or parameters");
  Shapes s{"shapes", {}};
  for_each_entry(path, j, "linears", {"name", "n", "k", "bias", "input", "count"},
                 [&](const std::string &where, const Json &one) {
                   const std::string name = text_at(where, one, "name", "");
                   const int64_t n = whole(where, one, "n"), k = whole(where, one, "k"),
                                 count = whole(where, one, "count", 1);
                   const bool bias = truth(where, one, "bias", false);
                   for (int64_t i = 0; i < count && s.tensors.size() <= kMostTensors; ++i) {
                     const std::string own = copy_name(name, i, count);
                     const std::string input =
                         one.contains("input")
                             ? copy_name(text_at(where, one, "input", ""), i, count)
                             : own + ".x";
                     s.tensors.push_back({own + ".weight", n, k, own, input});
                     if (bias) s.tensors.push_back({own + ".bias", 1, n});
                   }
                 });
  for_each_entry(path, j, "parameters", {"name", "rows", "cols", "count"},
                 [&](const std::string &where, const Json &one) {
                   const int64_t count = whole(where, one, "count", 1);
                   for (int64_t i = 0; i < count && s.tensors.size() <= kMostTensors; ++i)
                     s.tensors.push_back({copy_name(text_at(where, one, "name", ""), i, count),
                                          whole(where, one, "rows", 1), whole(where, one, "cols")});
                 });
  return s;
}

}  // namespace

int64_t whole(const std::string &path, const Json &j, const char *key, int64_t otherwise) {
  const bool absent = !j.contains(key) || j[key].is_null();
  if (absent && otherwise >= 0) return otherwise;
  const bool fits = !absent && j[key].is_number_integer() && j[key] >= 1 && j[key] <= kMostSize;
  if (!fits)
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": ", key,
                  ": expected a whole number from 1 to ", kMostSize, ", found ",
                  absent ? "nothing" : j[key].dump());
  return j[key];
}

bool truth(const std::string &path, const Json &j, const char *key, bool otherwise) {
  if (!j.contains(key) || j[key].is_null()) return otherwise;
  if (!j[key].is_boolean())
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": ", key,
                  ": expected true or false, found ", j[key].dump());
  return j[key];
}

Shapes read_shapes(const std::string &path) {
  Json j;
  try {
    j = parse_json<Json>(bytes_of(path), true);
  } catch (const Json::parse_error &e) {
    const std::string words = e.what();
    const size_t colon = words.find("parse error");
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path,
                  ": not valid JSON: ", colon == std::string::npos ? words : words.substr(colon));
  }
  if (j.is_discarded())
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path,
                  ": expected at most 32 levels, found more");
  if (!j.is_object())
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": expected an object, found ",
                  j.type_name());
  Shapes s = is_huggingface(j) ? huggingface_shapes(path, j) : Shapes();
  if (s.kind.empty() && !j.contains("linears") && !j.contains("parameters"))
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path,
                  ": expected model_type of a config.json, or linears and parameters of a shapes "
                  "file (page estimate), found none of them");
  if (s.kind.empty()) s = listed(path, j);
  if (s.tensors.empty())
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": expected a tensor, found none");
  if (s.tensors.size() > kMostTensors)
    throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": expected at most ", kMostTensors,
                  " tensors, found more");
  std::set<std::string> names;
  for (const Tensor &t : s.tensors)
    if (!names.insert(t.name).second)
      throw Failure(OCTAVO_INVALID, kEstimateDomain, path, ": two tensors have the name \"", t.name,
                    "\"; give each linear and parameter its own name");
  return s;
}

}  // namespace octavo::cli::estimate
