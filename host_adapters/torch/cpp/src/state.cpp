// Checkpoints of a prepared model: three files in a directory of their own, archives of
// torch::serialize, and a list with their hashes. FP8 codes cross as bytes.
#include <ATen/core/grad_mode.h>
#include <torch/serialize/archive.h>

#include <filesystem>
#include <sstream>

#include "prepared.h"
#include "random_state.h"
#include "saved_files.h"
#include "slot_gradient.h"

namespace octavo::torch {
namespace {

namespace fs = std::filesystem;
using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

constexpr int64_t kSchema = 2;
constexpr const char *kModel = "model.pt";
constexpr const char *kOptimizer = "optimizer.pt";
constexpr const char *kSlots = "octavo.pt";

bool is_saved(const Slot &slot) {
  return (slot.flags & OCTAVO_SLOT_CHECKPOINT) != 0 && slot.tensor.defined();
}

// Float8 types are not what every reader of an archive knows.
at::Tensor bytes_of(const at::Tensor &tensor) {
  return tensor.element_size() == 1 ? tensor.view(at::kByte) : tensor;
}

c10::List<std::string> list_of(const std::vector<std::string> &strings) {
  c10::List<std::string> list;
  for (const std::string &s : strings) list.push_back(s);
  return list;
}

// What octavo.pt holds, checked against the run.
struct LoadedSlots {
  std::vector<at::Tensor> tensors;      // by slot; undefined: its initial value
  at::Tensor random, random_of_device;  // on the CPU; the latter undefined without a GPU
  int64_t skipped = 0;
};

std::vector<std::string> strings_of(InputArchive &archive, const std::string &key) {
  c10::IValue value;
  archive.read(key, value);
  std::vector<std::string> strings;
  for (const c10::IValue &element : value.toListRef()) strings.push_back(element.toStringRef());
  return strings;
}

[[noreturn]] void refuse(octavo_status status, const std::string &expected,
                         const std::string &found) {
  throw Error(status, "load_state: expected " + expected + ", found " + found +
                          "; load a checkpoint of the same model, backend and options");
}

LoadedSlots read_slots(const Run &run, const Session &session, InputArchive archive) {
  c10::IValue value;
  archive.read("schema", value);
  if (value.toInt() != kSchema)
    refuse(OCTAVO_VERSION, "a checkpoint of schema " + std::to_string(kSchema),
           std::to_string(value.toInt()));
  archive.read("backend", value);
  if (value.toStringRef() != run.backend_id())
    refuse(OCTAVO_INVALID, "a checkpoint of backend \"" + run.backend_id() + "\"",
           "\"" + value.toStringRef() + "\"");
  const std::vector<std::string> options = strings_of(archive, "options");
  const std::vector<std::string> own = run.options();
  for (size_t i = 0; i < std::max(options.size(), own.size()); ++i) {
    const std::string there = i < options.size() ? options[i] : "nothing";
    const std::string here = i < own.size() ? own[i] : "nothing";
    if (there != here) refuse(OCTAVO_INVALID, "the option " + here, there);
  }
  std::map<std::string, int64_t> keys;
  for (const std::string &key : strings_of(archive, "keys"))
    keys.emplace(key, static_cast<int64_t>(keys.size()));
  LoadedSlots loaded;
  size_t used = 0;
  for (const Slot &slot : session.slots()) {
    at::Tensor &tensor = loaded.tensors.emplace_back();
    if (!is_saved(slot)) continue;
    const auto found = keys.find(slot.key);
    if (found == keys.end()) refuse(OCTAVO_INVALID, "slot \"" + slot.key + "\"", "none");
    const std::string number = std::to_string(found->second);
    if (strings_of(archive, "labels" + number) != slot.labels)
      refuse(OCTAVO_INVALID, "slot \"" + slot.key + "\" with the layers of this model",
             "other ones, or another order");
    archive.read("slot" + number, tensor, /*is_buffer=*/true);
    const at::Tensor expected = bytes_of(slot.tensor);
    if (tensor.sizes() != expected.sizes() || tensor.scalar_type() != expected.scalar_type())
      refuse(OCTAVO_INVALID, "slot \"" + slot.key + "\" in the shape of this model",
             "another shape or dtype");
    ++used;
  }
  if (used != keys.size())
    refuse(OCTAVO_INVALID, std::to_string(used) + " slots", std::to_string(keys.size()));
  archive.read("random", loaded.random, /*is_buffer=*/true);
  loaded.random = loaded.random.cpu();
  if (archive.try_read("random_of_device", loaded.random_of_device, /*is_buffer=*/true))
    loaded.random_of_device = loaded.random_of_device.cpu();
  archive.read("skipped_steps", value);
  loaded.skipped = value.toInt();
  return loaded;
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

// The module and the optimizer as they are, for the way back.
class Backup {
 public:
  explicit Backup(Prepared::Impl &state)
      : state_(state), model_(in_memory(*state.module)), optimizer_(in_memory(state.optimizer())) {}

  void restore() {
    from_memory(*state_.module, model_);
    state_.optimizer().state().clear();
    from_memory(state_.optimizer(), optimizer_);
  }

 private:
  Prepared::Impl &state_;
  std::string model_;
  std::string optimizer_;
};

void apply(Prepared::Impl &state, const Session &session, const LoadedSlots &loaded) {
  Run &run = *state.run;
  const std::vector<Slot> slots = session.slots();
  for (size_t id = 0; id < slots.size(); ++id) {
    if (loaded.tensors[id].defined()) {
      bytes_of(slots[id].tensor).copy_(loaded.tensors[id]);
    } else {
      run.memory().reset(*octavo_run_slot(run.handle(), static_cast<uint32_t>(id)));
    }
  }
  drop_slot_gradients(run);
  run.loaded();
  state.optimizer().zero_grad();
  state.skipped_steps = static_cast<uint64_t>(loaded.skipped);
  state.step_skipped = false;
  RandomState(run.device(), loaded.random, loaded.random_of_device).set();
}

// torch's own exceptions about files as this library's.
template <class Fn>
void wrapped(const char *verb, const std::string &directory, const Fn &fn) {
  try {
    fn();
  } catch (const Error &) {
    throw;
  } catch (const fs::filesystem_error &e) {
    throw Error(OCTAVO_RESOURCE, std::string(verb) + " " + directory + ": " + e.what());
  } catch (const std::exception &e) {
    throw Error(OCTAVO_INVALID, std::string(verb) + " " + directory +
                                    ": expected files that torch can write and read for this "
                                    "model and optimizer, found: " +
                                    e.what());
  }
}

}  // namespace

void Prepared::save_state(const std::string &directory) {
  Impl &state = impl();
  const at::NoGradGuard no_grad;
  wrapped("save_state", directory, [&] {
    FilesWriter files(directory);
    OutputArchive slots;
    slots.write("schema", c10::IValue(kSchema));
    slots.write("backend", c10::IValue(state.run->backend_id()));
    slots.write("options", c10::IValue(list_of(state.run->options())));
    std::vector<std::string> keys;
    for (const Slot &slot : session().slots()) {
      if (!is_saved(slot)) continue;
      const std::string number = std::to_string(keys.size());
      slots.write("slot" + number, bytes_of(slot.tensor).clone(), /*is_buffer=*/true);
      slots.write("labels" + number, c10::IValue(list_of(slot.labels)));
      keys.push_back(slot.key);
    }
    slots.write("keys", c10::IValue(list_of(keys)));
    const RandomState random(state.run->device());
    slots.write("random", random.cpu(), /*is_buffer=*/true);
    if (random.own().defined()) slots.write("random_of_device", random.own(), /*is_buffer=*/true);
    slots.write("skipped_steps", c10::IValue(static_cast<int64_t>(state.skipped_steps)));
    files.add(kSlots, slots);

    OutputArchive optimizer;
    state.optimizer().save(optimizer);
    files.add(kOptimizer, optimizer);

    OutputArchive model;
    state.materialize();
    try {
      state.module->save(model);
      files.add(kModel, model);
    } catch (...) {
      state.dematerialize(Impl::TakeOver::kNo);
      throw;
    }
    state.dematerialize(Impl::TakeOver::kNo);
    files.commit();
  });
}

void Prepared::load_state(const std::string &directory) {
  Impl &state = impl();
  const at::NoGradGuard no_grad;
  wrapped("load_state", directory, [&] {
    const at::Device device = state.run->device();
    const FilesReader files(directory);
    const LoadedSlots loaded = read_slots(*state.run, session(), files.open(kSlots, device));
    InputArchive model = files.open(kModel, device);
    InputArchive optimizer = files.open(kOptimizer, device);
    state.materialize();
    Backup backup(state);
    try {
      state.module->load(model);
      state.optimizer().state().clear();
      state.optimizer().load(optimizer);
    } catch (...) {
      backup.restore();
      state.dematerialize(Impl::TakeOver::kNo);
      throw;
    }
    state.dematerialize(Impl::TakeOver::kNo);
    apply(state, session(), loaded);
  });
}

}  // namespace octavo::torch
