// A sealed run as the verbs see it: pointer lists, plans, names, and the coupling of its weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coupling.h"
#include "octavo/draft/gradients.h"
#include "octavo/octavo.h"

namespace octavo::core {

// A position of a pointer list that torch's own tensor takes: a weight or a gradient.
struct Native {
  uint32_t at;
  uint32_t role;  // OCTAVO_ROLE_...
  uint32_t dtype;
  int64_t elements;
  bool is_written;
};

// A position of a pointer list that a slot takes: where in it the object's part begins.
struct Position {
  uint32_t slot = OCTAVO_NONE;  // OCTAVO_NONE: not accessed, or native
  uint64_t offset = 0;          // bytes
};

// The pointer list of one object for one verb, as far as it is the same in each call.
struct List {
  std::vector<Position> slots;
  std::vector<uint32_t> accumulators;  // positions that are null when nothing is recorded
  std::vector<uint32_t> statistics;    // of these: those of telemetry
  std::vector<Native> natives;

  // The native position of a role; null when the verb does not access it.
  const Native *native(uint32_t role) const;
};

constexpr size_t kVerbs = 6;  // OCTAVO_VERB_... and their number

struct ObjectLists {
  List verbs[kVerbs];  // by OCTAVO_VERB_...
};

// What the host knows about a linear in addition to the backend's plan.
struct LinearShape {
  octavo_str name;
  int64_t n = 0;
  int64_t k = 0;
  uint32_t gradient_dtype = 0;
  uint32_t parameter = OCTAVO_NONE;
};

// What it knows about a parameter.
struct ParameterShape {
  octavo_str name;
  uint32_t transposed = 0;  // torch's shape is [K, N]
};

// Where a run's tensors are, in torch's numbers.
struct Device {
  int32_t type = 0;
  int32_t index = 0;
  bool has_graphs = false;  // CUDA graphs: of a run on kernels for NVIDIA GPUs
};

// What a call does with the slots of a run that calls on other streams read or write.
enum class Uses { kNothing, kReads, kWrites };

// A program may run a model on several streams, each behind what torch's tensors need. Of the codes
// and scales it knows nothing: a call on one stream waits here for the device where it would meet
// what was queued on another. Accumulators meet in any order. Calls of a captured graph are in its
// order. On one stream nothing waits.
class StreamOrder {
 public:
  // memory: null where calls run at once.
  void open(const octavo_memory *memory, void *ctx) { memory_ = memory, ctx_ = ctx; }
  // Before a call.
  void enter(const Device &device, void *stream, Uses uses) {
    if (memory_ == nullptr || uses == Uses::kNothing) return;
    const void *wrote = wrote_.load(std::memory_order_relaxed);
    const void *read = read_.load(std::memory_order_relaxed);
    const bool writes = uses == Uses::kWrites;
    if ((wrote != kNone && wrote != stream) || (writes && read != kNone && read != stream))
      wait(device);
    if (writes)
      wrote_.store(stream, std::memory_order_relaxed);
    else
      read_.store(read == kNone || read == stream ? stream : kSeveral, std::memory_order_relaxed);
  }

 private:
  void wait(const Device &device);

  static constexpr char kMarks[2] = {};
  static constexpr const void *kNone = &kMarks[0];     // since the last wait
  static constexpr const void *kSeveral = &kMarks[1];  // streams
  const octavo_memory *memory_ = nullptr;
  void *ctx_ = nullptr;
  std::atomic<const void *> wrote_ = kNone, read_ = kNone;
};

// What a host gives; octavo_torch_register takes it from the Python package (ops.Registration).
struct Registration {
  octavo_run *run;
  const ParameterShape *parameters;
  const LinearShape *linears;
  SharedFlags flags;
  Callbacks callbacks;
  uint32_t parameter_count, linear_count;
  octavo_str device;  // "cpu", "cuda:1"
};

// A sealed run. All but the coupling and the counters is constant once the slots are held.
struct Entry {
  octavo_run *run = nullptr;
  const octavo_backend *backend = nullptr;
  const octavo_optimizer *optimizer = nullptr;
  const octavo_gradients *gradients = nullptr;
  const octavo_fused *fused = nullptr;
  const octavo_shard *shard = nullptr;
  octavo_session *session = nullptr;
  uint32_t nonfinite = OCTAVO_NONE;  // the slot of this role, on the CPU
  Device device;
  ObjectLists session_lists;
  std::vector<ObjectLists> parameters;
  std::vector<ObjectLists> linears;
  std::vector<LinearShape> shapes;
  std::vector<octavo_linear_plan> plans;
  std::vector<std::string> parameter_names, linear_names;
  std::vector<uint8_t> transposed;             // by parameter
  std::vector<uint64_t> weight_workspace;      // by parameter: the largest of its linears
  std::vector<octavo_extent> fused_workspace;  // by linear; row_multiple 0: cannot be fused
  std::vector<Owned> slots;                    // by slot; none: native
  // By parameter, of plan_shard: setup alone changes them; packet_bytes 0: none yet.
  mutable std::vector<octavo_shard_plan> shard_plans;
  mutable Coupling coupling;
  mutable StreamOrder order;
  mutable std::atomic<uint64_t> calls[kVerbs] = {};  // verbs that ran, by OCTAVO_VERB_...
  // By linear: forward calls.
  std::unique_ptr<std::atomic<uint64_t>[]> forwards;

  // "linear up.0": for messages.
  std::string name(uint32_t owner_kind, int64_t owner) const;
  // The stream that calls run on, see stream.h.
  void *stream() const;
  // The tensor of a slot, which each call asks for its memory: it may move between calls, and may
  // be released while no verb needs it. Setup. Throws for a slot that the run does not have, and
  // for a tensor without its bytes.
  void hold(uint32_t slot, View tensor);
  // Where a position is now; null: not accessed, native, or released.
  void *address(const Position &at) const {
    if (at.slot == OCTAVO_NONE) return nullptr;
    void *data = slots[at.slot].mutable_data();
    return data == nullptr ? nullptr : static_cast<char *>(data) + at.offset;
  }
};

// All is copied but the run and the flags, which must outlive the entry.
// Throws for native slots other than weights and gradients of parameters. Setup.
std::unique_ptr<Entry> make_entry(const Registration &given);

// The list of one object; throws when the id is out of range.
const List &list_of(const Entry &e, uint32_t verb, uint32_t owner_kind, int64_t owner);

}  // namespace octavo::core
