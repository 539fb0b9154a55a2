// Null where octavo.h wants an address: every such function answers OCTAVO_INVALID, writes nothing
// and tells the host which argument of which function it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "octavo/draft/reduction.h"
#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

class GivenTest : public testing::Test {
 protected:
  void SetUp() override {
    put_fake(dir, "plugins");
    request.set("plugins.trust", "dev").set("fp8.backend", "fake").plugins(dir / "plugins");
    ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
    desc = request.desc();
    desc.host = given.get();
    r = run.get();
    linear.size = sizeof(linear);
    linear.kind = OCTAVO_KIND_LINEAR_DESC;
    linear.name = borrow(name);
  }

  struct Case {
    std::string function;
    std::string argument;
    bool is_of_run;  // else the message goes to the host of the description
    std::function<octavo_status()> call;
  };
  std::vector<Case> cases() {
    const octavo_str text = borrow(format);
    return {
        {"octavo_open", "out", false, [=, this] { return octavo_open(&desc, nullptr); }},
        {"octavo_explain", "line", false,
         [=, this] { return octavo_explain(&desc, text, nullptr, nullptr); }},
        {"octavo_list", "line", false,
         [=, this] { return octavo_list(&desc, text, nullptr, nullptr); }},
        {"octavo_probe", "line", false,
         [=, this] { return octavo_probe(&desc, text, nullptr, nullptr); }},
        {"octavo_check_config", "line", false,
         [=, this] { return octavo_check_config(&desc, text, nullptr, nullptr); }},
        {"octavo_lock", "line", false, [=, this] { return octavo_lock(&desc, nullptr, nullptr); }},
        {"octavo_report", "line", true,
         [=, this] { return octavo_report(r, text, nullptr, nullptr); }},
        {"octavo_add_parameter", "d", true,
         [=, this] { return octavo_add_parameter(r, nullptr, nullptr, &id); }},
        {"octavo_add_parameter", "id", true,
         [=, this] { return octavo_add_parameter(r, &parameter, nullptr, nullptr); }},
        {"octavo_add_linear", "d", true,
         [=, this] { return octavo_add_linear(r, nullptr, nullptr, &id); }},
        {"octavo_add_linear", "id", true,
         [=, this] { return octavo_add_linear(r, &linear, nullptr, nullptr); }},
        {"octavo_store_open", "out", true, [=, this] { return octavo_store_open(r, nullptr); }},
        {"octavo_store_over", "slots", true,
         [=, this] { return octavo_store_over(r, nullptr, nullptr, &opened); }},
        {"octavo_store_over", "out", true,
         [=, this] { return octavo_store_over(r, &nothing, nullptr, nullptr); }},
        {"octavo_store_open_sharded", "out", true,
         [=, this] { return octavo_store_open_sharded(r, 0, 1, nullptr); }},
        {"octavo_reduction_bytes", "parameters", true,
         [=, this] { return octavo_reduction_bytes(r, nullptr, 1, 1, &bytes, &bytes); }},
        {"octavo_reduction_bytes", "buffer_bytes", true,
         [=, this] { return octavo_reduction_bytes(r, &parameter_id, 1, 1, nullptr, &bytes); }},
        {"octavo_reduction_bytes", "state_bytes", true,
         [=, this] { return octavo_reduction_bytes(r, &parameter_id, 1, 1, &bytes, nullptr); }},
        {"octavo_reduce_gradients", "items", true,
         [=, this] {
           return octavo_reduce_gradients(r, nullptr, 1, nullptr, nullptr, nullptr, nullptr,
                                          nullptr);
         }},
    };
  }

  Environment environment;
  TempDir dir;
  Request request;
  RecordingHost given;
  RunPtr run;
  octavo_run *r = nullptr;
  octavo_open_desc desc = {};
  const std::string format = "text", name = "layer";
  const octavo_parameter_desc parameter = parameter_desc("w", 4, 8);
  octavo_linear_desc linear = {};
  const uint32_t parameter_id = 0;
  uint32_t id = 12345;
  uint64_t bytes = 12345;
  void *const nothing = nullptr;
  octavo_store *opened = nullptr;
};

TEST_F(GivenTest, null_is_refused_and_named) {
  for (const Case &c : cases()) {
    const size_t of_run = request.host.all().size(), of_desc = given.all().size();
    EXPECT_EQ(c.call(), OCTAVO_INVALID) << c.function;
    const std::vector<Diagnostic> said = (c.is_of_run ? request.host : given).all();
    ASSERT_EQ(said.size(), (c.is_of_run ? of_run : of_desc) + 1) << c.function << c.argument;
    EXPECT_EQ((c.is_of_run ? given : request.host).all().size(), c.is_of_run ? of_desc : of_run);
    std::string text = c.function;
    text += ": expected an address as \"";
    text += c.argument;
    text += "\", found null; pass the argument that octavo/octavo.h describes";
    EXPECT_EQ(said.back().text, text);
    EXPECT_EQ(said.back().domain, "octavo.arguments");
    EXPECT_EQ(said.back().code, OCTAVO_INVALID);
    EXPECT_EQ(said.back().severity, static_cast<uint32_t>(OCTAVO_SEVERITY_ERROR));
  }
  EXPECT_EQ(id, 12345u);
  EXPECT_EQ(bytes, 12345u);
  EXPECT_EQ(octavo_seal(r), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(octavo_run_use_count(r, OCTAVO_OWNER_PARAMETER, 0), 0u);  // nothing was added
}

// The fields of another struct mean other things.
TEST_F(GivenTest, another_kind_is_refused_and_named) {
  const uint32_t kind = desc.kind;
  for (const uint32_t other : {uint32_t{0}, uint32_t{OCTAVO_KIND_LINEAR_DESC}, kind + 1000}) {
    desc.kind = other;
    octavo_run *raw = nullptr;
    EXPECT_EQ(octavo_open(&desc, &raw), OCTAVO_INVALID);
    EXPECT_EQ(raw, nullptr);
    EXPECT_EQ(given.error(), "octavo_open: expected a struct of kind " + std::to_string(kind) +
                                 ", found kind " + std::to_string(other) +
                                 "; set its size and kind");
  }
}

// Half a pointer is none: a size that ends inside `host` opens a run without a host.
TEST_F(GivenTest, description_that_ends_inside_a_pointer) {
  desc.size = OCTAVO_SIZE_THROUGH(octavo_open_desc, host) - 4;
  octavo_run *raw = nullptr;
  ASSERT_EQ(octavo_open(&desc, &raw), OCTAVO_OK);
  const RunPtr other(raw);
  EXPECT_EQ(octavo_add_parameter(raw, nullptr, nullptr, &id), OCTAVO_INVALID);
  EXPECT_TRUE(given.all().empty());
}

// What may be null is: the fields of a collective and a checkpoint's folder have words of their
// own.
TEST_F(GivenTest, structs_and_texts_of_a_store) {
  octavo_store *raw = nullptr;
  ASSERT_EQ(octavo_seal(r), OCTAVO_OK) << request.host.error();
  ASSERT_EQ(octavo_store_open(r, &raw), OCTAVO_OK) << request.host.error();
  const StorePtr store(raw);
  const std::pair<const char *, std::function<octavo_status()>> calls[] = {
      {"octavo_store_reduce", [=] { return octavo_store_reduce(raw, nullptr, nullptr); }},
      {"octavo_store_publish", [=] { return octavo_store_publish(raw, nullptr, nullptr); }},
      {"octavo_store_save",
       [=] {
         return octavo_store_save(raw, {nullptr, 0}, 0);
       }},
      {"octavo_store_load",
       [=] {
         return octavo_store_load(raw, {nullptr, 0}, nullptr);
       }},
      {"octavo_reduce_gradients",
       [=, this] {
         return octavo_reduce_gradients(r, nullptr, 0, nullptr, nullptr, nullptr, nullptr, nullptr);
       }},
  };
  for (const auto &[function, call] : calls) {
    const size_t before = request.host.all().size();
    EXPECT_EQ(call(), OCTAVO_INVALID) << function;
    ASSERT_EQ(request.host.all().size(), before + 1) << function;
    EXPECT_THAT(request.host.error(),
                testing::AllOf(testing::HasSubstr(function), testing::HasSubstr("expected "),
                               testing::HasSubstr("found ")));
  }
}

// Without a host no message is sent, nor with a handle that is none.
TEST_F(GivenTest, nobody_to_tell) {
  const size_t before = request.host.all().size();
  EXPECT_EQ(octavo_open(nullptr, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_threads_open(1, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_ranks_open(1, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_store_open(nullptr, nullptr), OCTAVO_INVALID);
  run.reset();
  EXPECT_EQ(octavo_add_linear(r, nullptr, nullptr, nullptr), OCTAVO_WRONG_STATE);
  EXPECT_EQ(request.host.all().size(), before);
}

}  // namespace
}  // namespace octavo::test
