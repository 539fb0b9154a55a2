// Looking at runs with any number, handles that are null, and what stands beside runs.
#include "machine.h"
#include "octavo/draft/reduction.h"

namespace octavo::fuzz {

void Machine::look() {
  const OpenRun &r = any_run();
  if (r.run == nullptr) return;
  const uint32_t slots = octavo_run_slot_count(r.run);
  const uint32_t id = script_.id();
  const octavo_slot *slot = octavo_run_slot(r.run, id);
  expect((slot != nullptr) == (id < slots), "a slot for every id below the count",
         std::to_string(id));
  if (slot != nullptr) {
    expect(slot->id == id && slot->rows > 0 && slot->cols > 0, "a whole slot", std::to_string(id));
    size_t bytes = slot->name.size;
    for (int64_t i = 0; slot->labels != nullptr && i < slot->cols; ++i)
      bytes += slot->labels[i].size;
    expect(bytes < (1 << 20), "names that can be read");
  }
  const uint32_t kind = script_.id();
  const uint32_t owner = script_.id();
  const uint32_t uses = octavo_run_use_count(r.run, kind, owner);
  const uint32_t index = script_.id();
  const octavo_slot_use *use = octavo_run_use(r.run, kind, owner, index);
  expect((use != nullptr) == (index < uses), "a use for every index below the count",
         std::to_string(index));
  expect(use == nullptr || use->slot < slots, "a use of a slot that is there");
  const octavo_linear_plan *plan = octavo_run_plan(r.run, script_.id());
  expect(plan == nullptr || plan->saved.row_multiple >= 1, "a plan that can be computed with");
  expect(!view(octavo_run_precision(r.run)).empty(), "a precision");
  const bool has_backend = octavo_run_backend(r.run) != nullptr;
  expect(has_backend == !view(octavo_run_backend_id(r.run)).empty(), "a backend has an id");
  expect(has_backend == (octavo_run_session(r.run) != nullptr), "a backend has a session");
  expect(has_backend == (octavo_run_session_desc(r.run) != nullptr),
         "and was told what it runs on");
}

// Handles that name nothing: null, or one that was closed. Functions that answer with a status say
// OCTAVO_INVALID or OCTAVO_WRONG_STATE, the others nothing at all.
void Machine::no_handles() {
  octavo_run *run = nullptr;
  octavo_store *store = nullptr;
  octavo_status expected = OCTAVO_INVALID;
  if (closed_run_ != nullptr && closed_store_ != nullptr && script_.below(2) == 1) {
    run = closed_run_;
    store = closed_store_;
    expected = OCTAVO_WRONG_STATE;
  }
  const auto refused = [&](octavo_status status) {
    expect(status == expected, "a typed refusal of a handle that names nothing",
           std::to_string(status) + ", expected " + std::to_string(expected));
  };
  uint32_t id = 0;
  uint64_t bytes = 0;
  octavo_parameter_desc parameter{};
  parameter.size = sizeof(parameter);
  octavo_linear_desc linear{};
  linear.size = sizeof(linear);
  octavo_store *other = nullptr;
  void *const nothing = nullptr;
  switch (script_.below(6)) {
    case 0:
      refused(octavo_report(run, str("text"), &Host::line, &host_));
      refused(octavo_add_parameter(run, &parameter, nullptr, &id));
      refused(octavo_add_linear(run, &linear, nullptr, &id));
      refused(octavo_seal(run));
      break;
    case 1:
      expect(octavo_run_slot_count(run) == 0 && octavo_run_slot(run, 0) == nullptr, "no slots");
      expect(octavo_run_use_count(run, 1, 0) == 0 && octavo_run_use(run, 1, 0, 0) == nullptr,
             "no uses");
      expect(octavo_run_plan(run, 0) == nullptr, "no plan");
      break;
    case 2:
      expect(octavo_run_backend(run) == nullptr &&
                 static_cast<const octavo_optimizer *>(
                     octavo_run_interface(run, OCTAVO_STR(OCTAVO_OPTIMIZER_ID))) == nullptr,
             "no backend");
      expect(static_cast<const octavo_gradients *>(
                 octavo_run_interface(run, OCTAVO_STR(OCTAVO_GRADIENTS_ID))) == nullptr &&
                 static_cast<const octavo_fused *>(
                     octavo_run_interface(run, OCTAVO_STR(OCTAVO_FUSED_ID))) == nullptr,
             "no tables");
      expect(octavo_run_session(run) == nullptr, "no session");
      expect(octavo_run_session_desc(run) == nullptr, "nor what it runs on");
      expect(octavo_run_precision(run).size == 0 && octavo_run_backend_id(run).size == 0,
             "no names");
      expect(octavo_run_plugin(run) == nullptr && octavo_run_slot_key(run, 0).size == 0,
             "no plugin and no key");
      expect(octavo_run_setting(run, str("fp8.backend")) == nullptr &&
                 octavo_run_option_count(run, OCTAVO_NONE) == 0 &&
                 octavo_run_option(run, OCTAVO_NONE, 0) == nullptr,
             "no settings and no options");
      break;
    case 3:
      refused(octavo_store_open(run, &other));
      refused(octavo_store_open_sharded(run, 0, 1, &other));
      refused(octavo_store_over(run, &nothing, nullptr, &other));
      refused(octavo_store_extend(store));
      refused(octavo_store_native(store, 0, 1, nullptr));
      refused(octavo_store_clear(store, 1));
      refused(octavo_store_save(store, str("x"), 1));
      refused(octavo_store_load(store, str("x"), &bytes));
      refused(octavo_store_reduce(store, nullptr, nullptr));
      refused(octavo_store_publish(store, nullptr, nullptr));
      break;
    case 4:
      expect(octavo_store_owner(store, 0) == OCTAVO_NONE, "no owner");
      expect(octavo_store_slots(store, 0, 1, 0) != nullptr, "a list is never null");
      expect(octavo_store_address(store, 0) == nullptr && octavo_store_bytes(store, 0) == 0,
             "no memory");
      break;
    default:
      refused(octavo_reduction_bytes(run, &id, 1, 1, &bytes, &bytes));
      refused(
          octavo_reduce_gradients(run, nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr));
      octavo_close(run);
      octavo_store_close(store);
      if (run != nullptr) break;
      refused(octavo_open(nullptr, nullptr));
      refused(octavo_threads_open(1, nullptr));
      refused(octavo_ranks_open(1, nullptr));
      expect(octavo_threads_parallel(nullptr) == nullptr, "no pool");
      expect(octavo_ranks_collective(nullptr, 0) == nullptr, "no ranks");
      octavo_ranks_abort(nullptr);
      octavo_threads_close(nullptr);
      octavo_ranks_close(nullptr);
  }
}

void Machine::threads() {
  octavo_threads *t = nullptr;
  const uint32_t count =
      script_.defect(1) != 0 ? 4097 + script_.word() % 1000 : 1 + script_.below(2);
  const octavo_status status = octavo_threads_open(count, &t);
  expect(status == (count > 4096 ? OCTAVO_INVALID : OCTAVO_OK),
         "a pool, or a count that is too large", std::to_string(count));
  if (t == nullptr) return;
  const octavo_parallel *parallel = octavo_threads_parallel(t);
  int64_t sum = 0;
  const int64_t end = script_.byte();
  // The sum is exact on one thread; with two, the ranges only have to cover it.
  const octavo_status ran = parallel->parallel_for(
      parallel->ctx, 0, end, 1 + script_.byte(),
      [](void *arg, int64_t first, int64_t last) {
        __atomic_fetch_add(static_cast<int64_t *>(arg), last - first, __ATOMIC_RELAXED);
      },
      &sum);
  expect(ran == OCTAVO_OK && sum == end, "every index once", std::to_string(sum));
  octavo_threads_close(t);
}

}  // namespace octavo::fuzz
