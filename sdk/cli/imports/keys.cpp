// The keys of recipes: those of Accelerate's dataclasses, and the names that its wizard writes.
// Meanings: huggingface/accelerate, src/accelerate/utils/dataclasses.py and
// commands/config/cluster.py, version 1.15.
#include "sdk/cli/imports/import.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::imports {
namespace {

constexpr unsigned kTe = kFp8Config | kTeKwargs | kFp8Kwargs;
constexpr unsigned kMsamp = kFp8Config | kMsampKwargs | kFp8Kwargs;
constexpr unsigned kAo = kFp8Config | kAoKwargs;

Answer backend(Import &import, const KeyRow &row, const Found &found) {
  std::string name = upper(found.text);
  std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
  const bool is_file = (row.where & import.where & kFp8Kwargs) == 0;
  choice_of(import, found, name,
            is_file ? std::vector<std::string>{"TE", "MSAMP", "AO"}
                    : std::vector<std::string>{"TE", "MSAMP"});
  import.backend = name == "MSAMP" ? "msamp" : "te";
  import.is_torchao = name == "AO";
  import.set("fp8.backend", import.backend, found);
  if (!import.is_torchao) return {Outcome::kCopied, ""};
  return {Outcome::kTranslated,
          "torchao's scaling of tensors is te's recipe current. Accelerate leaves the first and "
          "the last linear out of FP8 with AO: name them in layers.skip"};
}

Answer flag(Import &import, const KeyRow &row, const Found &found) {
  import.set(row.becomes, boolean_of(import, found), found);
  return {Outcome::kCopied, ""};
}

Answer number(Import &import, const KeyRow &row, const Found &found) {
  import.set(row.becomes, integer_of(import, found), found);
  return {Outcome::kCopied, ""};
}

Answer interval(Import &import, const KeyRow &row, const Found &found) {
  if (integer_of(import, found) != 1)
    return {Outcome::kRejected, reason_of(row) + "; remove it, or set it to 1"};
  return number(import, row, found);
}

Answer format(Import &import, const KeyRow &row, const Found &found) {
  const std::string name = choice_of(import, found, upper(found.text), {"HYBRID", "E4M3", "E5M2"});
  if (name == "E5M2")
    return {Outcome::kRejected, reason_of(row) + "; set HYBRID, with E5M2 for gradients"};
  import.set(row.becomes, name, found);
  return {Outcome::kCopied, ""};
}

Answer algorithm(Import &import, const KeyRow &row, const Found &found) {
  const std::string name = choice_of(import, found, lower(found.text), {"max", "most_recent"});
  import.set(row.becomes, name, found);
  if (name == "max") return {Outcome::kCopied, ""};
  return {Outcome::kTranslated, row.note};
}

Answer products(Import &import, const KeyRow &row, const Found &found) {
  std::vector<std::string> items = found.items;
  const bool is_text = !found.is_list && split_tuple(found.text, &items);
  // "false,true,false" is the launcher's argument; one false is the wizard's first answer.
  if (!found.is_list && !is_text && found.text.find(',') != std::string::npos)
    split_tuple("(" + found.text + ")", &items);
  else if (lower(found.text) == "false")
    items = {"false", "false", "false"};
  if (items.size() != 3)
    throw Failure(OCTAVO_INVALID, kImportDomain, place(import.file, found), ": ", found.key,
                  ": expected three booleans for fprop, dgrad and wgrad, as in [false, false, "
                  "true], found ",
                  found.shown());
  std::string high;
  const char *const names[] = {"fprop", "dgrad", "wgrad"};
  for (size_t i = 0; i < 3; ++i) {
    Found one = found;
    one.is_list = false;
    one.text = items[i];
    if (boolean_of(import, one)) high += (high.empty() ? "" : ",") + std::string(names[i]);
  }
  import.set(row.becomes, high.empty() ? "none" : high, found);
  if (is_text && (import.where & kAccelerate) != 0)
    return {Outcome::kTranslated,
            "a tuple in YAML is a text, and Accelerate reads its first three characters; here "
            "the tuple counts"};
  return {Outcome::kCopied, ""};
}

Answer mx(Import &import, const KeyRow &, const Found &found) {
  import.is_mx = boolean_of(import, found);
  if (import.is_mx) import.set("fp8.te.recipe", "mx", found);
  return {Outcome::kCopied, import.is_mx ? "" : "the recipe is not mx"};
}

Answer padding(Import &import, const KeyRow &row, const Found &found) {
  boolean_of(import, found);
  return {Outcome::kTranslated, row.note};
}

Answer gather(Import &import, const KeyRow &row, const Found &found) {
  if (boolean_of(import, found)) return {Outcome::kRejected, reason_of(row) + "; set it to false"};
  return {Outcome::kTranslated, "nothing to set: values are gathered by default"};
}

Answer refuse(Import &, const KeyRow &row, const Found &) {
  return {Outcome::kRejected, row.note};
}

}  // namespace

Answer take_level(Import &import, const KeyRow &row, const Found &found) {
  import.set(row.becomes, choice_of(import, found, upper(found.text), {"O1", "O2", "O3"}), found);
  return {Outcome::kCopied, ""};
}

const std::vector<KeyRow> &recipe_keys() {
  static const std::vector<KeyRow> table = {
      {"backend", kFp8Config | kFp8Kwargs, "fp8.backend",
       "TE is te, MSAMP is msamp; AO is te with recipe = \"current\"", backend},
      {"fp8_format", kTe, "fp8.te.fp8_format",
       "E5M2 is refused: its 2 bits of mantissa serve gradients only, and TE also refuses it",
       format},
      {"margin", kTe, "fp8.te.margin", "", number},
      {"interval", kTe, "fp8.te.interval",
       "above 1 it is refused: TE removed the interval, and computes scales in every step",
       interval},
      {"amax_history_len", kTe, "fp8.te.amax_history_len", "", number},
      {"amax_history_length", kFp8Config, "fp8.te.amax_history_len",
       "the wizard's name, which Accelerate's launcher does not read: it ran with 1024", number,
       "amax_history_len"},
      {"amax_compute_algo", kTe, "fp8.te.amax_compute_algo",
       "most_recent takes effect here; Accelerate does not hand it on, so TE ran with max",
       algorithm},
      {"amax_compute_algorithm", kFp8Config, "fp8.te.amax_compute_algo",
       "the wizard's name, which Accelerate's launcher does not read: it ran with max", algorithm,
       "amax_compute_algo"},
      {"override_linear_precision", kTe, "fp8.te.override_linear_precision",
       "three booleans become the names of the products", products},
      {"use_autocast_during_eval", kTe, "fp8.te.use_autocast_during_eval", "", flag},
      {"use_mxfp8_block_scaling", kTe, "fp8.te.recipe", "true is recipe = \"mx\"", mx},
      {"opt_level", kMsamp, "fp8.msamp.opt_level", "", take_level},
      {"optimization_level", kMsamp, "fp8.msamp.opt_level",
       "the name of the wizard and of the guide, which no handler reads: it ran with O2",
       take_level, "opt_level"},
      {"pad_inner_dim", kAo, "", "nothing to set: te pads what its kernels need in multiples of 16",
       padding},
      {"enable_fsdp_float8_all_gather", kAo, "",
       "true is refused: octavo.prepare(fsdp_gather=\"fp8\") does that, and no key of the file",
       gather},
      {"config", kAoKwargs, "",
       "an object of Python cannot be given here; give the values of its fields instead, as in "
       "pad_inner_dim=True",
       refuse},
      {"module_filter_func", kAoKwargs, "",
       "a function of Python cannot be given here; name the layers that stay out of FP8 in "
       "layers.skip",
       refuse},
  };
  return table;
}

}  // namespace octavo::cli::imports
