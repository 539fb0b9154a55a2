// Options on their way from the configuration to a plugin: the fake reports what it saw.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/request.h"

namespace octavo::test {
namespace {

using testing::ElementsAre;

class FakeOptions : public testing::Test {
 protected:
  FakeOptions() { put_fake(dir, "plugins"); }
  Request &request() {
    return request_.set("fp8.backend", "fake").set("plugins.trust", "dev").plugins(dir / "plugins");
  }
  // What check_session of the plugin saw.
  std::vector<std::string> seen() const { return request_.host.texts(OCTAVO_SEVERITY_INFO); }

  Environment environment;
  TempDir dir;
  Request request_;
  RunPtr run;
};

TEST_F(FakeOptions, defaults) {
  ASSERT_EQ(request().open(run), OCTAVO_OK) << request_.host.error();
  EXPECT_THAT(seen(), ElementsAre("count=4 ratio=0.5 verbose=0 mode=exact note="));
}

TEST_F(FakeOptions, every_type_by_file) {
  const std::string path = dir.write("octavo.toml",
                                     "[fp8.fake]\ncount = 1000000\nratio = 0.125\nverbose = true\n"
                                     "mode = \"fast\"\nnote = \"a b = c\"\n");
  ASSERT_EQ(request().path(path).open(run), OCTAVO_OK) << request_.host.error();
  EXPECT_THAT(seen(), ElementsAre("count=1000000 ratio=0.125 verbose=1 mode=fast note=a b = c"));
}

TEST_F(FakeOptions, every_type_by_override) {
  request()
      .set("fp8.fake.count", 2)
      .set("fp8.fake.ratio", 1)
      .set("fp8.fake.verbose", true)
      .set("fp8.fake.mode", "fast")
      .set("fp8.fake.note", "x");
  ASSERT_EQ(request_.open(run), OCTAVO_OK) << request_.host.error();
  EXPECT_THAT(seen(), ElementsAre("count=2 ratio=1 verbose=1 mode=fast note=x"));
}

TEST_F(FakeOptions, override_wins_over_the_file) {
  request().text("[fp8.fake]\ncount = 2\nnote = \"file\"\n").set("fp8.fake.count", 3);
  ASSERT_EQ(request_.open(run), OCTAVO_OK) << request_.host.error();
  EXPECT_THAT(seen(), ElementsAre("count=3 ratio=0.5 verbose=0 mode=exact note=file"));
}

TEST_F(FakeOptions, wrong_ones_never_reach_the_plugin) {
  request().set("fp8.fake.count", 0);
  EXPECT_EQ(request_.open(run), OCTAVO_INVALID);
  EXPECT_EQ(request_.host.error(), "override: fp8.fake.count: expected at least 1, found 0");
  EXPECT_THAT(seen(), ElementsAre());
}

TEST_F(FakeOptions, session_description_shows_them) {
  ASSERT_EQ(request().set("fp8.fake.note", "kept").open(run), OCTAVO_OK) << request_.host.error();
  const octavo_session_desc *d = octavo_run_session_desc(run.get());
  ASSERT_NE(d, nullptr);
  ASSERT_EQ(d->option_count, 5u);
  EXPECT_EQ(text_of(d->options[0].name), "count");
  EXPECT_EQ(d->options[0].value.integer, 4);
  EXPECT_EQ(d->options[1].value.real, 0.5);
  EXPECT_EQ(text_of(d->options[4].value.text), "kept");
}

TEST_F(FakeOptions, table_of_a_backend_that_is_not_installed) {
  request().text("[fp8.fakee]\ncount = 1\n");
  EXPECT_EQ(request_.open(run), OCTAVO_INVALID);
  EXPECT_EQ(request_.host.error(),
            "octavo.toml:2:1: table [fp8.fakee]: no backend \"fakee\" is installed; did you mean "
            "[fp8.fake]?");
}

TEST_F(FakeOptions, check_config_looks_at_backends_that_are_not_chosen) {
  request().set("fp8.backend", "te").set("fp8.fake.count", 0);
  std::string out;
  EXPECT_EQ(request_.print(octavo_check_config, "text", out), OCTAVO_INVALID);
  EXPECT_EQ(request_.host.error(), "override: fp8.fake.count: expected at least 1, found 0");
}

}  // namespace
}  // namespace octavo::test
