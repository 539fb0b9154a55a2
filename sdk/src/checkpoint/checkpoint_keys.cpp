// Every option of the session is compared: which of them change numbers, only the backend knows.
#include "sdk/src/checkpoint/checkpoint_keys.h"

#include <sodium.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "octavo/hpp/roles.hpp"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/json.h"
#include "sdk/src/base/text.h"
#include "sdk/src/checkpoint/checkpoint_header.h"
#include "sdk/src/ranks/process_ranks.h"

namespace octavo {

// Drawn from the system's source of random numbers.

namespace {

constexpr size_t kIdBytes = 16;
constexpr size_t kMostIdLetters = 64;

const std::string &id_of_process() {
  static const std::string id = [] {
    unsigned char bytes[kIdBytes];
    randombytes_buf(bytes, sizeof(bytes));
    char hex[2 * kIdBytes + 1];
    return std::string(sodium_bin2hex(hex, sizeof(hex), bytes, sizeof(bytes)));
  }();
  return id;
}

}  // namespace

std::string run_id_of(const octavo_store &store) {
  const Config &config = store.run().negotiation().config;
  const std::string &given = config[key::kCheckpointRunId];
  if (given.empty()) {
    if (!process_has_world(store.world()))
      fail_checkpoint(OCTAVO_INVALID, "octavo_store_save", "expected all ", store.world(),
                      " ranks in this process, or checkpoint.run_id, found neither; draw a random "
                      "text at the start, send it to every rank, and set checkpoint.run_id to it "
                      "before the run is opened");
    return id_of_process();
  }
  if (given.size() > kMostIdLetters ||
      given.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != std::string::npos)
    fail_checkpoint(
        OCTAVO_INVALID, "checkpoint.run_id",
        concat("expected 1 to ", kMostIdLetters, " letters, digits and _ . -, found \"", given,
               "\" (", config.origin(key::kCheckpointRunId), "); choose another text"));
  return given;
}

namespace {

constexpr const char *kBackend = "octavo.backend";
constexpr const char *kOption = "octavo.option.";
constexpr const char *kLayerOption = "octavo.layer_option.";
constexpr const char *kKernelLayers = "octavo.kernel_layers";
constexpr const char *kLabels = "octavo.labels.";
constexpr const char *kLinears = "octavo.linears";

std::string in_quotes(const std::string &text) {
  return '"' + text + '"';
}

// Exact: a number reads back as itself.
std::string option_text(const TomlValue &value) {
  if (const auto *text = std::get_if<std::string>(&value)) return *text;
  const auto *real = std::get_if<double>(&value);
  if (real == nullptr) return show(value);
  char digits[32];
  std::snprintf(digits, sizeof(digits), "%.17g", *real);
  return digits;
}

std::string backend_id(const octavo_run &run) {
  return run.plugin() == nullptr ? std::string() : run.plugin()->id;
}

// Null where the slot has no labels.
Json labels_of(const octavo_slot &s) {
  if (s.labels == nullptr) return nullptr;
  Json labels = Json::array();
  for (int64_t i = 0; i < s.cols; ++i) labels.push_back(std::string(view(s.labels[i])));
  return labels;
}

// In the order of their ids, from which backends draw random numbers.
Json linears_of(const octavo_run &run) {
  Json names = Json::array();
  for (uint32_t id = 0; id < run.linear_count(); ++id) names.push_back(run.linear_name(id));
  return names;
}

std::string labels_text(const Json &labels, const std::string &where) {
  try {
    return labels.dump();
  } catch (const Json::exception &) {
    fail_checkpoint(OCTAVO_INVALID, where,
                    "expected labels in UTF-8, found other bytes; rename the parameter or layer");
  }
}

void check_options(const CheckpointHeader &found, const octavo_run &run, const std::string &where) {
  if (run.plugin() == nullptr) return;
  const std::string id = backend_id(run);
  std::map<std::string, std::string> defaults;
  for (const DeclaredOption &o : declared_options(run.plugin()->backend, id))
    defaults[o.name] = option_text(o.initial);
  std::set<std::string> known;
  for (const EffectiveOption &o : run.negotiation().choice()->options) {
    known.insert(o.name);
    const std::string here = option_text(o.setting.value);
    const std::string *saved = found.text(kOption + o.name);
    const std::string &there = saved != nullptr ? *saved : defaults[o.name];
    if (there == here) continue;
    fail_checkpoint(OCTAVO_INVALID, where, "expected the option fp8.", id, ".", o.name,
                    " as in this session, ", in_quotes(here), " (", o.setting.origin, "), found ",
                    in_quotes(there),
                    saved != nullptr ? "" : ", the default, since the file does not name it",
                    "; set it as in the file, or load a checkpoint of this configuration");
  }
  for (const auto &[key, text] : found.metadata) {
    if (key.rfind(kOption, 0) != 0 || known.count(key.substr(std::string(kOption).size())) != 0)
      continue;
    fail_checkpoint(OCTAVO_INVALID, where, "expected options of backend ", id, ", found ",
                    in_quotes(key.substr(std::string(kOption).size())),
                    ", which it does not have; load with the version of the plugin that saved it");
  }
}

// The options of linears that differ from the session's: "<linear>.<option>", as text.
std::map<std::string, std::string> layer_options(const octavo_run &run) {
  std::map<std::string, std::string> all;
  for (uint32_t linear = 0; linear < run.linear_count(); ++linear)
    for (const auto &o : run.options(linear).entries())
      all[run.linear_name(linear) + "." + o.name] = option_text(o.setting.value);
  return all;
}

void check_layer_options(const CheckpointHeader &found, const octavo_run &run,
                         const std::string &where) {
  const std::map<std::string, std::string> here = layer_options(run);
  std::map<std::string, std::string> there;
  for (const auto &[key, text] : found.metadata)
    if (key.starts_with(kLayerOption)) there[key.substr(std::string(kLayerOption).size())] = text;
  const auto shown = [](const auto &options, const std::string &key) {
    const auto option = options.find(key);
    return option == options.end() ? std::string("no value for this layer")
                                   : in_quotes(option->second);
  };
  const auto check = [&](const std::string &key) {
    if (shown(here, key) != shown(there, key))
      fail_checkpoint(OCTAVO_INVALID, where, "expected the option of a layer ", in_quotes(key),
                      " as in this session, ", shown(here, key), ", found ", shown(there, key),
                      "; give [[layers.rule]] as in the file, or load a checkpoint of this "
                      "configuration");
  };
  for (const auto &[key, text] : here) check(key);
  for (const auto &[key, text] : there) check(key);
}

// How the names in `text` differ from `here`.
std::string difference_of(const std::string &text, const Json &here, const char *one,
                          const std::string &where) {
  const Json there = parse_json<Json>(text);
  if (!there.is_array()) return "other ones";
  if (there.size() != here.size()) return concat(there.size(), " names");
  for (size_t i = 0; i < here.size(); ++i)
    if (there[i] != here[i])
      return concat(one, " ", i, " with ",
                    there[i].is_string() ? labels_text(there[i], where) : "something else",
                    " instead of ", labels_text(here[i], where));
  return "other ones";
}

void check_linears(const CheckpointHeader &found, const octavo_run &run, const std::string &where) {
  const std::string *text = found.text(kLinears);
  const Json here = linears_of(run);
  if (text == nullptr || *text == labels_text(here, where)) return;
  fail_checkpoint(OCTAVO_INVALID, where, "expected the ", here.size(),
                  " linears of this model, found ", difference_of(*text, here, "linear", where),
                  "; describe the same model in the same order");
}

void check_labels(const CheckpointHeader &found, const octavo_slot &slot, const SavedSlot &saved,
                  const std::string &where) {
  const Json here = labels_of(slot);
  const std::string *text = found.text(kLabels + saved.key);
  if (here.is_null() && text == nullptr) return;
  if (text != nullptr && !here.is_null() && *text == labels_text(here, where)) return;
  std::string difference = text == nullptr ? "none" : "labels for a tensor without any here";
  if (text != nullptr && !here.is_null()) difference = difference_of(*text, here, "column", where);
  fail_checkpoint(
      OCTAVO_INVALID, where, "tensor ", in_quotes(saved.key), ": expected ",
      here.is_null() ? "no labels"
                     : concat("the labels of ", here.size(), " columns, the objects of this model"),
      ", found ", difference, "; describe the same model in the same order");
}

}  // namespace

std::vector<SavedSlot> saved_slots(const octavo_run &run) {
  std::vector<SavedSlot> saved;
  for (const octavo_slot &s : run.slots()) {
    const bool native = (s.flags & OCTAVO_SLOT_NATIVE) != 0;
    if ((s.flags & OCTAVO_SLOT_CHECKPOINT) == 0 || native) continue;
    saved.push_back({s.id, run.slot_keys()[s.id]});
  }
  return saved;
}

CheckpointTensor tensor_of(const octavo_slot &slot, const std::string &key) {
  const char *dtype = checkpoint_dtype(slot.dtype);
  if (dtype == nullptr)
    fail_checkpoint(OCTAVO_UNSUPPORTED, "tensor " + in_quotes(key),
                    "expected a dtype that the safetensors format has a name for, found ",
                    slot.dtype);
  return {dtype, {static_cast<uint64_t>(slot.rows), static_cast<uint64_t>(slot.cols)}, 0, 0};
}

std::map<std::string, std::string> run_texts(const octavo_run &run,
                                             const std::vector<SavedSlot> &slots) {
  const std::string &hash = run.negotiation().config[key::kCheckpointHash];
  const HashKind kind = hash == "blake2b" ? HashKind::kBlake2b : HashKind::kXxh3;
  std::map<std::string, std::string> texts = {{kSchema, schema_of(kind)},
                                              {kVersion, std::string(view(octavo_version()))},
                                              {kBackend, backend_id(run)}};
  for (const EffectiveOption &o : run.negotiation().choice()->options)
    texts[kOption + o.name] = option_text(o.setting.value);
  for (const auto &[key, text] : layer_options(run)) texts[kLayerOption + key] = text;
  for (const Candidate &layer : run.negotiation().layers)  // no numbers depend on a layer unused
    texts[kKernelLayers] += (texts[kKernelLayers].empty() ? "" : " ") + layer.id;
  texts[kLinears] = labels_text(linears_of(run), "the linears of this model");
  for (const SavedSlot &saved : slots) {
    texts[kRole + saved.key] = role_name(run.slots()[saved.id].role);
    if (const Json labels = labels_of(run.slots()[saved.id]); !labels.is_null())
      texts[kLabels + saved.key] = labels_text(labels, "tensor " + in_quotes(saved.key));
  }
  return texts;
}

void check_texts(const CheckpointHeader &found, const octavo_run &run,
                 const std::vector<SavedSlot> &slots, const std::string &where) {
  if (const std::string &id = required_text(found, kBackend, where); id != backend_id(run))
    fail_checkpoint(OCTAVO_INVALID, where, "expected a checkpoint of backend ",
                    in_quotes(backend_id(run)), ", found one of ", in_quotes(id),
                    "; set fp8.backend to it, or load another checkpoint");
  check_options(found, run, where);
  check_layer_options(found, run, where);
  for (const SavedSlot &saved : slots)
    if (found.tensors.count(saved.key) != 0)
      check_labels(found, run.slots()[saved.id], saved, where);
  check_linears(found, run, where);
}

void check_tensor(const CheckpointTensor &found, const octavo_slot &slot, const SavedSlot &saved,
                  const std::string &where) {
  const CheckpointTensor here = tensor_of(slot, saved.key);
  if (found.dtype == here.dtype && found.shape == here.shape) return;
  const auto words = [](const CheckpointTensor &t) {
    std::string text = t.dtype + " [";
    for (size_t i = 0; i < t.shape.size(); ++i) text += concat(i == 0 ? "" : ", ", t.shape[i]);
    return text + "]";
  };
  fail_checkpoint(OCTAVO_INVALID, where, "tensor ", in_quotes(saved.key), ": expected ",
                  words(here), ", found ", words(found),
                  "; describe the model and the recipe that were saved");
}

}  // namespace octavo
