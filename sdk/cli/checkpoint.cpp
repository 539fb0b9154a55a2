// octavo checkpoint: checks, lists and compares checkpoints by their hashes; no plugin code runs.
#include <cstdio>
#include <map>
#include <memory>

#include "common.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/checkpoint/checkpoint_set.h"
#include "sdk/src/checkpoint/checkpoint_texts.h"
#include "sdk/src/checkpoint/checkpoint_work.h"

namespace octavo::cli {
namespace {

// A tensor in the file of one rank, as the texts of a table.
struct Listed {
  std::string key, dtype, shape, role, blake2b;
  uint32_t rank = 0;
  uint64_t bytes = 0;
};

// From files that anybody may have written: nothing that a terminal would obey.
std::string plain(const std::string &text) {
  return take_words(text.c_str());
}

int report(const Failure &f) {
  std::fprintf(stderr, "error: %s\n", plain(f.text()).c_str());
  return f.status() == OCTAVO_RESOURCE ? kInternal : kRefused;
}

std::string text_or(const CheckpointHeader &header, const std::string &key, const char *none) {
  const std::string *text = header.text(key);
  return plain(text == nullptr ? none : *text);
}

std::string shape_of(const CheckpointTensor &t) {
  std::string text = "[";
  for (const uint64_t size : t.shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

std::vector<Listed> list_file(const CheckpointFile &file, uint32_t rank) {
  std::vector<Listed> all;
  for (const auto &[key, t] : file.header().tensors)
    all.push_back({plain(key), t.dtype, shape_of(t), text_or(file.header(), kRole + key, "-"),
                   text_or(file.header(), hash_key(file.hash_kind(), key), "-"), rank,
                   t.end - t.begin});
  return all;
}

void print_head(const std::string &directory, const CheckpointSet &set) {
  const CheckpointFile file = set.open(0);
  std::printf("checkpoint  %s\n", directory.c_str());
  std::printf("run         %s\n", plain(set.manifest().run_id).c_str());
  std::printf("step        %llu\n", static_cast<unsigned long long>(set.manifest().step));
  std::printf("ranks       %u\n", set.world());
  std::printf("backend     %s, saved by octavo %s\n",
              text_or(file.header(), "octavo.backend", "-").c_str(),
              text_or(file.header(), kVersion, "-").c_str());
}

// Goes on after damage: all of it is worth knowing.
int verify(const std::string &directory) {
  try {
    const CheckpointSet set(directory);
    int worst = kOk;
    uint64_t tensors = 0, bytes = 0;
    for (uint32_t rank = 0; rank < set.world(); ++rank) {
      try {
        const CheckpointFile file = set.open(rank);
        std::vector<std::string> keys;
        std::vector<uint64_t> sizes;
        for (const auto &[key, t] : file.header().tensors) {
          keys.push_back(key);
          sizes.push_back(t.end - t.begin);
        }
        std::vector<std::unique_ptr<Failure>> failures(keys.size());
        work_on_tensors(sizes, [&](size_t i) {
          try {
            file.verify(keys[i]);
          } catch (const Failure &f) {
            failures[i] = std::make_unique<Failure>(f);
          }
        });
        for (const auto &f : failures)
          if (f != nullptr) worst = std::max(worst, report(*f));
        tensors += keys.size();
        bytes += file.bytes();
      } catch (const Failure &f) {
        worst = std::max(worst, report(f));
      }
    }
    if (worst == kOk)
      std::printf("%s: step %llu of run %s: %u files, %llu tensors, %llu bytes, all as saved\n",
                  directory.c_str(), static_cast<unsigned long long>(set.manifest().step),
                  plain(set.manifest().run_id).c_str(), set.world(),
                  static_cast<unsigned long long>(tensors), static_cast<unsigned long long>(bytes));
    return worst;
  } catch (const Failure &f) {
    return report(f);
  }
}

int show(const std::string &directory) {
  try {
    const CheckpointSet set(directory);
    std::vector<Listed> all;
    for (uint32_t rank = 0; rank < set.world(); ++rank)
      for (Listed &t : list_file(set.open(rank), rank)) all.push_back(std::move(t));
    print_head(directory, set);
    size_t width = 6;
    for (const Listed &t : all) width = std::max(width, t.key.size());
    std::printf("\n%4s  %-*s  %-8s %-16s %12s  %-13s %s\n", "rank", static_cast<int>(width),
                "tensor", "dtype", "shape", "bytes", "role", "BLAKE2b");
    for (const Listed &t : all)
      std::printf("%4u  %-*s  %-8s %-16s %12llu  %-13s %s\n", t.rank, static_cast<int>(width),
                  t.key.c_str(), t.dtype.c_str(), t.shape.c_str(),
                  static_cast<unsigned long long>(t.bytes), t.role.c_str(), t.blake2b.c_str());
    return kOk;
  } catch (const Failure &f) {
    return report(f);
  }
}

// By key, and by rank where both have as many; else of the first rank that has it.
using Tensors = std::map<std::pair<std::string, uint32_t>, Listed>;
Tensors tensors_of(const CheckpointSet &set, bool by_rank) {
  Tensors all;
  for (uint32_t rank = 0; rank < set.world(); ++rank)
    for (const Listed &t : list_file(set.open(rank), rank))
      all.emplace(std::pair(t.key, by_rank ? rank : 0), t);
  return all;
}

void print_only(const Listed &t, const std::string &directory) {
  std::printf("%s: rank %u, only in %s\n", t.key.c_str(), t.rank, directory.c_str());
}

int diff(const std::string &left, const std::string &right) {
  try {
    const CheckpointSet a(left), b(right);
    const bool by_rank = a.world() == b.world();
    const Tensors first = tensors_of(a, by_rank), second = tensors_of(b, by_rank);
    print_head(left, a);
    print_head(right, b);
    std::puts("");
    uint64_t equal = 0, different = 0;
    for (const auto &[key, t] : first) {
      const auto other = second.find(key);
      if (other == second.end()) {
        print_only(t, left);
        ++different;
        continue;
      }
      const Listed &u = other->second;
      const bool is_equal = t.dtype == u.dtype && t.shape == u.shape && t.blake2b == u.blake2b;
      ++(is_equal ? equal : different);
      if (is_equal) continue;
      std::printf("%s: rank %u: %s %s %s, and %s %s %s\n", t.key.c_str(), t.rank, t.dtype.c_str(),
                  t.shape.c_str(), t.blake2b.substr(0, 16).c_str(), u.dtype.c_str(),
                  u.shape.c_str(), u.blake2b.substr(0, 16).c_str());
    }
    for (const auto &[key, t] : second) {
      if (first.count(key) != 0) continue;
      print_only(t, right);
      ++different;
    }
    std::printf("%llu tensors equal, %llu different\n", static_cast<unsigned long long>(equal),
                static_cast<unsigned long long>(different));
    return different == 0 ? kOk : kRefused;
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
  auto directories = std::make_shared<std::pair<std::string, std::string>>();
  const auto add = [&](const char *name, const char *text) {
    CLI::App *one = command->add_subcommand(name, text);
    one->add_option("directory", directories->first, "the directory of a checkpoint")
        ->required()
        ->check(CLI::ExistingDirectory);
    return one;
  };
  add("verify", "Read every tensor of every rank against its hash")->callback([directories, &exit] {
    exit = verify(directories->first);
  });
  add("show", "List the tensors: dtype, shape, bytes, role and hash; their bytes are not read")
      ->callback([directories, &exit] { exit = show(directories->first); });
  CLI::App *two =
      add("diff", "List the tensors that differ between two checkpoints, by their hashes");
  two->add_option("other", directories->second, "the directory of the second one")
      ->required()
      ->check(CLI::ExistingDirectory);
  two->callback([directories, &exit] { exit = diff(directories->first, directories->second); });
}

}  // namespace octavo::cli
