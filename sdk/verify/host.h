// A small host: it owns the memory of one model over a session and calls the verbs in order.
//
// Two hosts over one session that add the same batches have arenas of the same layout; that is how
// checks compare what should be equal. Every call is followed by a look at the red zones and at the
// rules that the wrapped kernels watch.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "matrix.h"
#include "session.h"

namespace octavo::conformance {

// Where one position of a pointer list points to.
struct Entry {
  uint32_t slot;
  uint8_t access;  // OCTAVO_ACCESS_... of the verb
  uint8_t *address;
  uint64_t bytes;
};

struct BatchSpec {
  uint32_t linear = 0;
  int64_t rows = 0;
  uint64_t seed = 0;
  uint32_t x_dtype = OCTAVO_F32;
  uint32_t y_dtype = OCTAVO_F32;
  int64_t gap = 0;     // elements between the rows of x, y, dy and dx
  uint64_t slack = 0;  // bytes that saved and workspaces have beyond the plan
  // 0: bias, dy as y, dx as x, db f32.
  uint32_t bias_dtype = 0, dy_dtype = 0, dx_dtype = 0, db_dtype = 0;
};

// The buffers of one forward and its backward.
struct Batch {
  BatchSpec spec;
  Matrix x, y, bias, dy, dx, db;
  Matrix dw;  // the parameter's gradient; `data` is null when plan.gradient is not TENSOR
  uint8_t *saved;
  uint8_t *forward_workspace;
  uint8_t *backward_workspace;
  std::string name;
};

// Accumulators outside of the slots: slot id -> memory of the same size.
using Accumulators = std::map<uint32_t, uint8_t *>;
struct Call {
  bool record = true;                   // false: null for every ACCUMULATE slot
  const Accumulators *own = nullptr;    // used instead of the slots
  bool save = true;                     // forward: false passes null for `saved`
  bool evaluates = false;               // forward: with OCTAVO_FORWARD_EVALUATION
  bool want_dx = true, want_db = true;  // backward
  uint32_t flags = 0;                   // backward
  octavo_tensor *no_dw = nullptr;       // backward: given for a weight that has no gradient
  octavo_tensor *no_x = nullptr;        // backward: given where the plan does not ask for x
  bool later = false;  // as a host of a later minor: a longer struct, and a flag that is unknown
  octavo_status expected = OCTAVO_OK;
};
// As Call::expected: every status but OCTAVO_OK.
constexpr octavo_status kAnyFailure = 0xFFFFFFFF;

class Host {
 public:
  // `shift`: of the arena.
  Host(Session &session, uint64_t seed, uint64_t shift = 0);

  // Allocates what a later seal emitted and fills the new weights.
  void extend();
  Batch &add_batch(const BatchSpec &spec);
  // Two batches of every linear, of different sizes and dtypes, as far as the kernels have them.
  void add_standard_batches();

  void quantize_weight(uint32_t parameter, const Call &call = {});
  void quantize_weights();
  void forward(Batch &batch, const Call &call = {});
  void backward(Batch &batch, const Call &call = {});
  void end_step(const Call &call = {});
  bool has_optimizer() const;  // whether there is anything for optimizer_step to do
  void optimizer_step(const float *skip);
  void optimizer_step() { optimizer_step(nonfinite()); }
  void clear_gradients();  // the host's tensors and the gradient slots
  // All of the above over every batch, in call order.
  void train_step();

  std::vector<Entry> entries(uint32_t verb, uint32_t owner_kind, uint32_t owner) const;
  // Accumulators for one caller, all 0.
  Accumulators make_accumulators(const std::string &name);
  // dw as values, whoever receives it.
  std::vector<double> gradient(uint32_t parameter);
  float *nonfinite() const;  // null when no slot has this role

  Session &session() const { return session_; }
  Arena &arena() { return arena_; }
  std::deque<Batch> &batches() { return batches_; }
  uint8_t *address(uint32_t slot) const { return addresses_[slot]; }
  uint64_t bytes(uint32_t slot) const;
  void reset_slot(uint32_t slot);  // to its initial value
  // Every slot that is not native to another place, and back in the next call; nothing is left
  // behind.
  void move_slots();
  std::string slot_name(uint32_t slot) const;
  Matrix &weight(uint32_t parameter) { return weights_[parameter]; }
  Matrix &dw(uint32_t parameter) { return gradients_[parameter]; }
  float *hyper() const { return hyper_; }
  uint8_t *optimizer_workspace() const { return optimizer_workspace_; }
  // Every parameter that the optimizer steps; `lists` holds what the items point to.
  std::vector<octavo_parameter_item> items(std::vector<std::vector<void *>> &lists) const;
  // Fills the slots from the weight tensor when the backend keeps its own form of it.
  void write_weight(uint32_t parameter);
  // read_parameter or write_parameter.
  void parameter_call(bool write, uint32_t parameter, uint32_t role, Matrix &plain);

  // Runs around every verb: arms the fence, blames the verb for what happened in it.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void before(const std::string &what) = 0;
    virtual void after(const std::string &what) = 0;
  };
  // While several threads call verbs, red zones are looked at by none of them.
  void set_concurrent(bool concurrent) { concurrent_ = concurrent; }
  void set_observer(Observer *observer) { observer_ = observer; }
  // Calls a verb that must succeed. `verb` is the index under which formats are recorded.
  void run(uint32_t verb, const std::string &what, const std::function<octavo_status()> &call,
           const Batch *batch = nullptr, octavo_status expected = OCTAVO_OK);

  // The addresses to pass in a call.
  std::vector<void *> list(uint32_t verb, uint32_t owner_kind, uint32_t owner,
                           const Call &call) const;

 private:
  void allocate_slot(uint32_t id);
  uint32_t region_role(uint32_t id) const;
  void allocate_parameter(uint32_t id);

  Session &session_;
  uint64_t seed_;
  Arena arena_;
  std::vector<uint8_t *> addresses_, elsewhere_;
  std::vector<Matrix> weights_, gradients_;
  std::vector<uint8_t *> weight_workspaces_;
  std::vector<uint64_t> weight_workspace_bytes_;
  std::deque<Batch> batches_;
  float *hyper_;
  uint8_t *optimizer_workspace_ = nullptr;
  Observer *observer_ = nullptr;
  bool concurrent_ = false;
};

// A session with the standard model, sealed, and a host with its standard batches.
struct Standard {
  explicit Standard(const Context &context);

  Session session;
  Host host;
};

uint64_t extent_bytes(const octavo_extent &extent, int64_t rows);

}  // namespace octavo::conformance
