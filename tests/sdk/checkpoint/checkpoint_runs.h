// Stores of the msamp backend at O3, which have slots of every dtype and kind: pools with labels,
// replicated weights, WHOLE states. Every byte has a value that depends on the slot alone.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/model.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {

using Bytes = std::vector<unsigned char>;

struct CheckpointModel {
  std::string backend = "msamp";
  std::map<std::string, std::string> texts = {{"opt_level", "O3"}};
  std::map<std::string, int64_t> numbers;
  std::map<std::string, std::string> rules;  // keys below layers.rule
  std::vector<std::string> linears = {"up", "down", "out"};
  int64_t width = 8;
  bool with_bias = true;
  std::string run_id;  // empty: that of this process
  std::string hash;    // empty: the default
};

// The names of everything in a directory, in order.
inline std::vector<std::string> files_in(const std::string &directory) {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// One rank.
struct CheckpointRun {
  Request request;
  RunPtr run;
  StorePtr store;

  octavo_store *s() const { return store.get(); }
  octavo_run *r() const { return run.get(); }
  std::string error() const { return request.host.error(); }
  uint32_t count() const { return octavo_run_slot_count(r()); }
  const octavo_slot &slot(uint32_t id) const { return *octavo_run_slot(r(), id); }
  static size_t bytes_of(const octavo_slot &s) {
    return static_cast<size_t>(s.rows * s.cols) * OCTAVO_DTYPE_BITS(s.dtype) / 8;
  }
  bool is_saved(uint32_t id) const {
    return (slot(id).flags & OCTAVO_SLOT_CHECKPOINT) != 0 &&
           (slot(id).flags & OCTAVO_SLOT_NATIVE) == 0;
  }
  // Random bytes in every slot of this store; equal in every store of the model.
  void fill(unsigned seed) const {
    for (uint32_t id = 0; id < count(); ++id) {
      auto *p = static_cast<unsigned char *>(octavo_store_address(s(), id));
      if (p == nullptr) continue;
      std::mt19937 random(seed * 1000 + id);
      for (size_t i = 0; i < bytes_of(slot(id)); ++i) p[i] = static_cast<unsigned char>(random());
    }
  }
  // The content of the slots of this rank, by id: of all, or of those in a checkpoint.
  std::map<uint32_t, Bytes> content(bool all) const {
    std::map<uint32_t, Bytes> found;
    for (uint32_t id = 0; id < count(); ++id) {
      const auto *p = static_cast<const unsigned char *>(octavo_store_address(s(), id));
      if (p != nullptr && (all || is_saved(id))) found[id] = Bytes(p, p + bytes_of(slot(id)));
    }
    return found;
  }
  octavo_status save(const std::string &directory, uint64_t step) const {
    return octavo_store_save(s(), borrow(directory), step);
  }
  octavo_status load(const std::string &directory, uint64_t *step = nullptr) const {
    return octavo_store_load(s(), borrow(directory), step);
  }
};

class CheckpointTest : public testing::Test {
 protected:
  std::unique_ptr<CheckpointRun> open(const CheckpointModel &m = {}, uint32_t rank = 0,
                                      uint32_t world = 1) {
    auto r = std::make_unique<CheckpointRun>();
    r->request.set("plugins.trust", "dev").set("fp8.backend", m.backend);
    if (!m.run_id.empty()) r->request.set("checkpoint.run_id", m.run_id);
    if (!m.hash.empty()) r->request.set("checkpoint.hash", m.hash);
    for (const auto &[key, value] : m.texts) r->request.set("fp8." + m.backend + "." + key, value);
    for (const auto &[key, value] : m.rules) r->request.set("layers.rule." + key, value);
    for (const auto &[key, value] : m.numbers) {
      r->request.set("fp8." + m.backend + "." + key, value);
    }
    EXPECT_EQ(r->request.open(r->run), OCTAVO_OK) << r->error();
    add(*r, m);
    octavo_store *raw = nullptr;
    EXPECT_EQ(octavo_store_open_sharded(r->r(), rank, world, &raw), OCTAVO_OK) << r->error();
    r->store.reset(raw);
    return r;
  }
  // Describes the model and seals.
  void add(const CheckpointRun &r, const CheckpointModel &m) {
    for (const std::string &name : m.linears) {
      const Answer w = add_weight(r.r(), name + ".weight", 2 * m.width, m.width);
      ASSERT_EQ(w.status, OCTAVO_OK) << r.error();
      ASSERT_EQ(add_linear(r.r(), name, w.id).status, OCTAVO_OK) << r.error();
    }
    if (m.with_bias) {
      ASSERT_EQ(add_parameter(r.r(), parameter_desc("bias", 1, m.width, 0)).status, OCTAVO_OK);
    }
    ASSERT_EQ(octavo_seal(r.r()), OCTAVO_OK) << r.error();
  }
  std::vector<std::unique_ptr<CheckpointRun>> open_world(uint32_t world,
                                                         const CheckpointModel &m = {}) {
    std::vector<std::unique_ptr<CheckpointRun>> all;
    for (uint32_t rank = 0; rank < world; ++rank) all.push_back(open(m, rank, world));
    return all;
  }
  // A checkpoint of this world in a directory of its own; returns its path.
  std::string saved(const std::string &name, uint32_t world, uint64_t step, unsigned seed = 1,
                    const CheckpointModel &m = {}) {
    const std::string directory = dir / name;
    for (const auto &r : open_world(world, m)) {
      r->fill(seed);
      EXPECT_EQ(r->save(directory, step), OCTAVO_OK) << r->error();
    }
    return directory;
  }
  // Loads, expects a refusal with these words and an unchanged store.
  void expect_refused(const CheckpointRun &r, const std::string &directory, octavo_status status,
                      const std::vector<std::string> &words) {
    r.fill(77);
    const auto before = r.content(true);
    uint64_t step = 12345;
    EXPECT_EQ(r.load(directory, &step), status) << r.error();
    EXPECT_EQ(step, 12345u);
    EXPECT_TRUE(r.content(true) == before) << "the store changed";
    for (const std::string &word : words) EXPECT_THAT(r.error(), testing::HasSubstr(word));
    for (const char *word : {"expected", "found", "; "})
      EXPECT_THAT(r.error(), testing::HasSubstr(word));
  }

  Environment environment;
  TempDir dir;
};

}  // namespace octavo::test
