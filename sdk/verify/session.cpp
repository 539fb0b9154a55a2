// Opening, describing and sealing a session.
//
// The sinks run inside the backend's seal, so they record errors and throw nothing.
#include "session.h"

#include <exception>

#include "in_flight.h"
#include "octavo/octavo.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// As liboctavo at seal: the largest padding of rows, and what a process can address.
constexpr uint64_t kMostRowMultiple = uint64_t{1} << 20;
constexpr uint64_t kMostBytes = uint64_t{1} << 47;
// What *id holds before a call that may leave it.
constexpr uint32_t kNoId = 0x5EED5EED;

void expect_of_layer(const octavo_verdict &verdict, const char *verb) {
  expect(verdict.level == OCTAVO_LEVEL_LAYER, verb, " gave a verdict of level ", verdict.level,
         "; expected OCTAVO_LEVEL_LAYER");
}

}  // namespace

Model standard_model() {
  const uint32_t weight = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  return {{{"wide", 17, 33},
           {"square", 64, 48, weight, OCTAVO_BF16},
           {"row", 1, 5},
           {"tied", 24, 40},
           {"frozen", 13, 7, weight | OCTAVO_PARAMETER_FROZEN},
           {"vector", 1, 29, 0}},
          {{"wide", "wide"},
           {"square", "square"},
           {"row", "row"},
           {"tied.a", "tied"},
           {"tied.b", "tied"},
           {"frozen", "frozen"}}};
}

Model late_model() {
  return {{{"late", 9, 21}, {"late.vector", 1, 11, 0}}, {{"late", "late"}, {"late.tied", "tied"}}};
}

Session::Session(const Context &context, uint32_t tail)
    : context_(context),
      tail_(tail),
      kernels_(context.target.desc, context.alignment, context.lacking),
      host_(context.target.desc.host) {
  Lent &lent = lent_.emplace_back();
  octavo_session_desc desc = kernels_.desc();
  desc.host = host_.table();
  desc.options = lent.options(desc.options, desc.option_count);
  step("open_session");
  calling("open_session");
  const octavo_status status = backend().open_session(lent.table(desc, tail_), &handle_);
  lent.end();
  try {
    kernels_.expect_setup("open_session", 0);
  } catch (...) {
    if (handle_ != nullptr) backend().close_session(handle_);
    throw;
  }
  expect(status == OCTAVO_OK && handle_ != nullptr, "open_session answered ", status_name(status),
         handle_ == nullptr ? " and no session" : "", " on kernels '", text_of(kernels_.caps().id),
         "' with alignment ", context.alignment, "; expected OCTAVO_OK");
}

Session::~Session() {
  if (handle_ == nullptr) return;
  if (std::uncaught_exceptions() == 0) calling("close_session");
  backend().close_session(handle_);
}

octavo_status Session::add_parameter(octavo_parameter_desc desc, octavo_verdict *verdict,
                                     uint32_t *id) {
  desc.size = sizeof desc;
  desc.kind = OCTAVO_KIND_PARAMETER_DESC;
  *verdict = {};
  verdict->size = sizeof *verdict;
  verdict->kind = OCTAVO_KIND_VERDICT;
  *id = kNoId;
  calling(text("add_parameter '", text_of(desc.name), "'"));
  Lent &lent = lent_.emplace_back();
  octavo_parameter_desc given = desc;
  given.name = lent.text(desc.name);
  host_.take_all();
  const uint64_t before = kernels_.calls();
  const octavo_status status =
      backend().add_parameter(handle_, lent.table(given, tail_), verdict, id);
  lent.end();
  kernels_.expect_setup(text("add_parameter '", text_of(desc.name), "'"), before);
  if (status != OCTAVO_OK) return status;
  expect_of_layer(*verdict, "add_parameter");
  if (verdict->decision == OCTAVO_DECLINE) {
    expect(*id == kNoId, "add_parameter '", text_of(desc.name), "' was declined and wrote *id, ",
           *id, "; expected it unchanged");
    return status;
  }
  expect(*id == parameters_.size(), "add_parameter '", text_of(desc.name), "' gave id ", *id,
         "; ids count from 0 in order of success, so ", parameters_.size(), " was expected");
  parameters_.push_back(
      {{text_of(desc.name), desc.rows, desc.cols, desc.flags, desc.dtype, desc.gradient_dtype},
       {}});
  return status;
}

octavo_status Session::add_linear(octavo_linear_desc desc, octavo_verdict *verdict, uint32_t *id) {
  desc.size = sizeof desc;
  desc.kind = OCTAVO_KIND_LINEAR_DESC;
  *verdict = {};
  verdict->size = sizeof *verdict;
  verdict->kind = OCTAVO_KIND_VERDICT;
  *id = kNoId;
  calling(text("add_linear '", text_of(desc.name), "'"));
  Lent &lent = lent_.emplace_back();
  octavo_linear_desc given = desc;
  given.name = lent.text(desc.name);
  given.options = lent.options(desc.options, desc.option_count);
  host_.take_all();
  const uint64_t before = kernels_.calls();
  const octavo_status status = backend().add_linear(handle_, lent.table(given, tail_), verdict, id);
  lent.end();
  kernels_.expect_setup(text("add_linear '", text_of(desc.name), "'"), before);
  if (status != OCTAVO_OK) return status;
  expect_of_layer(*verdict, "add_linear");
  if (verdict->decision == OCTAVO_DECLINE) {
    expect(*id == kNoId, "add_linear '", text_of(desc.name), "' was declined and wrote *id, ", *id,
           "; expected it unchanged");
    return status;
  }
  expect(desc.weight < parameters_.size(), "add_linear '", text_of(desc.name),
         "' accepted the unknown weight id ", desc.weight);
  expect(*id == linears_.size(), "add_linear '", text_of(desc.name), "' gave id ", *id,
         "; ids count from 0 in order of success, so ", linears_.size(), " was expected");
  parameters_[desc.weight].linears.push_back(*id);
  linears_.push_back({text_of(desc.name), desc.weight, {}});
  return status;
}

void Session::expect_reported(octavo_status status, const std::string &what) {
  const uint32_t reports = host_.take(status);
  expect(reports == 1, what, " answered ", status_name(status), ", and the session's host got ",
         reports, " diagnostics; expected one with this code and OCTAVO_SEVERITY_ERROR");
}

void Session::add(const Model &model, bool may_decline) {
  const auto refused = [&](const char *verb, const std::string &name, octavo_status status,
                           const octavo_verdict &verdict) {
    expect(status == OCTAVO_OK || status == OCTAVO_UNSUPPORTED, verb, " '", name, "' answered ",
           status_name(status), "; expected OCTAVO_OK with a verdict, or OCTAVO_UNSUPPORTED");
    if (status == OCTAVO_OK && verdict.decision != OCTAVO_DECLINE) return;
    declined_ += text(declined_.empty() ? "" : "; ", verb, " ", name, ": ", text_of(verdict.text));
  };
  octavo_verdict verdict;
  uint32_t id = 0;
  for (const ParameterSpec &spec : model.parameters) {
    octavo_parameter_desc desc{};
    desc.name = str_of(spec.name);
    desc.rows = spec.rows;
    desc.cols = spec.cols;
    desc.dtype = spec.dtype;
    desc.gradient_dtype = spec.gradient_dtype;
    desc.flags = spec.flags;
    const octavo_status status = add_parameter(desc, &verdict, &id);
    refused("add_parameter", spec.name, status, verdict);
  }
  for (const LinearSpec &spec : model.linears) {
    const auto weight = find_parameter(spec.weight);
    if (!weight) continue;
    octavo_linear_desc desc{};
    desc.name = str_of(spec.name);
    desc.weight = *weight;
    const octavo_status status = add_linear(desc, &verdict, &id);
    refused("add_linear", spec.name, status, verdict);
  }
  expect(may_decline || !linears_.empty(), "the backend declined every linear of the model (",
         declined_, ")");
}

void Session::seal() {
  step("seal");
  calling("seal");
  const octavo_slot_sink sink = {sizeof sink, OCTAVO_KIND_SLOT_SINK, this, take_slot, take_use};
  const uint64_t before = kernels_.calls();
  const octavo_status status = backend().seal(handle_, &sink);
  kernels_.expect_setup("seal", before);
  expect(sink_error_.empty(), "seal: ", sink_error_);
  expect(status == OCTAVO_OK, "seal answered ", status_name(status), "; expected OCTAVO_OK");
  for (; planned_ < linears_.size(); ++planned_) {
    linears_[planned_].plan = plan(static_cast<uint32_t>(planned_));
  }
}

octavo_status Session::take_slot(void *ctx, const octavo_slot *slot) {
  auto &self = *static_cast<Session *>(ctx);
  const auto known = static_cast<uint32_t>(self.slots_.size());
  if (self.sink_error_.empty() && (slot->id != known || slot->rows < 0 || slot->cols < 0)) {
    self.sink_error_ = text("slot '", text_of(slot->name), "' has id ", slot->id, " and shape [",
                            slot->rows, ", ", slot->cols, "]; expected id ", known);
  }
  if (!self.sink_error_.empty()) return OCTAVO_INVALID;
  Slot copy{*slot, text_of(slot->name), {}};
  if (slot->labels != nullptr) {
    for (int64_t i = 0; i < slot->cols; ++i) copy.labels.push_back(text_of(slot->labels[i]));
  }
  copy.desc.labels = nullptr;
  copy.desc.name = {};
  self.slots_.push_back(std::move(copy));
  return OCTAVO_OK;
}

octavo_status Session::take_use(void *ctx, const octavo_slot_use *use) {
  auto &self = *static_cast<Session *>(ctx);
  if (self.sink_error_.empty() && use->slot >= self.slots_.size()) {
    self.sink_error_ = text("a use names slot ", use->slot, ", which was not emitted yet");
  }
  if (!self.sink_error_.empty()) return OCTAVO_INVALID;
  self.uses_[{use->owner_kind, use->owner}].push_back(*use);
  return OCTAVO_OK;
}

const std::vector<octavo_slot_use> &Session::uses(uint32_t owner_kind, uint32_t owner) const {
  static const std::vector<octavo_slot_use> kNothing;
  const auto found = uses_.find({owner_kind, owner});
  return found == uses_.end() ? kNothing : found->second;
}

std::optional<uint32_t> Session::find_linear(const std::string &name) const {
  for (uint32_t id = 0; id < linears_.size(); ++id) {
    if (linears_[id].name == name) return id;
  }
  return std::nullopt;
}

std::optional<uint32_t> Session::find_parameter(const std::string &name) const {
  for (uint32_t id = 0; id < parameters_.size(); ++id) {
    if (parameters_[id].spec.name == name) return id;
  }
  return std::nullopt;
}

void expect_extent(const std::string &what, const octavo_extent &extent) {
  expect(extent.row_multiple >= 1 && extent.row_multiple <= kMostRowMultiple, what,
         " has row_multiple ", extent.row_multiple, "; expected 1 to ", kMostRowMultiple);
  expect(octavo_extent_bytes(&extent, extent.row_multiple) <= kMostBytes, what, " has ",
         extent.bytes_per_row, " bytes a row and ", extent.fixed_bytes, " more; expected at most ",
         kMostBytes, " bytes for ", extent.row_multiple, " rows");
}

octavo_linear_plan Session::plan(uint32_t linear) const {
  auto plan = octavo::make<octavo_linear_plan>(OCTAVO_KIND_LINEAR_PLAN);
  calling(text("linear_plan of '", linears_[linear].name, "'"));
  const octavo_status status = backend().linear_plan(handle_, linear, &plan);
  expect(status == OCTAVO_OK, "linear_plan of '", linears_[linear].name, "' answered ",
         status_name(status), "; expected OCTAVO_OK after seal");
  expect(plan.size == sizeof plan && plan.kind == OCTAVO_KIND_LINEAR_PLAN, "linear_plan of '",
         linears_[linear].name, "' changed size or kind of the plan, which the caller sets");
  for (const auto &[field, extent] :
       {std::pair{"saved", &plan.saved}, std::pair{"forward_workspace", &plan.forward_workspace},
        std::pair{"backward_workspace", &plan.backward_workspace}})
    expect_extent(text(field, " of linear_plan of '", linears_[linear].name, "'"), *extent);
  expect(plan.weight_workspace <= kMostBytes, "linear_plan of '", linears_[linear].name, "' has ",
         plan.weight_workspace, " bytes of weight_workspace; expected at most ", kMostBytes);
  expect(plan.gradient != OCTAVO_GRADIENT_SLOT || optimizer() != nullptr, "linear_plan of '",
         linears_[linear].name,
         "' has its gradient in a slot, without an optimizer that reads it; "
         "expected OCTAVO_GRADIENT_TENSOR, or ",
         OCTAVO_OPTIMIZER_ID);
  return plan;
}

uint32_t declined_flag(uint32_t dtype) {
  if (dtype == OCTAVO_F32) return OCTAVO_LINEAR_DECLINES_F32;
  return dtype == OCTAVO_BF16 ? OCTAVO_LINEAR_DECLINES_BF16 : OCTAVO_LINEAR_DECLINES_F16;
}

uint32_t Session::taken(uint32_t linear, uint32_t dtype) const {
  const uint32_t declined = linears_[linear].plan.flags;
  for (const uint32_t d : {dtype, uint32_t{OCTAVO_F32}, uint32_t{OCTAVO_BF16}})
    if ((declined_flag(d) & declined) == 0 && (d == OCTAVO_F32 || kernels_.reads(d))) return d;
  return OCTAVO_F16;
}

std::optional<uint32_t> Session::find_slot(uint32_t role) const {
  for (const octavo_slot_use &use : uses(OCTAVO_OWNER_SESSION, 0)) {
    if (slots_[use.slot].desc.role == role) return use.slot;
  }
  return std::nullopt;
}

bool Session::is_native(uint32_t parameter, uint32_t role) const {
  for (const Slot &slot : slots_)
    if (slot.desc.role == role && slot.desc.owner_kind == OCTAVO_OWNER_PARAMETER &&
        slot.desc.owner == parameter)
      return (slot.desc.flags & OCTAVO_SLOT_NATIVE) != 0;
  return false;
}

bool Session::forward_reads(uint32_t linear, uint32_t role) const {
  for (const octavo_slot_use &use : uses(OCTAVO_OWNER_LINEAR, linear)) {
    const octavo_slot &slot = slots_[use.slot].desc;
    if (slot.role == role && slot.access[OCTAVO_VERB_FORWARD] == OCTAVO_ACCESS_READ) return true;
  }
  return false;
}

}  // namespace octavo::conformance
