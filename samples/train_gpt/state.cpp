// Saving goes to a directory that no older checkpoint uses; `latest` names it when all ranks have
// written. So whenever the program dies, `latest` names a complete checkpoint.
#include "state.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "error.h"
#include "files.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

constexpr const char *kOwnFile = "/train_gpt.safetensors";
constexpr const char *kSteps = "train_gpt.steps_taken";
constexpr const char *kAdamSteps = "train_gpt.adam_steps";

std::string exact(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.17g", value);
  return digits;
}

std::string step_name(int64_t steps, int64_t attempt) {
  char name[64];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(steps));
  return attempt == 0 ? name : name + ("." + std::to_string(attempt));
}

// What the program keeps itself; what the backend owns is empty here.
std::vector<StateTensor> own_tensors(Replica &replica) {
  std::vector<StateTensor> all;
  for (Parameter *p : replica.model().parameters()) {
    for (auto &[buffer, kind] : {std::pair(&p->value, "value"), std::pair(&p->exp_avg, "exp_avg"),
                                 std::pair(&p->exp_avg_sq, "exp_avg_sq")}) {
      if (buffer->size() == 0) continue;
      all.push_back({p->name + "/" + kind, p->rows, p->cols, buffer->data()});
    }
  }
  return all;
}

// Whether liboctavo saves a file of this rank: all ranks keep the same unless states are shared
// out.
bool has_slots(Replica &replica) {
  return replica.octavo() != nullptr && replica.octavo()->store() != nullptr;
}
bool saves_slots(Replica &replica) {
  return has_slots(replica) && (replica.octavo()->sharded() || replica.communicator().rank() == 0);
}

std::string latest_directory(const std::string &directory) {
  std::string name;
  std::ifstream in(directory + "/latest");
  if (!std::getline(in, name) || name.rfind("step-", 0) != 0 ||
      name.find('/') != std::string::npos) {
    throw UserError("--resume: " + directory + "/latest", "the name of a checkpoint",
                    in ? "\"" + name + "\"" : "no such file",
                    "resume from a directory that --save wrote with this run, or leave --resume");
  }
  return directory + "/" + name;
}

int64_t number(const StateTexts &texts, const char *key, const std::string &path) {
  const auto found = texts.find(key);
  int64_t value = -1;
  if (found != texts.end()) {
    const std::string &text = found->second;
    const char *end = text.data() + text.size();
    if (std::from_chars(text.data(), end, value).ptr != end) value = -1;
  }
  if (value < 0) {
    throw UserError(path, std::string("a count as ") + key,
                    found == texts.end() ? "none" : "\"" + found->second + "\"",
                    "resume from another checkpoint");
  }
  return value;
}

void expect_texts(const StateTexts &expected, const StateTexts &found, const std::string &path) {
  for (const auto &[key, text] : expected) {
    const auto there = found.find(key);
    if (there != found.end() && there->second == text) continue;
    throw UserError("--resume: " + path, key + " " + text + " as on this command line",
                    there == found.end() ? "none" : key + " " + there->second,
                    "repeat the command line of the run that was saved");
  }
}

}  // namespace

StateTexts run_texts(const RunSpec &spec, const Options &options, const Corpus &corpus) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a, which tells texts apart and no more
  for (const unsigned char byte : corpus.train) hash = (hash ^ byte) * 0x100000001B3u;
  return {{"run", spec.name},
          {"seed", std::to_string(options.seed)},
          {"batch", std::to_string(options.batch)},
          {"steps", std::to_string(options.steps)},
          {"rate", exact(options.rate)},
          {"layers", std::to_string(options.size.layers)},
          {"heads", std::to_string(options.size.heads)},
          {"width", std::to_string(options.size.width)},
          {"context", std::to_string(options.size.context)},
          {"fused", options.fused == Fused::kNo ? "no" : "apply"},  // yes has the bits of apply
          {"text", std::to_string(corpus.train.size()) + " bytes, " + std::to_string(hash)}};
}

std::string run_directory(const std::string &directory, const std::string &run) {
  std::string name;
  for (const char c : run) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string("._-=:,+").find(c) != std::string::npos;
    char escaped[4];
    std::snprintf(escaped, sizeof escaped, "%%%02X", static_cast<unsigned char>(c));
    name += plain ? std::string(1, c) : escaped;
  }
  return directory + "/" + name;
}

void check_state(const RunSpec &spec, const Options &options, const StateTexts &texts) {
  if (!options.save.empty()) {
    const std::string directory = run_directory(options.save, spec.name);
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) {
      throw UserError("--save " + options.save, "a directory that can be created", error.message(),
                      "choose another --save, or change the permissions of its parent");
    }
  }
  if (options.resume.empty()) return;
  const std::string path = latest_directory(run_directory(options.resume, spec.name)) + kOwnFile;
  const StateTexts found = read_state_texts(path);
  expect_texts(texts, found, path);
  const int64_t end = options.stop_after > 0 ? options.stop_after : options.steps;
  if (const int64_t taken = number(found, kSteps, path); taken >= end) {
    throw UserError(
        "--resume: " + path,
        "a checkpoint of fewer than " + std::to_string(end) + " steps, after which this run stops",
        std::to_string(taken), "leave or raise --stop-after, or leave out this run");
  }
}

void save_state(Replica &replica, const std::string &directory, StateTexts texts, int64_t steps) {
  const Communicator &communicator = replica.communicator();
  const bool root = communicator.rank() == 0;
  // One rank looks which name is free; the others follow.
  int64_t attempt = 0;
  while (root && fs::exists(directory + "/" + step_name(steps, attempt))) ++attempt;
  attempt = static_cast<int64_t>(communicator.gather(static_cast<double>(attempt)).front());
  const std::string name = step_name(steps, attempt);
  const std::string checkpoint = directory + "/" + name;
  if (saves_slots(replica)) {
    // [save]
    replica.octavo()->check(octavo_store_save(replica.octavo()->store(), view(checkpoint),
                                              static_cast<uint64_t>(steps)),
                            "octavo_store_save", replica.octavo()->backend());
    // [/save]
  }
  if (root) {
    fs::create_directories(checkpoint);
    texts[kSteps] = std::to_string(steps);
    texts[kAdamSteps] = std::to_string(replica.optimizer().own_steps());
    write_state_file(checkpoint + kOwnFile, texts, own_tensors(replica));
  }
  communicator.root_says(true);  // nobody is behind this line before all have written
  if (!root) return;
  write_atomically(directory + "/latest", name + "\n");
  for (const auto &entry : fs::directory_iterator(directory)) {
    const std::string other = entry.path().filename().string();
    if (other.rfind("step-", 0) == 0 && other != name) fs::remove_all(entry.path());
  }
}

int64_t load_state(Replica &replica, const std::string &directory, const StateTexts &texts) {
  const std::string checkpoint = latest_directory(directory);
  const std::string path = checkpoint + kOwnFile;
  const StateTexts found = read_state_texts(path);
  expect_texts(texts, found, path);
  const int64_t steps = number(found, kSteps, path);
  const int64_t adam_steps = number(found, kAdamSteps, path);
  if (has_slots(replica)) {
    uint64_t saved = 0;
    try {
      // [load]
      replica.octavo()->check(
          octavo_store_load(replica.octavo()->store(), view(checkpoint), &saved),
          "octavo_store_load", replica.octavo()->backend());
      // [/load]
    } catch (const std::runtime_error &e) {
      throw UserError("--resume: " + checkpoint, "slots of this run", e.what(),
                      "follow the message above");
    }
    if (saved != static_cast<uint64_t>(steps)) {
      throw UserError("--resume: " + checkpoint, "slots of step " + std::to_string(steps),
                      "slots of step " + std::to_string(saved), "resume from another checkpoint");
    }
  }
  read_state_file(path, own_tensors(replica));
  replica.optimizer().restore_steps(adam_steps);
  replica.weights_changed();
  return steps;
}

}  // namespace gpt
