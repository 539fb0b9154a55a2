// octavo_store_save and octavo_store_load. Loading copies what it needs aside first: the store
// changes after the last check and the last read, when nothing can fail any more.

#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "sdk/src/base/dtype.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/base/text.h"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_keys.h"
#include "sdk/src/store/store.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr const char *kRank = "octavo.rank";
constexpr const char *kWorld = "octavo.world";
constexpr const char *kStep = "octavo.step";

void expect_extended(const octavo_store &store, const char *verb) {
  const size_t sealed = store.run().slots().size();
  if (store.slot_count() == sealed) return;
  fail_checkpoint(OCTAVO_WRONG_STATE, verb, "expected a store of all ", sealed,
                  " slots, found one of ", store.slot_count(),
                  "; call octavo_store_extend after each seal");
}

bool is_whole(const octavo_slot &s) {
  return s.shard == OCTAVO_SHARD_WHOLE;
}

// Reads a set of files, one after the other, into memory of its own.
class Loader {
 public:
  Loader(octavo_store &store, const std::string &directory, uint32_t world)
      : store_(store), directory_(directory), world_(world), saved_(saved_slots(store.run())) {
    for (const SavedSlot &saved : saved_) by_key_[saved.key] = &saved;
  }

  // Any failure comes from here.
  void read() {
    expect_all_ranks(directory_, world_);
    for (uint32_t rank = 0; rank < world_; ++rank) read_file(rank);
    for (const SavedSlot &saved : saved_)
      if (is_whole(slot(saved)) && seen_.count(saved.id) == 0)
        fail_checkpoint(OCTAVO_INVALID, directory_, "expected tensor \"", saved.key,
                        "\" in the file of one rank, found it in none; ",
                        "describe the model and the recipe that were saved");
  }

  // As a store that was just opened, but for the slots of the checkpoint. Fails only where the
  // device does.
  uint64_t commit() {
    for (uint32_t id = 0; id < store_.slot_count(); ++id) {
      if (!store_.has_memory(id)) continue;
      const auto found = staged_.find(id);
      if (found == staged_.end())
        store_.write_initial(id);
      else
        store_.write(id, found->second.data());
    }
    return *step_;
  }

 private:
  const octavo_slot &slot(const SavedSlot &saved) const { return store_.run().slots()[saved.id]; }

  void read_file(uint32_t rank) {
    const CheckpointFile file((fs::path(directory_) / rank_file_name(rank, world_)).string());
    check_texts(file.header(), store_.run(), saved_, file.path());
    check_place(file, rank);
    for (const auto &[key, tensor] : file.header().tensors) take(file, rank, key, tensor);
    for (const SavedSlot &saved : saved_)
      if (!is_whole(slot(saved)) && file.header().tensors.count(saved.key) == 0)
        fail_checkpoint(OCTAVO_INVALID, file.path(), "expected tensor \"", saved.key,
                        "\", found none; describe the model and the recipe that were saved");
  }

  void check_place(const CheckpointFile &file, uint32_t rank) {
    const uint64_t found_rank = number_text(file.header(), kRank, file.path());
    const uint64_t found_world = number_text(file.header(), kWorld, file.path());
    if (found_rank != rank || found_world != world_)
      fail_checkpoint(OCTAVO_INVALID, file.path(), "expected rank ", rank, " of ", world_,
                      " by its name, found rank ", found_rank, " of ", found_world,
                      "; give the file its name back");
    const uint64_t step = number_text(file.header(), kStep, file.path());
    if (step_ && *step_ != step)
      fail_checkpoint(OCTAVO_INVALID, file.path(), "expected step ", *step_,
                      " as in the file of rank 0, found step ", step,
                      "; a save did not reach every rank: load an earlier checkpoint");
    step_ = step;
  }

  void take(const CheckpointFile &file, uint32_t rank, const std::string &key,
            const CheckpointTensor &tensor) {
    const auto found = by_key_.find(key);
    if (found == by_key_.end())
      fail_checkpoint(
          OCTAVO_INVALID, file.path(), "expected tensors of this model, found \"", key,
          "\", which it does not have; describe the model and the recipe that were saved");
    const SavedSlot &saved = *found->second;
    const octavo_slot &s = slot(saved);
    check_tensor(tensor, s, saved, file.path());
    if (is_whole(s) && !seen_.insert(saved.id).second)
      fail_checkpoint(OCTAVO_INVALID, file.path(), "expected tensor \"", key,
                      "\" in the file of one rank, found it in a second one; ",
                      "restore the files of one checkpoint");
    // What every rank keeps is equal in all files; with another world there is no own one.
    const uint32_t source = world_ == store_.world() ? store_.rank() : 0;
    if (!store_.has_memory(saved.id) || (!is_whole(s) && rank != source)) return;
    std::vector<unsigned char> &bytes = staged_[saved.id];
    bytes.resize(slot_bytes(s));
    file.read(tensor, bytes.data());
  }

  octavo_store &store_;
  std::string directory_;
  uint32_t world_;
  std::vector<SavedSlot> saved_;
  std::map<std::string, const SavedSlot *> by_key_;
  std::map<uint32_t, std::vector<unsigned char>> staged_;  // by slot
  std::set<uint32_t> seen_;                                // WHOLE slots
  std::optional<uint64_t> step_;
};

std::string directory_of(octavo_str given, const char *verb) {
  std::string directory(view(given));
  if (directory.empty() || directory.find('\0') != std::string::npos)
    fail_checkpoint(OCTAVO_INVALID, verb, "expected the path of a directory, found ",
                    std::string(directory.empty() ? "no text" : "a text with a zero byte"),
                    "; pass the checkpoint's own directory");
  return directory;
}

void save_checkpoint(const octavo_store &store, const std::string &directory, uint64_t step) {
  expect_extended(store, "octavo_store_save");
  const std::vector<SavedSlot> saved = saved_slots(store.run());
  CheckpointHeader header;
  header.metadata = run_texts(store.run(), saved);
  header.metadata[kRank] = std::to_string(store.rank());
  header.metadata[kWorld] = std::to_string(store.world());
  header.metadata[kStep] = std::to_string(step);
  std::map<std::string, const void *> data;
  std::vector<std::vector<unsigned char>> copies(saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    const SavedSlot &s = saved[i];
    if (!store.has_memory(s.id)) continue;
    header.tensors[s.key] = tensor_of(store.run().slots()[s.id], s.key);
    data[s.key] = store.read(s.id, copies[i]);
  }
  lay_out(header);

  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    fail_checkpoint(OCTAVO_RESOURCE, directory,
                    "expected a directory that can be created, found: ", error.message(),
                    "; choose another one, or change the permissions of its parent");
  if (const uint32_t world = find_world(directory); world != 0 && world != store.world())
    fail_checkpoint(OCTAVO_WRONG_STATE, directory,
                    "expected no files of another number of ranks than ", store.world(),
                    ", found ranks of ", world, "; give every checkpoint a directory of its own");
  write_checkpoint_file(
      (fs::path(directory) / rank_file_name(store.rank(), store.world())).string(), header, data);
}

uint64_t load_checkpoint(octavo_store &store, const std::string &directory) {
  expect_extended(store, "octavo_store_load");
  const uint32_t world = find_world(directory);
  if (world == 0)
    fail_checkpoint(OCTAVO_RESOURCE, directory, "expected files such as ",
                    rank_file_name(0, store.world()),
                    ", found none; pass the directory that was given to octavo_store_save");
  Loader loader(store, directory, world);
  loader.read();
  return loader.commit();
}

}  // namespace
}  // namespace octavo

octavo_status octavo_store_save(const octavo_store *s, octavo_str directory, uint64_t step) {
  return octavo::on(s, [&](const octavo_store &store) {
    octavo::save_checkpoint(store, octavo::directory_of(directory, "octavo_store_save"), step);
  });
}

octavo_status octavo_store_load(octavo_store *s, octavo_str directory, uint64_t *step) {
  return octavo::on(s, [&](octavo_store &store) {
    const uint64_t found =
        octavo::load_checkpoint(store, octavo::directory_of(directory, "octavo_store_load"));
    if (step != nullptr) *step = found;
  });
}
