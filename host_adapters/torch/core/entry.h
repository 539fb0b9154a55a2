// A sealed run as the verbs see it: pointer lists, plans, names, and the coupling of its weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coupling.h"
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

// The pointer list of one object for one verb, as far as it is the same in each call.
struct List {
  std::vector<void *> slots;           // null: not accessed, or native
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
};

// What a host gives; octavo_torch_register takes it from the Python package (ops.Registration).
struct Registration {
  octavo_run *run;
  void *const *slots;  // by slot id; null: native
  const ParameterShape *parameters;
  const LinearShape *linears;
  SharedFlags flags;
  Callbacks callbacks;
  uint32_t parameter_count, linear_count;
  octavo_str device;  // "cpu", "cuda:1"
};

// An address in a list that is that of a slot, or inside of it.
struct Place {
  void **address;
  size_t offset;
};

// A sealed run. All but the coupling, the counters and the addresses of slots that move is
// constant.
struct Entry {
  octavo_run *run = nullptr;
  const octavo_backend *backend = nullptr;
  const octavo_optimizer *optimizer = nullptr;
  const octavo_gradients *gradients = nullptr;
  const octavo_fused *fused = nullptr;
  const octavo_shard *shard = nullptr;
  octavo_session *session = nullptr;
  float *nonfinite = nullptr;  // the slot of this role, on the CPU; null on other devices
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
  std::vector<std::vector<Place>> places;      // by slot
  // By parameter, of plan_shard: setup alone changes them; packet_bytes 0: none yet.
  mutable std::vector<octavo_shard_plan> shard_plans;
  mutable Coupling coupling;
  mutable std::atomic<uint64_t> calls[kVerbs] = {};  // verbs that ran, by OCTAVO_VERB_...
  // By linear: forward calls.
  std::unique_ptr<std::atomic<uint64_t>[]> forwards;

  // "linear up.0": for messages.
  std::string name(uint32_t owner_kind, int64_t owner) const;
  // The stream that calls run on, see stream.h.
  void *stream() const;
  // The memory of a slot is elsewhere from now on; null: it is released, and no verb may need it.
  // While nothing runs that uses the slot. Throws for a slot that the run does not have.
  void move(uint32_t slot, void *address);
};

// All is copied but the run, the memory of its slots and the flags, which must outlive the entry.
// Throws for native slots other than weights and gradients of parameters. Setup.
std::unique_ptr<Entry> make_entry(const Registration &given);

// The list of one object; throws when the id is out of range.
const List &list_of(const Entry &e, uint32_t verb, uint32_t owner_kind, int64_t owner);

}  // namespace octavo::core
