// fence: every verb runs with slots, tensors, saved and workspaces in pages that only kernels open.
//
// This finds host reads of device memory on a machine without any device.
#include "all_checks.h"
#include "fence.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// Arms the fence during each verb of one host.
class FencedVerbs : public Host::Observer {
 public:
  explicit FencedVerbs(Host &host) : host_(host), fence_(host.arena()) {
    host_.session().kernels().set_fence(&fence_);
    host_.set_observer(this);
  }
  ~FencedVerbs() override {
    host_.set_observer(nullptr);
    host_.session().kernels().set_fence(nullptr);
  }

  void before(const std::string &) override { fence_.arm(); }
  void after(const std::string &what) override {
    const auto violation = fence_.disarm();
    if (!violation) return;
    violations_ += text(violations_.empty() ? "" : "; ", what, " touched ",
                        host_.arena().describe(*violation), " outside of every kernel");
  }
  // One line that names every verb which went over the fence.
  void finish() const { expect(violations_.empty(), violations_); }

 private:
  Host &host_;
  Fence fence_;
  std::string violations_;
};

}  // namespace

void need_optimizer(const Context &context) {
  if (context.target.optimizer == nullptr) {
    throw Skip(text("the backend has no ", OCTAVO_OPTIMIZER_ID));
  }
}

void check_fence(const Context &context) {
  Standard standard(context);
  Host &host = standard.host;
  FencedVerbs fence(host);
  for (int step = 0; step < 2; ++step) {
    host.quantize_weights();
    for (Batch &batch : host.batches()) {
      Call call;
      host.forward(batch, call);
      call.flags = OCTAVO_BACKWARD_SKIP_WEIGHT;
      host.backward(batch, call);
      call.flags = 0;
      call.record = false;
      call.want_dx = call.want_db = false;
      host.backward(batch, call);
      call.flags = OCTAVO_BACKWARD_OVERWRITE;
      host.backward(batch, call);
      call.save = false;
      host.forward(batch, call);
    }
    host.end_step();
  }
  fence.finish();
}

void check_fence_optimizer(const Context &context) {
  need_optimizer(context);
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  if (!host.has_optimizer()) throw Skip("no parameter has a slot that optimizer_step uses");
  auto *sum = reinterpret_cast<float *>(host.arena().allocate(sizeof(float), Use::kTensor, "sum"));
  std::vector<Matrix> plain;
  for (uint32_t id = 0; id < s.parameters().size(); ++id) {
    const ParameterSpec &spec = s.parameters()[id].spec;
    plain.push_back(make_matrix(host.arena(), text("plain '", spec.name, "'"), spec.rows, spec.cols,
                                OCTAVO_F32));
  }
  host.train_step();
  FencedVerbs fence(host);
  host.optimizer_step();
  host.optimizer_step(nullptr);
  std::vector<std::vector<void *>> lists;
  const auto items = host.items(lists);
  auto c = octavo::make<octavo_norm_call>(OCTAVO_KIND_NORM_CALL);
  c.items = items.data();
  c.count = items.size();
  c.sum = sum;
  c.workspace = host.optimizer_workspace();
  host.run(OCTAVO_VERB_OPTIMIZER_STEP, "sum_of_squares",
           [&] { return s.optimizer()->sum_of_squares(s.handle(), &c); });
  for (const octavo_parameter_item &item : items) {
    Matrix &m = plain[item.parameter];
    host.parameter_call(false, item.parameter, OCTAVO_ROLE_WEIGHT, m);
    host.parameter_call(true, item.parameter, OCTAVO_ROLE_WEIGHT, m);
  }
  fence.finish();
}

}  // namespace octavo::conformance
