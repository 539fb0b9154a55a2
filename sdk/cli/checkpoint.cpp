// octavo checkpoint: checks, lists and compares checkpoints by their hashes; no plugin code runs.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "common.h"
#include "sdk/cli/checkpoint/data.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli {
namespace {

using checkpoint::Listed;
using CheckpointJson = nlohmann::json;

struct AskedCheckpoint {
  std::string directory, other;
  bool json = false;
};

// From files that anybody may have written: nothing that a terminal would obey.
std::string plain(const std::string &text) {
  return take_words(text.c_str());
}

std::string plain_or_dash(const std::string &text) {
  return text.empty() ? "-" : plain(text);
}

CheckpointJson text_or_null(const std::string &text) {
  return text.empty() ? CheckpointJson() : CheckpointJson(text);
}

int report(const Failure &f) {
  std::fflush(stdout);
  say_error("error: %s\n", plain(f.text()).c_str());
  return f.status() == OCTAVO_NO_RESOURCE ? kInternal : kRefused;
}

std::string shape_of(const Listed &t) {
  std::string text = "[";
  for (const uint64_t size : t.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

CheckpointJson json_of_tensor(const Listed &t) {
  return {{"rank", t.rank},   {"key", t.key},     {"dtype", t.dtype},
          {"shape", t.shape}, {"bytes", t.bytes}, {"role", text_or_null(t.role)},
          {"hash", t.hash}};
}

CheckpointJson json_of_head(const checkpoint::Head &head) {
  return {{"directory", head.directory},
          {"run_id", head.run_id},
          {"step", head.step},
          {"world", head.world},
          {"backend", text_or_null(head.backend)},
          {"octavo", text_or_null(head.version)}};
}

void print_head(const checkpoint::Head &head) {
  say("checkpoint  %s\n", head.directory.c_str());
  say("run         %s\n", plain(head.run_id).c_str());
  say("step        %llu\n", static_cast<unsigned long long>(head.step));
  say("ranks       %u\n", head.world);
  say("backend     %s, saved by octavo %s\n", plain_or_dash(head.backend).c_str(),
      plain_or_dash(head.version).c_str());
}

void print_verified_json(const checkpoint::Verified &v) {
  CheckpointJson j = {{"directory", v.directory}, {"run_id", nullptr},
                      {"step", nullptr},          {"world", nullptr},
                      {"tensors", v.tensors},     {"bytes", v.bytes},
                      {"ok", v.failures.empty()}, {"failures", CheckpointJson::array()}};
  if (v.manifest) {
    j["run_id"] = v.manifest->run_id;
    j["step"] = v.manifest->step;
    j["world"] = v.manifest->files.size();
  }
  for (const checkpoint::Damage &d : v.failures)
    j["failures"].push_back({{"file", text_or_null(d.file)},
                             {"tensor", text_or_null(d.tensor)},
                             {"status", status_name(d.failure.status())},
                             {"text", d.failure.text()}});
  put_json(j);
}

int verify_checkpoint(const AskedCheckpoint &asked) {
  const checkpoint::Verified v = checkpoint::verify(asked.directory);
  int worst = kOk;
  for (const checkpoint::Damage &d : v.failures) worst = std::max(worst, report(d.failure));
  if (asked.json)
    print_verified_json(v);
  else if (worst == kOk)
    say("%s: step %llu of run %s: %zu files, %llu tensors, %llu bytes, all as saved\n",
        v.directory.c_str(), static_cast<unsigned long long>(v.manifest->step),
        plain(v.manifest->run_id).c_str(), v.manifest->files.size(),
        static_cast<unsigned long long>(v.tensors), static_cast<unsigned long long>(v.bytes));
  return worst;
}

void print_tensors(const std::vector<Listed> &all) {
  size_t width = 6;
  for (const Listed &t : all) width = std::max(width, plain(t.key).size());
  say("\n%4s  %-*s  %-8s %-16s %12s  %-13s %s\n", "rank", static_cast<int>(width), "tensor",
      "dtype", "shape", "bytes", "role", "hash");
  for (const Listed &t : all)
    say("%4u  %-*s  %-8s %-16s %12llu  %-13s %s\n", t.rank, static_cast<int>(width),
        plain(t.key).c_str(), t.dtype.c_str(), shape_of(t).c_str(),
        static_cast<unsigned long long>(t.bytes), plain_or_dash(t.role).c_str(),
        plain(t.hash).c_str());
}

int show_checkpoint(const AskedCheckpoint &asked) {
  const checkpoint::Shown shown = checkpoint::show(asked.directory);
  if (!asked.json) {
    print_head(shown.head);
    print_tensors(shown.tensors);
    return kOk;
  }
  CheckpointJson j = json_of_head(shown.head);
  j["tensors"] = CheckpointJson::array();
  for (const Listed &t : shown.tensors) j["tensors"].push_back(json_of_tensor(t));
  put_json(j);
  return kOk;
}

// What a line of the text has of one side.
std::string of_difference(const Listed &t) {
  return t.dtype + " " + shape_of(t) + " " + plain(t.hash).substr(0, 16);
}

void print_compared(const checkpoint::Compared &c) {
  print_head(c.left);
  print_head(c.right);
  print_line("");
  for (const checkpoint::Difference &d : c.different) {
    const std::string words =
        d.left && d.right ? ": " + of_difference(*d.left) + ", and " + of_difference(*d.right)
                          : ", only in " + (d.left ? c.left : c.right).directory;
    say("%s: rank %u%s\n", plain(d.either().key).c_str(), d.either().rank, words.c_str());
  }
  say("%llu tensors equal, %zu different\n", static_cast<unsigned long long>(c.equal),
      c.different.size());
}

void print_compared_json(const checkpoint::Compared &c) {
  CheckpointJson different = CheckpointJson::array();
  for (const checkpoint::Difference &d : c.different)
    different.push_back({{"key", d.either().key},
                         {"rank", d.either().rank},
                         {"left", d.left ? json_of_tensor(*d.left) : CheckpointJson()},
                         {"right", d.right ? json_of_tensor(*d.right) : CheckpointJson()}});
  put_json(CheckpointJson{{"left", json_of_head(c.left)},
                          {"right", json_of_head(c.right)},
                          {"different", different},
                          {"equal", c.equal}});
}

int diff_checkpoints(const AskedCheckpoint &asked) {
  const checkpoint::Compared compared = checkpoint::compare(asked.directory, asked.other);
  if (asked.json)
    print_compared_json(compared);
  else
    print_compared(compared);
  return compared.different.empty() ? kOk : kRefused;
}

int guarded_checkpoint(int (*command)(const AskedCheckpoint &), const AskedCheckpoint &asked) {
  try {
    return command(asked);
  } catch (const Failure &f) {
    return report(f);
  }
}

}  // namespace

void add_checkpoint(CLI::App &app, int &exit) {
  CLI::App *command = app.add_subcommand(
      "checkpoint", "Check, list or compare checkpoints of octavo_store_save by their hashes");
  command->require_subcommand(1);
  command->footer(
      "Exit codes: 0 done; 1 something is damaged or not of this checkpoint, or, for diff, tensors "
      "differ; 2 wrong arguments; 3 a file is missing or cannot be read");
  auto asked = std::make_shared<AskedCheckpoint>();
  const auto add = [&](const char *name, const char *text) {
    CLI::App *one = command->add_subcommand(name, text);
    one->add_option("directory", asked->directory, "the directory of a checkpoint")
        ->required()
        ->check(CLI::ExistingDirectory);
    one->add_flag("--json", asked->json, "print JSON");
    return one;
  };
  add("verify", "Read every tensor of every rank against its hash")->callback([asked, &exit] {
    exit = guarded_checkpoint(verify_checkpoint, *asked);
  });
  add("show", "List the tensors: dtype, shape, bytes, role and hash; their bytes are not read")
      ->callback([asked, &exit] { exit = guarded_checkpoint(show_checkpoint, *asked); });
  CLI::App *two =
      add("diff", "List the tensors that differ between two checkpoints, by their hashes");
  two->add_option("other", asked->other, "the directory of the second one")
      ->required()
      ->check(CLI::ExistingDirectory);
  two->callback([asked, &exit] { exit = guarded_checkpoint(diff_checkpoints, *asked); });
}

}  // namespace octavo::cli
