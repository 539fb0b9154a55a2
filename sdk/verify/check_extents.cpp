// extents: the sizes that linear_plan states, measured; and calls without any row.
//
// Buffers are larger than stated, so that a write behind the end is seen with its distance instead
// of as damage. Written bytes are those that change under two complementary fillings.
#include <algorithm>
#include <cstring>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr uint64_t kSlack = 4096;

// The three buffers of a batch whose size depends on M, filled before and looked at after a call.
class Marks {
 public:
  Marks(const Batch &batch, const octavo_linear_plan &plan) {
    const int64_t m = batch.spec.rows;
    buffers_[0] = {"saved", batch.saved, extent_bytes(plan.saved, m), 0, {}};
    buffers_[1] = {"forward_workspace",
                   batch.forward_workspace,
                   extent_bytes(plan.forward_workspace, m),
                   0,
                   {}};
    buffers_[2] = {"backward_workspace",
                   batch.backward_workspace,
                   extent_bytes(plan.backward_workspace, m),
                   0,
                   {}};
  }

  struct Buffer {
    const char *name;
    uint8_t *memory;
    uint64_t stated;
    uint64_t high;  // bytes through the last one that was written
    std::vector<uint8_t> filling;
  };

  void before(uint8_t pattern) {
    for (Buffer &b : buffers_) {
      b.filling.assign(b.stated + kSlack, pattern);
      std::memcpy(b.memory, b.filling.data(), b.filling.size());
    }
  }
  void after() {
    for (Buffer &b : buffers_) {
      for (uint64_t at = b.filling.size(); at > b.high; --at) {
        if (b.memory[at - 1] == b.filling[at - 1]) continue;
        b.high = at;
        break;
      }
    }
  }
  const Buffer *begin() const { return buffers_; }
  const Buffer *end() const { return buffers_ + 3; }

 private:
  Buffer buffers_[3];
};

void measure(const Context &context, const Model &model, const std::vector<int64_t> &sizes) {
  Session s(context);
  s.add(model);
  s.seal();
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    Host host(s, context.seed);
    host.quantize_weights();
    for (const int64_t m : sizes) {
      const octavo_linear_plan plan = s.plan(id);
      Batch &batch = host.add_batch(
          {id, m, mix(context.seed, static_cast<uint64_t>(m)), OCTAVO_F32, OCTAVO_F32, 0, kSlack});
      Marks marks(batch, plan);
      for (const uint8_t pattern : {uint8_t{0x5A}, uint8_t{0xA5}}) {
        marks.before(pattern);
        host.forward(batch);
        host.backward(batch);
        // Alone, where codes that `saved` has otherwise may go to the workspace.
        Call alone;
        alone.save = false;
        if (m % 256 == 0) {  // the others have room to spare
          host.forward(batch, alone);
          alone.evaluates = true;
          host.forward(batch, alone);
        }
        marks.after();
      }
      for (const Marks::Buffer &b : marks) {
        expect(b.high <= b.stated, b.name, " of ", batch.name, ": the plan states ", b.stated,
               " bytes, but byte ", b.high - 1, " was written");
      }
      const Marks::Buffer &saved = *marks.begin();
      expect(saved.high == saved.stated, "saved of ", batch.name, ": the plan states ",
             saved.stated, " bytes, but only the first ", saved.high,
             " are written; every byte must be, and the formula must be exact");
    }
  }
}

}  // namespace

void check_extents(const Context &context) {
  std::vector<int64_t> sizes;
  for (int64_t m = 0; m <= 33; ++m) sizes.push_back(m);
  // Multiples of 256 leave nothing of a plan that is affine over so many rows unused.
  for (const int64_t m : {100, 256, 1000}) sizes.push_back(m);
  measure(context, standard_model(), sizes);
  // N above and M on both sides of it: the larger of two workspaces is no affine function of M, and
  // a backend that states it as one from two small M is found out here.
  measure(context, {{{"tall", 300, 64}}, {{"tall", "tall"}}}, {1024});
}

void check_empty(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  host.quantize_weights();
  for (Batch &batch : host.batches()) host.forward(batch);
  for (Batch &batch : host.batches()) host.backward(batch);
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    const uint32_t weight = s.linears()[id].weight;
    Batch &batch = host.add_batch({id, 0, context.seed});
    const std::vector<double> gradient = host.gradient(weight);
    const std::vector<double> db = values_of(batch.db);
    const Snapshot before = host.arena().snapshot();
    const auto unchanged = [&](const char *what) {
      for (uint32_t slot = 0; slot < s.slots().size(); ++slot) {
        const octavo_slot &d = s.slots()[slot].desc;
        const uint8_t access =
            std::max(d.access[OCTAVO_VERB_FORWARD], d.access[OCTAVO_VERB_BACKWARD]);
        if (access != OCTAVO_ACCESS_ACCUMULATE) continue;
        const auto begin =
            before.begin() + static_cast<int64_t>(host.arena().offset(host.address(slot)));
        expect(std::equal(host.address(slot), host.address(slot) + host.bytes(slot), begin), what,
               " of ", batch.name, " changed ", host.slot_name(slot),
               "; no row, nothing to record");
      }
    };
    host.forward(batch);
    unchanged("linear_forward");
    host.backward(batch);
    unchanged("linear_backward");
    if (s.linears()[id].plan.gradient == OCTAVO_GRADIENT_NONE) continue;
    expect(host.gradient(weight) == gradient, "linear_backward of ", batch.name,
           " without rows changed an accumulated dw");
    expect(values_of(batch.db) == db, "linear_backward of ", batch.name,
           " without rows changed an accumulated db");
    fill(batch.db, context.seed, 1);
    Call overwrite;
    overwrite.flags = OCTAVO_BACKWARD_OVERWRITE;
    host.backward(batch, overwrite);
    unchanged("linear_backward");
    const auto expect_zero = [&](const std::vector<double> &values) {
      for (const double value : values)
        expect(!(value < 0) && !(value > 0), "linear_backward of ", batch.name,
               " with OVERWRITE left ", value, " in dw or db; without rows they are 0");
    };
    std::vector<double> all = host.gradient(weight);
    const std::vector<double> bias = values_of(batch.db);
    all.insert(all.end(), bias.begin(), bias.end());
    expect_zero(all);
    fill(batch.db, context.seed, 1);
    overwrite.flags |= OCTAVO_BACKWARD_SKIP_WEIGHT;
    overwrite.want_dx = false;
    host.backward(batch, overwrite);
    expect_zero(values_of(batch.db));
  }
}

}  // namespace octavo::conformance
