// Reading files, the split by whole files, and the batches.
#include "corpus.h"

#include <octavo/hpp/regular_file.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "host_adapters/standalone/error.h"
#include "parameter.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostBytes = 1 << 30;  // of one file; the program keeps all of them in memory

struct File {
  std::string name, bytes;
};

File read_file(const std::string &path) {
  octavo::RegularFile file(path);
  std::optional<std::string> bytes = file.text(kMostBytes);
  expect(bytes.has_value(), path, "a readable file of text, or a directory of them", file.problem(),
         "correct --text, or the permissions of the file and of its directories");
  expect(!bytes->empty(), path, "a file with text in it", "an empty file",
         "remove it from --text, or fill it");
  return {path, std::move(*bytes)};
}

std::vector<File> read_all(const std::vector<std::string> &paths) {
  std::vector<File> all;
  for (const std::string &path : paths) {
    std::error_code error;
    std::vector<fs::path> inside;
    if (!fs::is_directory(path, error)) {
      inside.emplace_back(path);
    } else {
      for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
        if (fs::is_regular_file(it->symlink_status())) inside.push_back(it->path());
      expect(!error, path, "a readable directory", error.message(), "check its permissions");
      expect(!inside.empty(), path, "a directory with text files", "no regular file in it",
             "name another directory or single files with --text");
      std::sort(inside.begin(), inside.end());
    }
    for (const fs::path &file : inside) all.push_back(read_file(file.string()));
  }
  return all;
}

// Walks the files in order and holds one out whenever the held-out share has fallen behind a tenth
// by half of that file. Empty when no choice of this kind comes near a tenth.
std::vector<bool> held_out(const std::vector<File> &files) {
  std::vector<bool> out(files.size(), false);
  double seen = 0.0;
  double held = 0.0;
  for (size_t i = 0; i < files.size(); ++i) {
    const auto size = static_cast<double>(files[i].bytes.size());
    seen += size;
    if (seen / 10.0 - held >= size / 2.0) {
      out[i] = true;
      held += size;
    }
  }
  const bool near = held >= seen / 20.0 && held <= seen / 5.0;
  return near ? out : std::vector<bool>();
}

double entropy(const std::vector<File> &files) {
  std::array<double, 256> count = {};
  double total = 0.0;
  for (const File &file : files) {
    for (const char byte : file.bytes) count[static_cast<unsigned char>(byte)] += 1.0;
    total += static_cast<double>(file.bytes.size());
  }
  double nats = 0.0;
  for (const double c : count) nats -= c > 0.0 ? c / total * std::log(c / total) : 0.0;
  return nats;
}

void add_window(Batch &batch, const std::vector<unsigned char> &bytes, int64_t start,
                int64_t context) {
  const auto first = bytes.begin() + start;
  batch.tokens.insert(batch.tokens.end(), first, first + context);
  batch.targets.insert(batch.targets.end(), first + 1, first + 1 + context);
  ++batch.sequences;
}

}  // namespace

Corpus load_corpus(const std::vector<std::string> &paths, int64_t context) {
  const std::vector<File> files = read_all(paths);
  Corpus corpus;
  corpus.unigram_entropy = entropy(files);
  const std::vector<bool> out = held_out(files);
  for (size_t i = 0; i < files.size(); ++i) {
    const bool held = !out.empty() && out[i];
    auto &part = held ? corpus.validation : corpus.train;
    part.insert(part.end(), files[i].bytes.begin(), files[i].bytes.end());
    (held ? corpus.validation_files : corpus.train_files).push_back(files[i].name);
  }
  corpus.split = "whole files are held out for validation";
  if (out.empty()) {
    const size_t kept = corpus.train.size() - corpus.train.size() / 10;
    corpus.validation.assign(corpus.train.begin() + static_cast<int64_t>(kept), corpus.train.end());
    corpus.train.resize(kept);
    corpus.validation_files.push_back(files.back().name + " (its end)");
    corpus.split = files.size() == 1
                       ? "one file: its last tenth is held out for validation"
                       : "no whole files make up a tenth: the last tenth of all bytes is held out";
  }
  for (const auto &[part, bytes] : {std::pair("training", corpus.train.size()),
                                    std::pair("validation", corpus.validation.size())}) {
    expect(bytes > static_cast<size_t>(context), "--text",
           "at least " + std::to_string(context + 1) + " bytes of " + part +
               " text, one context and the byte after it",
           std::to_string(bytes) + " bytes", "give more text, or a smaller --context");
  }
  return corpus;
}

Batch training_batch(const Corpus &corpus, int64_t sequences, int64_t context, uint64_t seed,
                     int64_t step) {
  Random random(seed, static_cast<uint64_t>(step) + 1);
  Batch batch;
  const int64_t starts = static_cast<int64_t>(corpus.train.size()) - context;
  for (int64_t i = 0; i < sequences; ++i)
    add_window(batch, corpus.train, random.below(starts), context);
  return batch;
}

std::vector<Batch> validation_batches(const Corpus &corpus, int64_t sequences, int64_t context,
                                      int64_t limit) {
  const int64_t windows = (static_cast<int64_t>(corpus.validation.size()) - 1) / context;
  const int64_t used = std::min(windows, sequences * limit);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < used; ++i) {
    if (i % sequences == 0) batches.emplace_back();
    add_window(batches.back(), corpus.validation, i * windows / used * context, context);
  }
  return batches;
}

}  // namespace gpt
