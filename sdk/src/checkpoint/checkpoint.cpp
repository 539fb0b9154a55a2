// octavo_store_save and octavo_store_load. Loading copies what it needs aside first: the store
// changes after the last check and the last read, when nothing can fail any more.

#include <filesystem>
#include <map>
#include <set>

#include "sdk/src/base/dtype.h"
#include "sdk/src/base/handles.h"
#include "sdk/src/base/text.h"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_keys.h"
#include "sdk/src/checkpoint/checkpoint_set.h"
#include "sdk/src/store/store.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// The tensor of what a host saves with its slots. Keys of slots have a slash.
constexpr char kMore[] = "host";

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
  Loader(octavo_store &store, const std::string &directory)
      : store_(store),
        directory_(directory),
        files_(directory),
        world_(files_.world()),
        saved_(saved_slots(store.run())) {
    for (const SavedSlot &saved : saved_) by_key_[saved.key] = &saved;
  }

  // Any failure comes from here.
  void read() {
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
    if (store_.more() != nullptr) store_.take_more(std::move(more_));
    return files_.manifest().step;
  }

 private:
  const octavo_slot &slot(const SavedSlot &saved) const { return store_.run().slots()[saved.id]; }

  void read_file(uint32_t rank) {
    const CheckpointFile file = files_.open(rank);
    check_texts(file.header(), store_.run(), saved_, file.path());
    wanted_.clear();
    for (const auto &[key, tensor] : file.header().tensors) take(file, rank, key, tensor);
    for (const SavedSlot &saved : saved_)
      if (!is_whole(slot(saved)) && file.header().tensors.count(saved.key) == 0)
        fail_checkpoint(OCTAVO_INVALID, file.path(), "expected tensor \"", saved.key,
                        "\", found none; describe the model and the recipe that were saved");
    std::vector<uint64_t> sizes;
    for (const auto &[key, to] : wanted_) sizes.push_back(file.header().tensors.at(*key).bytes());
    // Memory is new to the thread that reads into it, which takes as long as reading.
    work_on_tensors(sizes, [&](size_t i) {
      const auto &[key, to] = wanted_[i];
      to->resize(sizes[i]);
      file.read(*key, to->data());
    });
  }

  void take(const CheckpointFile &file, uint32_t rank, const std::string &key,
            const CheckpointTensor &tensor) {
    // What every rank keeps is equal in all files; with another world there is no own one.
    const uint32_t source = world_ == store_.world() ? store_.rank() : 0;
    if (key == kMore) {
      if (store_.more() != nullptr && rank == source) wanted_.emplace_back(&key, &more_);
      return;
    }
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
    if (!store_.has_memory(saved.id) || (!is_whole(s) && rank != source)) return;
    wanted_.emplace_back(&key, &staged_[saved.id]);
  }

  octavo_store &store_;
  std::string directory_;
  CheckpointSet files_;
  uint32_t world_;
  std::vector<SavedSlot> saved_;
  std::map<std::string, const SavedSlot *> by_key_;
  std::map<uint32_t, std::vector<unsigned char>> staged_;  // by slot
  std::vector<unsigned char> more_;                        // the host's
  std::set<uint32_t> seen_;                                // WHOLE slots
  // Of the file that is being read: tensors, and where they go.
  std::vector<std::pair<const std::string *, std::vector<unsigned char> *>> wanted_;
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
  const std::string run_id = run_id_of(store);
  const std::vector<SavedSlot> saved = saved_slots(store.run());
  CheckpointHeader header;
  header.metadata = run_texts(store.run(), saved);
  header.metadata[kRunId] = run_id;
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
  if (const octavo_str *more = store.more(); more != nullptr && more->size != 0) {
    header.tensors[kMore] = {"U8", {more->size}, 0, 0};
    data[kMore] = more->data;
  }
  lay_out(header);

  make_directory(directory);
  const CheckpointLock lock(directory, run_id);
  if (!lock.is_held())
    warn(store.host(), kCheckpointDomain, directory,
         ": expected a file system with locks, found one without; nothing keeps a second run from "
         "writing there");
  if (const uint32_t world = find_world(directory); world != 0 && world != store.world())
    fail_checkpoint(OCTAVO_WRONG_STATE, directory,
                    "expected no files of another number of ranks than ", store.world(),
                    ", found ranks of ", world, "; give every checkpoint its own directory");
  const std::string name = free_rank_name(directory, store.rank(), store.world());
  write_checkpoint_file((fs::path(directory) / name).string(), header, data);
  commit_if_complete(directory, {name, store.rank(), store.world(), run_id, step});
}

uint64_t load_checkpoint(octavo_store &store, const std::string &directory) {
  expect_extended(store, "octavo_store_load");
  Loader loader(store, directory);
  loader.read();
  return loader.commit();
}

}  // namespace
}  // namespace octavo

octavo_status octavo_store_save(const octavo_store *s, octavo_str directory, uint64_t step) {
  return octavo::call_guarded(s, [&](const octavo_store &store) {
    octavo::save_checkpoint(store, octavo::directory_of(directory, "octavo_store_save"), step);
  });
}

octavo_status octavo_store_load(octavo_store *s, octavo_str directory, uint64_t *step) {
  return octavo::call_guarded(s, [&](octavo_store &store) {
    const uint64_t found =
        octavo::load_checkpoint(store, octavo::directory_of(directory, "octavo_store_load"));
    if (step != nullptr) *step = found;
  });
}
