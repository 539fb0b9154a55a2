// abilities: what the kernels decline is not called; the backend says so before it trains.
#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

// Steps and an evaluation, in every dtype that the plans take.
void use(Host &host) {
  for (int step = 0; step < 2; ++step) host.train_step();
  host.quantize_weights();
  Call evaluation;
  evaluation.evaluates = true;
  evaluation.save = false;
  for (Batch &batch : host.batches()) host.forward(batch, evaluation);
}

void try_without(const Context &whole, const Lacking &lacking) {
  const Context context{whole.target, whole.seed, whole.alignment, lacking};
  if (!declined_reason(context).empty()) return;
  Session session(context);
  session.add(standard_model(), true);
  if (session.linears().empty()) return;
  session.seal();
  Host host(session, context.seed);
  host.add_standard_batches();
  use(host);
}

}  // namespace

void check_abilities(const Context &context) {
  WrappedKernels::Made made;
  {
    Standard standard(context);
    use(standard.host);
    made = standard.session.kernels().made();
  }
  uint32_t before = 0;
  for (const Lacking &call : made) {
    step(text("kind ", call.call));
    if (call.dtype != 0) try_without(context, call);
    if (call.call != before) try_without(context, {call.call, true});
    before = call.call;
  }
}

}  // namespace octavo::conformance
