// The functions of octavo.h that open, describe and look at a run; no logic of their own.
#include <algorithm>
#include <cstring>

#include "report.h"
#include "run.h"
#include "text.h"
#include "wall.h"

namespace {

using octavo::Failure;
using octavo::guarded;

// The caller's struct in this library's size: fields it does not know are 0.
template <typename Desc>
Desc own_copy(const Desc *given, uint32_t kind) {
  Desc d{};
  if (given != nullptr) std::memcpy(&d, given, std::min<size_t>(given->size, sizeof(d)));
  d.size = sizeof(d);
  d.kind = kind;
  return d;
}

// A complete host table that lives as long as the run and forwards to the caller's, if any.
std::unique_ptr<octavo_host> own_host(const octavo_host *given) {
  auto host = std::make_unique<octavo_host>();
  host->size = sizeof(*host);
  host->kind = OCTAVO_KIND_HOST;
  host->abi_major = OCTAVO_ABI_MAJOR;
  host->abi_minor = OCTAVO_ABI_MINOR;
  host->ctx = const_cast<octavo_host *>(given);
  host->diagnose = [](void *ctx, const octavo_diagnostic *d) {
    const auto *h = static_cast<const octavo_host *>(ctx);
    if (h != nullptr && OCTAVO_HAS(h, octavo_host, diagnose) && h->diagnose != nullptr)
      h->diagnose(h->ctx, d);
  };
  host->get_extension = [](void *ctx, octavo_str id) -> const void * {
    const auto *h = static_cast<const octavo_host *>(ctx);
    const bool has = h != nullptr && OCTAVO_HAS(h, octavo_host, get_extension);
    return has && h->get_extension != nullptr ? h->get_extension(h->ctx, id) : nullptr;
  };
  return host;
}

using Write = void (*)(const octavo::Negotiation &, const octavo_run *, octavo::Format,
                       const octavo::Lines &);
// How far a report goes: what is there, what the configuration says, or what would run.
enum class Depth { kPrepare, kCheckOptions, kNegotiate };

octavo_status report_on(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                        void *ctx, Depth depth, Write write) {
  const octavo_open_desc d = own_copy(desc, OCTAVO_KIND_OPEN_DESC);
  if (line == nullptr) return OCTAVO_INVALID;
  return guarded(d.host, [&]() -> octavo_status {
    const octavo::Format wanted = octavo::parse_format(octavo::view(format));
    const std::unique_ptr<octavo_host> host = own_host(d.host);
    octavo::Negotiation n = octavo::prepare(d);
    if (depth == Depth::kCheckOptions) octavo::check_all_options(n, host.get());
    if (depth == Depth::kNegotiate) octavo::negotiate(n, d, host.get());
    write(n, nullptr, wanted, octavo::Lines(line, ctx));
    return depth == Depth::kNegotiate && !n.chosen ? OCTAVO_UNSUPPORTED : OCTAVO_OK;
  });
}

}  // namespace

octavo_str octavo_version(void) {
#define OCTAVO_TEXT2(x) #x
#define OCTAVO_TEXT(x) OCTAVO_TEXT2(x)
  return octavo::str(OCTAVO_TEXT(OCTAVO_VERSION_MAJOR) "." OCTAVO_TEXT(
      OCTAVO_VERSION_MINOR) "." OCTAVO_TEXT(OCTAVO_VERSION_PATCH));
}

octavo_status octavo_open(const octavo_open_desc *desc, octavo_run **out) {
  if (out == nullptr) return OCTAVO_INVALID;
  *out = nullptr;
  const octavo_open_desc d = own_copy(desc, OCTAVO_KIND_OPEN_DESC);
  return guarded(d.host, [&]() -> octavo_status {
    std::unique_ptr<octavo_host> host = own_host(d.host);
    octavo::Negotiation n = octavo::prepare(d);
    octavo::negotiate(n, d, host.get());
    if (!n.chosen) throw Failure(OCTAVO_UNSUPPORTED, "octavo.negotiate", octavo::refusal(n));
    if (n.choice()->is_fallback)
      octavo::diagnose(host.get(), OCTAVO_SEVERITY_WARNING, OCTAVO_OK, "octavo.negotiate",
                       "falling back to \"" + n.choice()->id +
                           "\" as fp8.fallback permits: " + octavo::refusal(n));
    *out = new octavo_run(std::move(n), std::move(host));
    return OCTAVO_OK;
  });
}

void octavo_close(octavo_run *r) {
  delete r;
}

octavo_status octavo_explain(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                             void *ctx) {
  return report_on(desc, format, line, ctx, Depth::kNegotiate, octavo::write_report);
}

octavo_status octavo_list(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                          void *ctx) {
  return report_on(desc, format, line, ctx, Depth::kPrepare, octavo::write_list);
}

octavo_status octavo_probe(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                           void *ctx) {
  return report_on(desc, format, line, ctx, Depth::kPrepare, octavo::write_hardware);
}

octavo_status octavo_check_config(const octavo_open_desc *desc, octavo_str format, octavo_line line,
                                  void *ctx) {
  return report_on(desc, format, line, ctx, Depth::kCheckOptions, octavo::write_config);
}

octavo_status octavo_report(const octavo_run *r, octavo_str format, octavo_line line, void *ctx) {
  if (r == nullptr || line == nullptr) return OCTAVO_INVALID;
  return guarded(r->host(), [&] {
    octavo::write_report(r->negotiation(), r, octavo::parse_format(octavo::view(format)),
                         octavo::Lines(line, ctx));
    return OCTAVO_OK;
  });
}

octavo_status octavo_add_parameter(octavo_run *r, const octavo_parameter_desc *d, octavo_verdict *v,
                                   uint32_t *id) {
  if (r == nullptr || d == nullptr || id == nullptr) return OCTAVO_INVALID;
  const octavo_parameter_desc own = own_copy(d, OCTAVO_KIND_PARAMETER_DESC);
  return guarded(r->host(), [&] { return r->add_parameter(own, v, id); });
}

octavo_status octavo_add_linear(octavo_run *r, const octavo_linear_desc *d, octavo_verdict *v,
                                uint32_t *id) {
  if (r == nullptr || d == nullptr || id == nullptr) return OCTAVO_INVALID;
  const octavo_linear_desc own = own_copy(d, OCTAVO_KIND_LINEAR_DESC);
  return guarded(r->host(), [&] { return r->add_linear(own, v, id); });
}

octavo_status octavo_seal(octavo_run *r) {
  if (r == nullptr) return OCTAVO_INVALID;
  return guarded(r->host(), [&] {
    r->seal();
    return OCTAVO_OK;
  });
}

uint32_t octavo_slot_count(const octavo_run *r) {
  return static_cast<uint32_t>(r->slots().size());
}

const octavo_slot *octavo_get_slot(const octavo_run *r, uint32_t id) {
  return id < r->slots().size() ? &r->slots()[id] : nullptr;
}

uint32_t octavo_use_count(const octavo_run *r, uint32_t owner_kind, uint32_t owner) {
  const auto *uses = r->uses(owner_kind, owner);
  return uses == nullptr ? 0 : static_cast<uint32_t>(uses->size());
}

const octavo_slot_use *octavo_get_use(const octavo_run *r, uint32_t owner_kind, uint32_t owner,
                                      uint32_t index) {
  const auto *uses = r->uses(owner_kind, owner);
  return uses != nullptr && index < uses->size() ? &(*uses)[index] : nullptr;
}

const octavo_linear_plan *octavo_get_plan(const octavo_run *r, uint32_t linear) {
  return r->plan(linear);
}

const octavo_backend *octavo_backend_of(const octavo_run *r) {
  return r->plugin() == nullptr ? nullptr : &r->plugin()->backend;
}

const octavo_optimizer *octavo_optimizer_of(const octavo_run *r) {
  return r->plugin() != nullptr && r->plugin()->optimizer ? &*r->plugin()->optimizer : nullptr;
}

const octavo_fused *octavo_fused_of(const octavo_run *r) {
  return r->plugin() != nullptr && r->plugin()->fused ? &*r->plugin()->fused : nullptr;
}

const octavo_gradients *octavo_gradients_of(const octavo_run *r) {
  return r->plugin() != nullptr && r->plugin()->gradients ? &*r->plugin()->gradients : nullptr;
}

octavo_session *octavo_session_of(const octavo_run *r) {
  return r->session();
}

const octavo_session_desc *octavo_session_desc_of(const octavo_run *r) {
  return r->session_desc();
}

octavo_str octavo_precision_of(const octavo_run *r) {
  const octavo::Candidate *choice = r->negotiation().choice();
  return choice->is_precision ? octavo::str(choice->id) : octavo::str("fp8");
}

octavo_str octavo_backend_id_of(const octavo_run *r) {
  return r->plugin() == nullptr ? octavo_str{nullptr, 0} : octavo::str(r->plugin()->id);
}
