// Headers are read and hashes compared. The bytes of tensors are read by verify, and to compare
// files of different hashes.
#include "sdk/cli/checkpoint/data.h"

#include <memory>

#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_header.h"

namespace octavo::cli::checkpoint {
namespace {

std::string text_of(const CheckpointHeader &header, const std::string &key) {
  const std::string *text = header.text(key);
  return text == nullptr ? "" : *text;
}

// With the hashes that the file states, or of the kind that is asked for.
std::vector<Listed> list_file(const CheckpointFile &file, uint32_t rank,
                              std::optional<HashKind> kind = {}) {
  std::vector<Listed> all;
  for (const auto &[key, t] : file.header().tensors) {
    const std::string hash = kind.value_or(file.hash_kind()) == file.hash_kind()
                                 ? text_of(file.header(), hash_key(file.hash_kind(), key))
                                 : file.hash(key, *kind);
    all.push_back(
        {key, t.dtype, text_of(file.header(), kRole + key), hash, t.shape, rank, t.bytes()});
  }
  return all;
}

Head head_of(const std::string &directory, const CheckpointSet &set) {
  const CheckpointFile file = set.open(0);
  return {directory,
          set.manifest().run_id,
          text_of(file.header(), "octavo.backend"),
          text_of(file.header(), kVersion),
          set.manifest().step,
          set.world()};
}

void verify_file(const CheckpointSet &set, uint32_t rank, Verified &all) {
  const std::string &name = set.manifest().files[rank].name;
  try {
    const CheckpointFile file = set.open(rank);
    std::vector<std::string> keys;
    std::vector<uint64_t> sizes;
    for (const auto &[key, t] : file.header().tensors) {
      keys.push_back(key);
      sizes.push_back(t.bytes());
    }
    std::vector<std::unique_ptr<Failure>> failures(keys.size());
    work_on_tensors(sizes, [&](size_t i) {
      try {
        file.verify(keys[i]);
      } catch (const Failure &f) {
        failures[i] = std::make_unique<Failure>(f);
      }
    });
    for (size_t i = 0; i < keys.size(); ++i)
      if (failures[i] != nullptr) all.failures.push_back({name, keys[i], *failures[i]});
    all.tensors += keys.size();
    all.bytes += file.bytes();
  } catch (const Failure &f) {
    all.failures.push_back({name, "", f});
  }
}

// By key, and by rank where both have as many; else of the first rank that has it.
using Tensors = std::map<std::pair<std::string, uint32_t>, Listed>;
Tensors tensors_of(const CheckpointSet &set, bool by_rank, HashKind kind) {
  Tensors all;
  for (uint32_t rank = 0; rank < set.world(); ++rank)
    for (const Listed &t : list_file(set.open(rank), rank, kind))
      all.emplace(std::pair(t.key, by_rank ? rank : 0), t);
  return all;
}

}  // namespace

Verified verify(const std::string &directory) {
  Verified all;
  all.directory = directory;
  try {
    const CheckpointSet set(directory);
    all.manifest = set.manifest();
    for (uint32_t rank = 0; rank < set.world(); ++rank) verify_file(set, rank, all);
  } catch (const Failure &f) {
    all.failures.push_back({"", "", f});
  }
  return all;
}

Shown show(const std::string &directory) {
  const CheckpointSet set(directory);
  Shown shown;
  for (uint32_t rank = 0; rank < set.world(); ++rank)
    for (Listed &t : list_file(set.open(rank), rank)) shown.tensors.push_back(std::move(t));
  shown.head = head_of(directory, set);
  return shown;
}

Compared compare(const std::string &left, const std::string &right) {
  const CheckpointSet a(left), b(right);
  const bool by_rank = a.world() == b.world();
  const HashKind kind = a.open(0).hash_kind();
  const Tensors first = tensors_of(a, by_rank, kind), second = tensors_of(b, by_rank, kind);
  Compared compared{head_of(left, a), head_of(right, b), 0, {}};
  for (const auto &[key, t] : first) {
    const auto other = second.find(key);
    if (other == second.end()) {
      compared.different.push_back({t, {}});
      continue;
    }
    const Listed &u = other->second;
    if (t.dtype == u.dtype && t.shape == u.shape && t.hash == u.hash)
      ++compared.equal;
    else
      compared.different.push_back({t, u});
  }
  for (const auto &[key, t] : second)
    if (first.count(key) == 0) compared.different.push_back({{}, t});
  return compared;
}

}  // namespace octavo::cli::checkpoint
