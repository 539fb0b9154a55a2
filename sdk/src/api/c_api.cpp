// The functions of octavo.h that open, report on and describe a run; no logic of their own.
#include "sdk/src/base/exception_boundary.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/base/sized.h"
#include "sdk/src/base/text.h"
#include "sdk/src/negotiate/negotiate.h"
#include "sdk/src/report/report.h"
#include "sdk/src/run/run.h"

namespace {

using octavo::Failure;
using octavo::guarded;
using octavo::require_not_null;
using octavo::ResourceUnavailable;
using octavo::View;

// The caller's struct in this library's size: fields it does not know are 0.
template <typename Desc, typename... Pointer>
Desc own_copy(const Desc *theirs, uint32_t kind, Pointer Desc::*...pointers) {
  Desc d{};
  if (theirs != nullptr) d = octavo::copy_known_fields(*theirs, pointers...);
  d.size = sizeof(d);
  d.kind = kind;
  return d;
}

// The fields of another struct mean other things.
template <typename Desc>
void check_kind(const Desc *theirs, uint32_t kind, const char *function) {
  if (theirs != nullptr && OCTAVO_HAS(theirs, Desc, kind) && theirs->kind != kind)
    throw Failure(OCTAVO_INVALID, "octavo.arguments", function, ": expected a struct of kind ",
                  kind, ", found kind ", theirs->kind, "; set its size and kind");
}

octavo_open_desc own_copy(const octavo_open_desc *theirs) {
  return own_copy(theirs, OCTAVO_KIND_OPEN_DESC, &octavo_open_desc::overrides,
                  &octavo_open_desc::plugin_dirs, &octavo_open_desc::host);
}

// A complete host table that lives as long as the run and forwards to the caller's, if any.
std::unique_ptr<octavo_host> own_host(const octavo_host *theirs) {
  auto host = std::make_unique<octavo_host>();
  host->size = sizeof(*host);
  host->kind = OCTAVO_KIND_HOST;
  host->abi_major = OCTAVO_ABI_MAJOR;
  host->abi_minor = OCTAVO_ABI_MINOR;
  host->ctx = const_cast<octavo_host *>(theirs);
  host->diagnose = octavo::relay_diagnostic;
  host->get_extension = [](void *ctx, octavo_str id) -> const void * {
    const auto *h = static_cast<const octavo_host *>(ctx);
    const bool has = h != nullptr && OCTAVO_HAS(h, octavo_host, get_extension);
    return has && h->get_extension != nullptr ? h->get_extension(h->ctx, id) : nullptr;
  };
  return host;
}

// Only as much is done as the view needs.
octavo_status report_on(const octavo_open_desc *desc, const char *function, octavo_str format,
                        octavo_line line, void *ctx, View view) {
  const octavo_open_desc d = own_copy(desc);
  return guarded(d.host, [&]() -> octavo_status {
    require_not_null(line, function, "line");
    check_kind(desc, OCTAVO_KIND_OPEN_DESC, function);
    const octavo::Format wanted = octavo::parse_format(octavo::view(format));
    const std::unique_ptr<octavo_host> host = own_host(d.host);
    const octavo::Lines lines(line, ctx);
    try {
      octavo::Negotiation n = octavo::prepare(d);
      if (view == View::kHardware)
        n.probes = octavo::probe_all(n.config, n.trust, n.discovery, n.hardware);
      std::string missing;
      if (view == View::kConfig) missing = octavo::check_all_options(n, host.get());
      if (view == View::kSchema) n.declared = octavo::options_of_backends(n, host.get());
      if (view == View::kRun) octavo::negotiate(n, d, host.get());
      octavo::write_report(view, n, nullptr, wanted, lines);
      if (!missing.empty()) throw Failure(OCTAVO_UNSUPPORTED, "octavo.config", missing);
      return view == View::kRun && !n.chosen ? OCTAVO_UNSUPPORTED : OCTAVO_OK;
    } catch (const Failure &f) {
      if (view == View::kRun && f.status() == OCTAVO_INVALID)
        octavo::write_problem(d,
                              {0, OCTAVO_DECLINE, OCTAVO_REASON_CONFIG, f.text(), "",
                               octavo::Remedy(f.fix()), octavo::Stage::kConfig},
                              wanted, lines);
      throw;
    } catch (ResourceUnavailable &s) {
      s.at(octavo::Stage::kConfig);
      if (view == View::kRun) octavo::write_problem(d, s.verdict(), wanted, lines);
      throw;
    }
  });
}

}  // namespace

octavo_str octavo_version(void) {
#define OCTAVO_TEXT2(x) #x
#define OCTAVO_TEXT(x) OCTAVO_TEXT2(x)
  return octavo::borrow(OCTAVO_TEXT(OCTAVO_VERSION_MAJOR) "." OCTAVO_TEXT(
      OCTAVO_VERSION_MINOR) "." OCTAVO_TEXT(OCTAVO_VERSION_PATCH));
}

octavo_status octavo_open(const octavo_open_desc *desc, octavo_run **out) {
  const octavo_open_desc d = own_copy(desc);
  return guarded(d.host, [&]() {
    *require_not_null(out, "octavo_open", "out") = nullptr;
    check_kind(desc, OCTAVO_KIND_OPEN_DESC, "octavo_open");
    std::unique_ptr<octavo_host> host = own_host(d.host);
    octavo::Negotiation n = octavo::prepare(d);
    octavo::negotiate(n, d, host.get());
    if (!n.chosen) throw Failure(OCTAVO_UNSUPPORTED, "octavo.negotiate", octavo::refusal(n));
    if (n.choice()->is_fallback)
      octavo::warn(host.get(), "octavo.negotiate", "falling back to \"", n.choice()->id,
                   "\" as fp8.fallback permits: ", octavo::refusal(n));
    *out = octavo::open_handle(std::make_unique<octavo_run>(std::move(n), std::move(host)));
  });
}

void octavo_close(octavo_run *r) {
  octavo::close_handle(r);
}

octavo_status octavo_explain(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                             void *ctx) {
  return report_on(desc, "octavo_explain", format, line, ctx, View::kRun);
}

octavo_status octavo_list(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                          void *ctx) {
  return report_on(desc, "octavo_list", format, line, ctx, View::kPlugins);
}

octavo_status octavo_probe(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                           void *ctx) {
  return report_on(desc, "octavo_probe", format, line, ctx, View::kHardware);
}

octavo_status octavo_check_config(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                                  void *ctx) {
  const bool schema = octavo::view(format) == "schema";
  return report_on(desc, "octavo_check_config", schema ? octavo::borrow("json") : format, line, ctx,
                   schema ? View::kSchema : View::kConfig);
}

octavo_status octavo_settings(const octavo_open_desc *desc, octavo_take_setting take, void *ctx) {
  const octavo_open_desc d = own_copy(desc);
  return guarded(d.host, [&]() {
    require_not_null(take, "octavo_settings", "take");
    check_kind(desc, OCTAVO_KIND_OPEN_DESC, "octavo_settings");
    const std::unique_ptr<octavo_host> host = own_host(d.host);
    octavo::Negotiation n = octavo::prepare(d);
    const std::string missing = octavo::check_all_options(n, host.get());
    const octavo::LentSettings settings = octavo::settings_of(n);
    for (const auto &e : settings.entries()) take(ctx, &e.lent);
    if (!missing.empty()) throw Failure(OCTAVO_UNSUPPORTED, "octavo.config", missing);
  });
}

octavo_status octavo_lock(const octavo_open_desc *desc, octavo_line line, void *ctx) {
  const octavo_open_desc d = own_copy(desc);
  return guarded(d.host, [&]() {
    require_not_null(line, "octavo_lock", "line");
    check_kind(desc, OCTAVO_KIND_OPEN_DESC, "octavo_lock");
    const std::unique_ptr<octavo_host> host = own_host(d.host);
    const octavo::Lines lines(line, ctx);
    std::string path;
    for (const octavo::LockedPlugin &p : octavo::write_lock_for(d, host.get(), &path))
      lines(p.name + " " + p.version + ", ABI " + p.abi + ", " + p.platform + "\n  sha256 " +
            p.sha256);
    lines("written to " + path);
  });
}

octavo_status octavo_report(const octavo_run *r, octavo_str format, octavo_line line, void *ctx) {
  return octavo::call_guarded(r, [&](const octavo_run &run) {
    require_not_null(line, "octavo_report", "line");
    octavo::write_report(View::kRun, run.negotiation(), &run,
                         octavo::parse_format(octavo::view(format)), octavo::Lines(line, ctx));
  });
}

octavo_status octavo_run_codes(const octavo_run *r, uint32_t slot, const void *memory, void *out) {
  return octavo::call_guarded(r, [&](const octavo_run &run) {
    run.codes(slot, require_not_null(memory, "octavo_run_codes", "memory"),
              require_not_null(out, "octavo_run_codes", "out"));
  });
}

octavo_status octavo_add_parameter(octavo_run *r, const octavo_parameter_desc *d, octavo_verdict *v,
                                   uint32_t *id) {
  return octavo::call_guarded(r, [&](octavo_run &run) {
    check_kind(require_not_null(d, "octavo_add_parameter", "d"), OCTAVO_KIND_PARAMETER_DESC,
               "octavo_add_parameter");
    const auto own = own_copy(d, OCTAVO_KIND_PARAMETER_DESC);
    return run.add_parameter(own, v, require_not_null(id, "octavo_add_parameter", "id"));
  });
}

octavo_status octavo_add_linear(octavo_run *r, const octavo_linear_desc *d, octavo_verdict *v,
                                uint32_t *id) {
  return octavo::call_guarded(r, [&](octavo_run &run) {
    check_kind(require_not_null(d, "octavo_add_linear", "d"), OCTAVO_KIND_LINEAR_DESC,
               "octavo_add_linear");
    const auto own = own_copy(d, OCTAVO_KIND_LINEAR_DESC);
    return run.add_linear(own, v, require_not_null(id, "octavo_add_linear", "id"));
  });
}

octavo_status octavo_seal(octavo_run *r) {
  return octavo::call_guarded(r, [](octavo_run &run) { run.seal(); });
}
