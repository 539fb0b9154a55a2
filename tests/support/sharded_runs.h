// Runs of the plugin of tests/sdk/sharded_plugin.cpp, one a rank, each with its store.
//
// OCTAVO_SHARDED_PLUGIN is the path of its library.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {

struct ShardedParameter {
  std::string name;
  int64_t rows;
  int64_t cols;
  bool is_frozen = false;
};

// One rank.
struct ShardedRun {
  Request request;
  RunPtr run;
  StorePtr store;

  octavo_store *s() const { return store.get(); }
  std::string error() const { return request.host.error(); }
  // The slot of a parameter, or of the session with OCTAVO_NONE.
  const octavo_slot *slot(uint32_t parameter, const std::string &name) const {
    for (uint32_t id = 0; id < octavo_run_slot_count(run.get()); ++id) {
      const octavo_slot *candidate = octavo_run_slot(run.get(), id);
      const bool session = candidate->owner_kind == OCTAVO_OWNER_SESSION;
      if (session == (parameter == OCTAVO_NONE) && (session || candidate->owner == parameter) &&
          text_of(candidate->name) == name)
        return candidate;
    }
    ADD_FAILURE() << "no slot " << name;
    return nullptr;
  }
  void *address(uint32_t parameter, const std::string &name) const {
    return octavo_store_address(store.get(), slot(parameter, name)->id);
  }
  void add(const std::vector<ShardedParameter> &parameters) {
    for (const ShardedParameter &p : parameters)
      ASSERT_EQ(add_parameter(run.get(), parameter_desc(p.name.c_str(), p.rows, p.cols,
                                                        p.is_frozen ? OCTAVO_PARAMETER_FROZEN : 0))
                    .status,
                OCTAVO_OK);
  }
  void seal(const std::vector<ShardedParameter> &parameters) {
    add(parameters);
    ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK) << error();
  }
};

class ShardedTest : public testing::Test {
 public:
  int calls = 0;  // that reached counted()
  octavo_status answer = OCTAVO_OK;
  octavo_status count() {
    ++calls;
    return answer;
  }

 protected:
  // A collective that exchanges nothing, counts its calls and answers `answer`.
  octavo_collective counted(uint32_t world) {
    octavo_collective c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_COLLECTIVE;
    c.ctx = this;
    c.world = world;
    c.run = [](void *ctx, uint32_t, uint32_t, const void *, uint64_t, void *, uint64_t, void *) {
      return static_cast<ShardedTest *>(ctx)->count();
    };
    c.broadcast = [](void *ctx, uint32_t, void *, uint64_t, void *) {
      return static_cast<ShardedTest *>(ctx)->count();
    };
    return c;
  }
  void SetUp() override {
    dir.copy(OCTAVO_SHARDED_PLUGIN, "plugins/sharded.so");
    dir.write(
        "plugins/sharded.octavo-plugin.toml",
        std::string("manifest_version = 1\n[plugin]\nname = \"sharded\"\nversion = \"1.0\"\n") +
            "description = \"computes nothing\"\n[abi]\nmajor = 1\nminor = 0\n[library]\n" +
            kTuple + " = \"sharded.so\"\n");
  }
  std::unique_ptr<ShardedRun> open_run(const std::string &fault = "none") {
    auto r = std::make_unique<ShardedRun>();
    r->request.set("plugins.trust", "dev")
        .set("fp8.backend", "sharded")
        .set("plugins.probe", "never")  // it computes nothing
        .set("fp8.sharded.fault", fault)
        .plugins(dir / "plugins");
    EXPECT_EQ(r->request.open(r->run), OCTAVO_OK) << r->error();
    return r;
  }
  void open_store(ShardedRun &r, uint32_t rank, uint32_t world) {
    octavo_store *raw = nullptr;
    ASSERT_EQ(octavo_store_open_sharded(r.run.get(), rank, world, &raw), OCTAVO_OK) << r.error();
    r.store.reset(raw);
  }
  // All ranks of a world with the same model.
  std::vector<std::unique_ptr<ShardedRun>> open_world(
      uint32_t world, const std::vector<ShardedParameter> &parameters,
      const std::string &fault = "none") {
    std::vector<std::unique_ptr<ShardedRun>> all;
    for (uint32_t rank = 0; rank < world; ++rank) {
      all.push_back(open_run(fault));
      all.back()->seal(parameters);
      open_store(*all.back(), rank, world);
    }
    return all;
  }

  Environment environment;
  TempDir dir;
};

}  // namespace octavo::test
