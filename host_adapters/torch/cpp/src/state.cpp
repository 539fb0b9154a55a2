// Checkpoints of a prepared model: liboctavo writes and reads the slots, and with them, as the
// bytes of one archive of torch::serialize, what torch keeps.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/serialize/archive.h>

#include <sstream>

#include "host_adapters/torch/core/error.h"
#include "host_adapters/torch/core/host.h"
#include "in_slots.h"
#include "prepared.h"
#include "random_state.h"
#include "run.h"

namespace octavo::torch {
namespace {

using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

// By slot; undefined: no part of a checkpoint.
using SavedSlots = std::vector<at::Tensor>;

SavedSlots saved_slots(const Run &run) {
  SavedSlots saved(run.memory().size());
  for (uint32_t id = 0; id < saved.size(); ++id)
    if ((octavo_run_slot(run.handle(), id)->flags & OCTAVO_SLOT_CHECKPOINT) != 0)
      saved[id] = run.memory().tensor(id);
  return saved;
}

struct CloseStore {
  void operator()(octavo_store *s) const { octavo_store_close(s); }
};
using StorePointer = std::unique_ptr<octavo_store, CloseStore>;

// A store over these tensors, with what torch's stream still does to them done.
StorePointer store_over(const Run &run, const SavedSlots &slots, octavo_str *more) {
  at::zeros({1}, at::TensorOptions(run.device())).cpu();
  std::vector<void *> addresses(slots.size() + 1);
  for (size_t id = 0; id < slots.size(); ++id)
    if (slots[id].defined()) addresses[id] = slots[id].data_ptr();
  octavo_store *store = nullptr;
  check(octavo_store_over(run.handle(), addresses.data(), more, &store), "octavo_store_over",
        run.backend_id());
  return StorePointer(store);
}

template <class T>
std::string in_memory(const T &object) {
  OutputArchive archive;
  object.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

template <class T>
void from_memory(T &object, const std::string &bytes) {
  std::istringstream stream(bytes);
  InputArchive archive;
  archive.load_from(stream);
  object.load(archive);
}

// What torch keeps, as it is: for a checkpoint, and for the way back.
class TorchState {
 public:
  explicit TorchState(Prepared::Impl &state) : state_(state) {}

  // Of a module with plain weights.
  void save(OutputArchive &archive) const {
    add(archive, "model", *state_.module);
    add(archive, "optimizer", state_.optimizer());
    const RandomState random(state_.run->device());
    archive.write("random", random.cpu(), /*is_buffer=*/true);
    if (random.own().defined()) archive.write("random_of_device", random.own(), /*is_buffer=*/true);
    archive.write("skipped_steps", c10::IValue(static_cast<int64_t>(state_.skipped_steps)));
  }
  void load(InputArchive &archive) {
    InputArchive model, optimizer;
    archive.read("model", model);
    archive.read("optimizer", optimizer);
    at::Tensor random, of_device;
    archive.read("random", random, /*is_buffer=*/true);
    if (archive.try_read("random_of_device", of_device, /*is_buffer=*/true))
      of_device = of_device.cpu();
    c10::IValue skipped;
    archive.read("skipped_steps", skipped);
    state_.module->load(model);
    state_.optimizer().state().clear();
    state_.optimizer().load(optimizer);
    state_.skipped_steps = static_cast<uint64_t>(skipped.toInt());
    RandomState(state_.run->device(), random.cpu(), of_device).set();
  }

 private:
  template <class T>
  static void add(OutputArchive &archive, const char *name, const T &object) {
    OutputArchive own(archive.compilation_unit());
    object.save(own);
    archive.write(name, own);
  }

  Prepared::Impl &state_;
};

// Loads all of it or nothing.
void load_torch(Prepared::Impl &state, const octavo_str &bytes) {
  InputArchive archive;
  archive.load_from(bytes.data, bytes.size, state.run->device());
  TorchState torch_state(state);
  state.materialize();
  std::string before;
  try {
    before = in_memory(torch_state);
    torch_state.load(archive);
  } catch (...) {
    if (!before.empty()) from_memory(torch_state, before);
    state.dematerialize(Prepared::Impl::TakeOver::kNo);
    throw;
  }
  state.dematerialize(Prepared::Impl::TakeOver::kNo);
}

void take_slots(Prepared::Impl &state, const SavedSlots &loaded) {
  Run &run = *state.run;
  for (uint32_t id = 0; id < loaded.size(); ++id) {
    if (loaded[id].defined())
      at::Tensor(run.memory().tensor(id)).copy_(loaded[id]);
    else
      run.memory().reset(*octavo_run_slot(run.handle(), id));
  }
  drop_slot_gradients(run);
  run.loaded();
  state.optimizer().zero_grad();
  state.step_skipped = false;
}

// torch's own exceptions as this library's.
template <class Fn>
void wrapped(const char *verb, const std::string &directory, const Fn &fn) {
  const at::NoGradGuard no_grad;
  core::take_diagnostics();
  try {
    fn();
  } catch (const Error &) {
    throw;
  } catch (const std::exception &e) {
    throw Error(OCTAVO_INVALID, std::string(verb) + " " + directory +
                                    ": expected what torch can write and read for this model and "
                                    "optimizer, found: " +
                                    e.what());
  }
}

}  // namespace

void Prepared::save_state(const std::string &directory) {
  Impl &state = impl();
  wrapped("save_state", directory, [&] {
    state.materialize();
    std::string bytes;
    try {
      bytes = in_memory(TorchState(state));
    } catch (...) {
      state.dematerialize(Impl::TakeOver::kNo);
      throw;
    }
    state.dematerialize(Impl::TakeOver::kNo);
    octavo_str more = borrow(bytes);
    const StorePointer store = store_over(*state.run, saved_slots(*state.run), &more);
    check(octavo_store_save(store.get(), borrow(directory), session().steps()), "save_state",
          directory);
  });
}

void Prepared::load_state(const std::string &directory) {
  Impl &state = impl();
  wrapped("load_state", directory, [&] {
    SavedSlots loaded = saved_slots(*state.run);
    for (at::Tensor &slot : loaded)
      if (slot.defined()) slot = at::empty_like(slot);
    octavo_str more = {};
    const StorePointer store = store_over(*state.run, loaded, &more);
    check(octavo_store_load(store.get(), borrow(directory), nullptr), "load_state", directory);
    if (more.size != 0) load_torch(state, more);
    take_slots(state, loaded);
  });
}

}  // namespace octavo::torch
