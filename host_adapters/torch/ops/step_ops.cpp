// What runs once a step, as torch ops: end_step, and the verbs of optimizers and of gradient
// reduction.
#include <torch/csrc/stable/library.h>

#include <optional>

#include "host_adapters/torch/core/optimizer.h"
#include "host_adapters/torch/core/reduction.h"
#include "registry.h"
#include "tensors.h"

namespace octavo::ops {
namespace {

using std::optional;

void end_step(int64_t run) {
  const auto e = find(run);
  e->coupling.boundary(*e);
}

void optimizer_step(int64_t run, const Ids &parameters, const Ids &groups, const Tensor &hyper,
                    const optional<Tensor> &skip, const Tensors &weights,
                    const Tensors &gradients) {
  core::optimizer_step(*find(run), {parameters, views(weights), views(gradients)}, groups,
                       view(hyper), view(skip));
}

void sum_of_squares(int64_t run, const Ids &parameters, const Tensor &sum, const Tensors &weights,
                    const Tensors &gradients) {
  core::sum_of_squares(*find(run), {parameters, views(weights), views(gradients)}, view(sum));
}

void prepare_step(int64_t run, const Tensor &sum, const optional<Tensor> &nonfinite,
                  const optional<Tensor> &norm, const optional<Tensor> &skip, const Tensor &hyper,
                  double factor, double max_norm) {
  core::prepare_step(*find(run), view(sum), view(nonfinite), view(norm), view(skip), view(hyper),
                     factor, max_norm);
}

void read_parameter(int64_t run, int64_t parameter, int64_t role, const Tensor &plain) {
  core::read_parameter(*find(run), parameter, role, view(plain));
}

void write_parameter(int64_t run, int64_t parameter, int64_t role, const Tensor &plain) {
  core::write_parameter(*find(run), parameter, role, view(plain));
}

void run_stage(int64_t run, const Ids &parameters, int64_t stage, int64_t world, const Tensor &recv,
               const Tensor &send, const Tensor &state) {
  const auto e = find(run);
  core::check_buffers(*e, parameters, world, view(recv), view(send), view(state));
  core::run_stage(*e, parameters, stage, world, view(recv), view(send), view(state));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(octavo, m) {
  m.def("end_step(int run) -> ()");
  m.def(
      "optimizer_step(int run, int[] parameters, int[] groups, Tensor hyper, Tensor? skip, "
      "Tensor(a!)[] weights, Tensor[] gradients) -> ()");
  m.def(
      "sum_of_squares(int run, int[] parameters, Tensor(a!) sum, Tensor[] weights, Tensor[] "
      "gradients) -> ()");
  m.def(
      "prepare_step(int run, Tensor sum, Tensor? nonfinite, Tensor(a!)? norm, Tensor(b!)? skip, "
      "Tensor(c!) hyper, float factor, float max_norm) -> ()");
  m.def("read_parameter(int run, int parameter, int role, Tensor(a!) plain) -> ()");
  m.def("write_parameter(int run, int parameter, int role, Tensor plain) -> ()");
  m.def(
      "run_stage(int run, int[] parameters, int stage, int world, Tensor recv, Tensor(a!) send, "
      "Tensor(b!) state) -> ()");
}

namespace {

void implement(torch::stable::detail::StableLibrary &m) {
  m.impl("optimizer_step", TORCH_BOX(&optimizer_step));
  m.impl("sum_of_squares", TORCH_BOX(&sum_of_squares));
  m.impl("prepare_step", TORCH_BOX(&prepare_step));
  m.impl("read_parameter", TORCH_BOX(&read_parameter));
  m.impl("write_parameter", TORCH_BOX(&write_parameter));
  m.impl("run_stage", TORCH_BOX(&run_stage));
}

}  // namespace

OCTAVO_ON_EVERY_DEVICE(implement)

// It has no tensor from which torch could take a device.
STABLE_TORCH_LIBRARY_IMPL(octavo, CompositeExplicitAutograd, m) {
  m.impl("end_step", TORCH_BOX(&end_step));
}

}  // namespace octavo::ops
