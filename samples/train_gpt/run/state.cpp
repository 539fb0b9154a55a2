// Saving goes to a directory that no older checkpoint uses; `latest` names it when all ranks have
// written and everything is on disk. So whenever the program dies, `latest` names a complete one.
#include "state.h"

#include <octavo/hpp/regular_file.hpp>

#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "host_adapters/standalone/checkpoint_folder.h"
#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/files.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kOwnFile = "/train_gpt.cbor";
constexpr uint64_t kMostOwnBytes = uint64_t{1} << 36;

void accept(bool fine, const std::string &path, const std::string &expected,
            const std::string &found) {
  if (!fine) throw UserError("--resume: " + path, expected, found, checkpoint_remedy(path));
}

// What the program keeps itself, by name; what the backend owns is not among it.
std::map<std::string, Buffer<float> *> own_tensors(Replica &replica) {
  std::map<std::string, Buffer<float> *> all;
  for (Parameter *p : replica.model().parameters()) {
    for (auto &[buffer, kind] : {std::pair(&p->value, "/value"), std::pair(&p->exp_avg, "/exp_avg"),
                                 std::pair(&p->exp_avg_sq, "/exp_avg_sq")})
      if (buffer->size() > 0) all[p->name + kind] = buffer;
  }
  return all;
}

// Of everything but the bytes of the tensors, which have numbers of their own in "hashes".
uint64_t hash_of(const json &file) {
  const std::string text =
      json{file["key"], file["steps"], file["adam_steps"], file["hashes"]}.dump();
  return fingerprint(text.data(), text.size());
}

// A checkpoint's own file, which must be of the run with this key.
json read_own(const std::string &path, const json &key) {
  octavo::RegularFile from(path);
  const std::optional<std::string> text = from.text(kMostOwnBytes);
  accept(text.has_value(), path, "a file of --save", from.problem());
  json file;
  if (is_shallow_cbor(*text))
    file = json::from_cbor(*text, /*strict=*/true, /*allow_exceptions=*/false);
  accept(file.is_object() && file["tensors"].is_object() && file["steps"].is_number_unsigned() &&
             file["adam_steps"].is_number_unsigned(),
         path, "a whole file of --save", "a file that is cut off or damaged");
  accept(file["hashes"].is_object() && file["hash"].is_number_unsigned(), path,
         "hashes of what the file holds", "none: the file is damaged, or of an older train_gpt");
  accept(file["hash"] == hash_of(file), path, "what was saved", "other numbers: it is damaged");
  for (const auto &[name, value] : key.items()) {
    const json found = file["key"].is_object() ? file["key"].value(name, json()) : json();
    expect(found == value, "--resume: " + path,
           name + " " + value.dump() + " as on this command line", name + " " + found.dump(),
           "repeat the command line of the run that was saved");
  }
  return file;
}

void write_own(Replica &replica, const std::string &path, const json &key, int64_t steps) {
  json file = {{"key", key},
               {"steps", steps},
               {"adam_steps", replica.optimizer().own_steps()},
               {"hashes", json::object()},
               {"tensors", json::object()}};
  for (const auto &[tensor, buffer] : own_tensors(replica)) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(buffer->data());
    file["hashes"][tensor] = fingerprint(bytes, buffer->bytes());
    file["tensors"][tensor] = json::binary({bytes, bytes + buffer->bytes()});
  }
  file["hash"] = hash_of(file);
  std::string content;
  json::to_cbor(file, content);
  write_atomically(path, content);
}

}  // namespace

json run_key(const RunSpec &spec, const Options &options, const Corpus &corpus) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a, which tells texts apart and no more
  for (const unsigned char byte : corpus.train) hash = (hash ^ byte) * 0x100000001B3u;
  return {{"run", spec.name},
          {"seed", options.seed},
          {"batch", options.batch},
          {"steps", options.steps},
          {"rate", options.rate},
          {"end_rate", options.end_rate},
          {"nudge", options.nudge},
          {"layers", options.size.layers},
          {"heads", options.size.heads},
          {"width", options.size.width},
          {"context", options.size.context},
          {"fused", options.fused != Fused::kNo},  // yes has the bits of apply
          {"text", {corpus.train.size(), hash}}};
}

void check_state(const RunSpec &spec, const Options &options, const json &key) {
  if (!options.save.empty()) prepare_directory("--save", run_directory(options.save, spec.name));
  if (options.resume.empty()) return;
  const std::string path = latest_directory(run_directory(options.resume, spec.name)) + kOwnFile;
  const auto taken = read_own(path, key)["steps"].get<int64_t>();
  const int64_t end = options.stop_after > 0 ? options.stop_after : options.steps;
  expect(taken < end, "--resume: " + path,
         "a checkpoint of fewer than " + std::to_string(end) + " steps, after which this run stops",
         std::to_string(taken), "leave or raise --stop-after, or leave out this run");
}

std::vector<DirectoryLock> lock_saves(const Options &options) {
  std::set<std::string> directories;  // of two runs with one name, too
  for (const RunSpec &spec : options.runs)
    if (!options.save.empty()) directories.insert(run_directory(options.save, spec.name));
  std::vector<DirectoryLock> locks;
  for (const std::string &directory : directories) locks.emplace_back("--save", directory);
  return locks;
}

void save_state(Replica &replica, const std::string &directory, const json &key, int64_t steps,
                int64_t keep) {
  const Communicator &communicator = replica.communicator();
  const bool root = communicator.rank() == 0;
  int64_t attempt = 0;  // one rank looks which name is free; the others follow
  while (root && fs::exists(directory + "/" + checkpoint_name(steps, attempt))) ++attempt;
  attempt = static_cast<int64_t>(communicator.gather(static_cast<double>(attempt)).front());
  const std::string name = checkpoint_name(steps, attempt);
  const std::string checkpoint = directory + "/" + name;
  try {
    // All ranks keep the same slots unless they share states out.
    const octavo::Store *store = replica.octavo().store();
    if (store != nullptr && (root || replica.octavo().sharded()))
      store->save(checkpoint, static_cast<uint64_t>(steps));
  } catch (const octavo::Error &e) {
    throw UserError("--save: " + checkpoint, "a checkpoint that can be written", e.what(),
                    "follow the message above; the checkpoint before is as it was");
  }
  if (root) {
    make_directory(checkpoint);
    write_own(replica, checkpoint + kOwnFile, key, steps);
  }
  communicator.root_says(true);  // no rank passes this line before all have written
  if (root) complete_checkpoint(directory, name, keep);
}

int64_t load_state(Replica &replica, const std::string &directory, const json &key) {
  const std::string checkpoint = latest_directory(directory);
  const std::string path = checkpoint + kOwnFile;
  const json file = read_own(path, key);
  const auto steps = file["steps"].get<int64_t>();
  if (octavo::Store *store = replica.octavo().store(); store != nullptr) {
    uint64_t saved = 0;
    try {
      saved = store->load(checkpoint);  // then every weight is due to be quantized
    } catch (const octavo::Error &e) {
      throw UserError("--resume: " + checkpoint, "slots of this run", e.what(),
                      "follow the message above, or " + checkpoint_remedy(checkpoint));
    }
    accept(saved == static_cast<uint64_t>(steps), checkpoint,
           "slots of step " + std::to_string(steps), "slots of step " + std::to_string(saved));
  }
  const auto own = own_tensors(replica);
  const json &tensors = file["tensors"];
  accept(tensors.size() == own.size(), path, std::to_string(own.size()) + " tensors of this model",
         std::to_string(tensors.size()));
  for (const auto &[name, buffer] : own) {
    const json found = tensors.value(name, json());
    const size_t bytes = found.is_binary() ? found.get_binary().size() : 0;
    accept(bytes == buffer->bytes(), path,
           name + " of " + std::to_string(buffer->bytes()) + " bytes", std::to_string(bytes));
    accept(file["hashes"].value(name, json()) == fingerprint(found.get_binary().data(), bytes),
           path, name + " as it was saved", "other bytes: the file is damaged");
    std::memcpy(buffer->data(), found.get_binary().data(), bytes);
  }
  replica.optimizer().restore_steps(file["adam_steps"].get<int64_t>());
  replica.weights_changed();
  return steps;
}

}  // namespace gpt
