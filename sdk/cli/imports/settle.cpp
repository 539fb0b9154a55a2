// What the keys say together: the precision, the backend, and settings that another one makes void.
#include <algorithm>

#include "sdk/cli/imports/import.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::imports {
namespace {

void change(Import &import, const std::string &setting, Outcome outcome, const std::string &words) {
  const Assignment *a = import.find(setting);
  if (a == nullptr) return;
  for (KeyResult &result : import.results)
    if (result.found.key == a->from.key) result.outcome = outcome, result.words = words;
  import.drop(setting);
}

// mx has no history, and te refuses options about one.
void settle_mx(Import &import) {
  for (const char *key : {"fp8.te.amax_history_len", "fp8.te.amax_compute_algo"}) {
    const Assignment *a = import.find(key);
    const bool usual =
        a != nullptr && (show(a->value) == "1024" || std::holds_alternative<std::string>(a->value));
    change(import, key, usual ? Outcome::kTranslated : Outcome::kRejected,
           usual ? "nothing to set: mx has no history"
                 : "mx has no history; remove it, or use_mxfp8_block_scaling");
  }
  if (const Assignment *a = import.find("fp8.te.margin"); a != nullptr && show(a->value) != "0")
    change(import, "fp8.te.margin", Outcome::kRejected,
           "mx has no margin; remove it, or use_mxfp8_block_scaling");
}

// With AO, Accelerate hands over nothing that belongs to TE.
void settle_torchao(Import &import) {
  std::vector<std::string> unread;
  for (const Assignment &a : import.settings)
    if (a.key.starts_with("fp8.te.")) unread.push_back(a.key);
  for (const std::string &key : unread)
    change(import, key, Outcome::kTranslated,
           "nothing to set: with AO, Accelerate does not read it");
  for (KeyResult &result : import.results)
    if (result.outcome == Outcome::kRejected &&
        (result.found.key.ends_with("interval") || result.found.key.ends_with("fp8_format")))
      result.outcome = Outcome::kTranslated,
      result.words = "nothing to set: with AO, Accelerate does not read it";
  import.is_mx = false;
}

// What the source's library does where it says nothing and Octavo's default differs. With AO,
// Accelerate leaves the head out as well.
void settle_defaults(Import &import) {
  if (import.is_torchao) return;
  const auto set = [&](const char *key, TomlValue value, const char *comment) {
    if (import.find(key) != nullptr) return;
    import.set(key, std::move(value), {});
    import.settings.back().comment = comment;
  };
  if (import.backend == "te" && !import.is_mx)
    set("fp8.te.amax_history_len", int64_t{1024}, "Transformer Engine's default.");
  set("layers.skip", std::vector<std::string>{}, "The source converts the head as well.");
}

void settle_backend(Import &import, bool is_fp8) {
  if (!is_fp8 && import.backend.empty()) return;
  Found none;
  if (import.backend.empty()) {
    const bool levels = import.find("fp8.msamp.opt_level") != nullptr;
    const bool msamp = import.where == kMsampKwargs || (levels && import.where != kFp8Kwargs);
    import.backend = msamp ? "msamp" : "te";
    import.is_torchao = import.where == kAoKwargs;
    import.set("fp8.backend", import.backend, none);
    import.settings.back().comment =
        import.where == kAccelerate || import.where == kFp8Kwargs
            ? "The source names no backend, and Accelerate takes one that is installed."
            : "";
  }
  if (import.is_torchao) settle_torchao(import);
  if (import.is_mx) settle_mx(import);
  if (import.backend == "te" && !import.is_mx)
    import.set("fp8.te.recipe", import.is_torchao ? "current" : "delayed", none);
  if (import.where == kDeepSpeed && import.backend == "msamp" &&
      import.find("fp8.msamp.opt_level") == nullptr) {
    import.set("fp8.msamp.opt_level", "O1", none);
    import.settings.back().comment = "Accelerate's value for DeepSpeed without opt_level.";
  }
  settle_defaults(import);
}

void settle_precision(Import &import) {
  if (import.find("mixed_precision") != nullptr) return;
  const bool is_kwargs = (import.where & (kAccelerate | kDeepSpeed)) == 0;
  const bool has_recipe =
      std::any_of(import.settings.begin(), import.settings.end(),
                  [](const Assignment &a) { return a.key.starts_with("fp8."); });
  const bool refused =
      std::any_of(import.results.begin(), import.results.end(),
                  [](const KeyResult &f) { return f.outcome == Outcome::kRejected; });
  if (!is_kwargs && !has_recipe && !refused)
    throw Failure(OCTAVO_INVALID, kImportDomain, import.file,
                  import.where == kDeepSpeed
                      ? ": expected bf16, fp16, fp8 or msamp with \"enabled\": true, found none, "
                        "which means mixed_precision: no; where it is \"auto\", import the "
                        "config.yaml of the launcher"
                      : ": expected mixed_precision: fp8 or settings of FP8, found neither, which "
                        "means mixed_precision: no; there is nothing to import");
  import.set("mixed_precision", "fp8", {});
  if (import.where == kAccelerate)
    import.settings.back().comment =
        "The source has settings of FP8 and no mixed_precision, so Accelerate ran without FP8.";
}

}  // namespace

void settle(Import &import) {
  settle_precision(import);
  settle_backend(import, import.precision() == "fp8");
}

}  // namespace octavo::cli::imports
