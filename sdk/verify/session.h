// A session of the backend under test, and all that its setup verbs said.
//
// The session runs on the wrapped kernels table. Refusals are part of the answer: what the backend
// declines stays out of the model, and only a model without any linear is a failure.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conformance.h"
#include "lent.h"
#include "wrapped_kernels.h"

namespace octavo::conformance {

struct ParameterSpec {
  std::string name;
  int64_t rows;
  int64_t cols;
  uint32_t flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
  uint32_t dtype = OCTAVO_F32;
  uint32_t gradient_dtype = OCTAVO_F32;
};
struct LinearSpec {
  std::string name;
  std::string weight;
};
struct Model {
  std::vector<ParameterSpec> parameters;
  std::vector<LinearSpec> linears;
};
// Awkward shapes, a tied weight, a frozen one, a vector without a linear.
Model standard_model();
// What a second seal adds to the standard model: a layer, and a late linear on an old weight.
Model late_model();

struct Slot {
  octavo_slot desc;  // name and labels are in the members below
  std::string name;
  std::vector<std::string> labels;
};
struct Parameter {
  ParameterSpec spec;
  std::vector<uint32_t> linears;
};
struct Linear {
  std::string name;
  uint32_t weight;
  octavo_linear_plan plan{};
};

class Session {
 public:
  // `tail`: bytes that every description has behind the fields of this minor version.
  explicit Session(const Context &context, uint32_t tail = 0);
  ~Session();
  Session(const Session &) = delete;
  Session &operator=(const Session &) = delete;

  // Adds what the backend accepts, which must be a linear unless it may decline all of them. `seal`
  // too reads the plans of the new linears.
  void add(const Model &model, bool may_decline = false);
  void seal();
  // The raw verbs, for checks of refusals; a success is entered into the lists below.
  octavo_status add_parameter(octavo_parameter_desc desc, octavo_verdict *verdict, uint32_t *id);
  octavo_status add_linear(octavo_linear_desc desc, octavo_verdict *verdict, uint32_t *id);
  // Fails unless the session's host was told why a call answered this.
  void expect_reported(octavo_status status, const std::string &what);
  // Reports of any code since the last call of this function.
  uint32_t take_reports() { return host_.take_all(); }

  const octavo_backend &backend() const { return *context_.target.backend; }
  const octavo_optimizer *optimizer() const { return context_.target.optimizer; }
  octavo_session *handle() const { return handle_; }
  const Context &context() const { return context_; }
  WrappedKernels &kernels() { return kernels_; }
  const WrappedKernels &kernels() const { return kernels_; }

  const std::vector<Parameter> &parameters() const { return parameters_; }
  const std::vector<Linear> &linears() const { return linears_; }
  const std::vector<Slot> &slots() const { return slots_; }
  // In order of emission; empty when the object has none.
  const std::vector<octavo_slot_use> &uses(uint32_t owner_kind, uint32_t owner) const;
  // The id of the named linear, or nothing when the backend declined it.
  std::optional<uint32_t> find_linear(const std::string &name) const;
  std::optional<uint32_t> find_parameter(const std::string &name) const;
  octavo_linear_plan plan(uint32_t linear) const;
  // The dtype if the kernels read it and the linear's plan does not decline it, or another one that
  // is so.
  uint32_t taken(uint32_t linear, uint32_t dtype) const;
  // The session slot of this role, or nothing.
  std::optional<uint32_t> find_slot(uint32_t role) const;
  // Whether the parameter's slot of this role is the host's own tensor; false: it has none.
  bool is_native(uint32_t parameter, uint32_t role) const;
  // Whether a slot of this role stands in the linear's list with READ access in forward.
  bool forward_reads(uint32_t linear, uint32_t role) const;
  const std::string &declined() const { return declined_; }  // "wide: too small; ..."

 private:
  static octavo_status take_slot(void *ctx, const octavo_slot *slot);
  static octavo_status take_use(void *ctx, const octavo_slot_use *use);

  Context context_;
  uint32_t tail_;
  WrappedKernels kernels_;
  HostWatch host_;
  std::deque<Lent> lent_;
  octavo_session *handle_ = nullptr;
  std::vector<Parameter> parameters_;
  std::vector<Linear> linears_;
  std::vector<Slot> slots_;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<octavo_slot_use>> uses_;
  std::string declined_;
  std::string sink_error_;  // the first malformed emission of a seal
  size_t planned_ = 0;
};

// The flag of a plan that declines this dtype.
uint32_t declined_flag(uint32_t dtype);
// Fails when a host could not compute with the extent, or not allocate a single block of rows.
void expect_extent(const std::string &what, const octavo_extent &extent);

}  // namespace octavo::conformance
