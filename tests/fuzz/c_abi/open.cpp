// Opening, reporting and closing: configurations, overrides and descriptions of every age.
#include <deque>
#include <memory>

#include "machine.h"

namespace octavo::fuzz {
namespace {

struct Named {
  const char *key;
  const char *value;
};
// What a run may be opened with besides its backend.
constexpr Named kTexts[] = {{"fp8.te.recipe", "current"},
                            {"fp8.te.recipe", "block"},
                            {"fp8.te.recipe", "mx"},
                            {"fp8.te.profile", "ocp-mx"},
                            {"fp8.te.profile", "te2-delayed-unfused"},
                            {"fp8.te.backward_override", "high_precision"},
                            {"fp8.te.backward_override", "dequantized"},
                            {"fp8.te.override_linear_precision", "wgrad"},
                            {"fp8.te.override_linear_precision", "fprop"},
                            {"fp8.te.fp8_format", "E5M2"},
                            {"fp8.msamp.opt_level", "O1"},
                            {"fp8.msamp.opt_level", "O3"},
                            {"fp8.msamp.state_format", "coat"},
                            {"fp8.msamp.state_format", "e4m3-block"},
                            {"fp8.msamp.gradient_accumulation", "fp32"},
                            {"fp8.msamp.profile", "msamp04"},
                            {"fp8.fallback", "bf16"},
                            {"fp8.preference", "reference"},
                            {"device.kind", "cuda"},
                            {"layers.skip", "a*"},
                            {"layers.min_gain", "torchao"},
                            {"fp8.require.scaling", "tensor"},
                            {"plugins.trust", "pinned"},
                            {"mixed_precision", "no"},
                            {"mixed_precision", "bf16"},
                            {"fp8.scripted.mode", "fast"},
                            {"fp8.require.speed", "native"},
                            {"fp8.msamp.state_scale", "bound"}};
constexpr const char *kFlags[] = {"fp8.require.native",
                                  "fp8.require.deterministic",
                                  "plugins.locked",
                                  "fp8.te.telemetry",
                                  "fp8.te.use_autocast_during_eval",
                                  "fp8.te.mxfp8_2d_quantization",
                                  "fp8.te.current_scaling_power_2_scales",
                                  "fp8.te.use_mxfp8_block_scaling",
                                  "fp8.te.reduce_amax",
                                  "fp8.msamp.weight_cache",
                                  "fp8.msamp.telemetry"};
constexpr const char *kNumbers[] = {"fp8.te.margin",
                                    "fp8.te.amax_history_len",
                                    "fp8.te.amax_epsilon",
                                    "fp8.msamp.amax_history_len",
                                    "fp8.msamp.one_shot_bytes",
                                    "plugins.probe_timeout_ms",
                                    "schema",
                                    "fp8.scripted.count"};
constexpr const char *kBackends[] = {"te", "msamp", "scripted", "reference", "auto", "nobody"};
constexpr const char *kFormats[] = {"text", "tree", "json", "xml", ""};

// A description with all that it points to.
class Request {
 public:
  Request(Script &script, const octavo_host *host) {
    const uint32_t backend = script.below(8);
    name_ = kBackends[backend < std::size(kBackends) ? backend : 2];
    text_ = "[fp8]\nbackend = \"" + name_ +
            "\"\n[plugins]\ntrust = \"dev\"\nprobe = \"never\"\npath = [\"" OCTAVO_FUZZ_SCRIPTED
            "\", \"" OCTAVO_FUZZ_PLUGINS "\"]\n";
    choose(script);
    octavo_open_desc d{};
    d.kind = OCTAVO_KIND_OPEN_DESC;
    d.config_text = str(text_);
    d.overrides = overrides_.data();
    d.override_count = overrides_.size();
    d.host = host;
    uint32_t size = sizeof(d);
    switch (script.defect(12)) {
      case 1: d.config_text = {}; break;
      case 2: d.config_text = {nullptr, 7}; break;
      case 3: size = script.below(sizeof(d) + 16); break;
      case 4: d.device = {script.byte(), static_cast<int32_t>(script.word())}; break;
      case 5:
        d.overrides = nullptr;
        d.override_count = 1 + script.byte();
        break;
      case 6: d.plugin_dir_count = 1 + script.byte(); break;
      case 7: d.host = nullptr; break;
      case 8: d.kind = script.byte(); break;
      case 9:
        text_ += script.text() + " = 1\n";
        d.config_text = str(text_);
        break;
      case 10:  // where octavo.lock may lie
        path_ = work_folder() + "/octavo.toml";
        d.config_path = str(path_);
        break;
      case 11:
        path_ = script.text();
        d.config_path = str(path_);
        break;
      case 12: {
        directory_ = script.text();
        directories_ = {str(directory_), {nullptr, 3}};
        d.plugin_dirs = directories_.data();
        d.plugin_dir_count = directories_.size();
        break;
      }
      default: break;
    }
    hosted_ = d.host != nullptr && size >= sizeof(d);
    desc_ = std::make_unique<Sized<octavo_open_desc>>(d, size);
  }

  const octavo_open_desc *desc() const { return desc_->get(); }
  bool is_hosted() const { return hosted_; }
  bool is_scripted() const { return name_ == "scripted"; }

 private:
  void choose(Script &script) {
    for (uint32_t n = script.below(4); n > 0; --n) {
      octavo_option_value o{};
      const uint32_t kind = script.below(16);
      if (kind < 10) {
        const Named &named = kTexts[script.below(std::size(kTexts))];
        o.name = str(named.key);
        o.value.type = OCTAVO_VALUE_TEXT;
        o.value.text = str(named.value);
      } else if (kind < 13) {
        o.name = str(kFlags[script.below(std::size(kFlags))]);
        o.value.type = OCTAVO_VALUE_BOOL;
        o.value.integer = script.below(2);
      } else if (kind < 15) {
        o.name = str(kNumbers[script.below(std::size(kNumbers))]);
        o.value.type = OCTAVO_VALUE_INT;
        o.value.integer = static_cast<int32_t>(script.id());
      } else {  // anything
        o.name = str(texts_.emplace_back(script.text()));
        o.value.type = script.below(6);
        o.value.integer = static_cast<int32_t>(script.word());
        o.value.real = script.real();
        o.value.text = str(texts_.emplace_back(script.text()));
        if (script.defect(1) != 0) o.name = o.value.text = {nullptr, 9};
      }
      overrides_.push_back(o);
    }
  }

  std::string name_, text_, path_, directory_;
  std::deque<std::string> texts_;
  std::vector<octavo_option_value> overrides_;
  std::vector<octavo_str> directories_;
  std::unique_ptr<Sized<octavo_open_desc>> desc_;
  bool hosted_ = false;
};

}  // namespace

void Machine::open() {
  if (opens_-- <= 0) return;
  OpenRun &r = any_run();
  close_run(r);
  const Request request(script_, host_.table());
  // What is asked while opening is answered by the script, too.
  octavo_fuzz_script = script_.below(8) == 7 ? &script_ : nullptr;
  octavo_run *out = nullptr;
  host_.allow_any_status(request.is_scripted());
  const octavo_status status = host_.judge("octavo_open", request.is_hosted(),
                                           [&] { return octavo_open(request.desc(), &out); });
  octavo_fuzz_script = nullptr;
  expect((status == OCTAVO_OK) == (out != nullptr), "a run or a failure", std::to_string(status));
  if (out == nullptr) return;
  r.run = out;
  r.hosted = request.is_hosted();
  r.scripted = view(octavo_run_backend_id(out)) == "scripted";
}

void Machine::close() {
  close_run(any_run());
}

void Machine::close_run(OpenRun &r) {
  for (OpenStore &s : stores_)
    if (s.run == &r) close_store(s);
  octavo_close(r.run);
  if (r.run != nullptr) closed_run_ = r.run;
  r = OpenRun();
}

void Machine::report() {
  const std::string format = kFormats[script_.below(std::size(kFormats))];
  const octavo_str wanted = script_.defect(1) != 0 ? octavo_str{nullptr, 4} : str(format);
  const octavo_line line = script_.defect(1) != 0 ? nullptr : &Host::line;
  const uint32_t kind = script_.below(8);
  if (kind >= 6) {
    const OpenRun &r = any_run();
    judge(
        r, "octavo_report", [&] { return octavo_report(r.run, wanted, line, &host_); },
        line != nullptr);
    return;
  }
  if (reports_-- <= 0) return;
  const Request request(script_, host_.table());
  octavo_fuzz_script = script_.below(8) == 7 ? &script_ : nullptr;
  host_.allow_any_status(false);
  host_.judge("a report", request.is_hosted() && kind < 5 && line != nullptr,
              [&]() -> octavo_status {
                switch (kind) {
                  case 0: return octavo_explain(request.desc(), wanted, line, &host_);
                  case 1: return octavo_list(request.desc(), wanted, line, &host_);
                  case 2: return octavo_probe(request.desc(), wanted, line, &host_);
                  case 3: return octavo_check_config(request.desc(), wanted, line, &host_);
                  case 4: use_work_folder(); return octavo_lock(request.desc(), line, &host_);
                  default: return octavo_explain(nullptr, wanted, line, &host_);
                }
              });
  octavo_fuzz_script = nullptr;
}

}  // namespace octavo::fuzz
