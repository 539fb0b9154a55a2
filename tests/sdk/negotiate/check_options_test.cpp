// Options that are checked by manifests alone, and manifests that state others than the plugin has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/request.h"

namespace octavo::test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class CheckOptions : public testing::Test {
 protected:
  Request &request() { return request_.set("plugins.trust", "dev"); }
  std::string error() { return request_.host.error(); }

  Environment environment;
  TempDir dir;
  Request request_;
};

// By their manifests, so also of those that cannot be loaded; plugins of kernels alone have none.
TEST_F(CheckOptions, options_of_all_backends) {
  put_fake(dir, "plugins", "no_symbol");
  request().plugins(dir / "plugins");
  const auto schema = [&](const std::string &provides) {
    dir.write("plugins/fake.octavo-plugin.toml", fake_manifest() + provides);
    std::string out;
    EXPECT_EQ(request_.print(octavo_check_config, "schema", out), OCTAVO_OK) << error();
    return out;
  };
  const auto with = [&](const std::string &interfaces) {
    return schema("[provides]\ninterfaces = [" + interfaces + "]\n");
  };
  const auto fake = HasSubstr("\"fake\": {");
  EXPECT_THAT(schema(""), HasSubstr("\"te\": {"));
  EXPECT_THAT(schema(""), fake);
  EXPECT_THAT(schema(""), HasSubstr("not checked: its manifest has no [options]"));
  EXPECT_THAT(schema("[requires]\nos = \"plan9\"\n"),
              HasSubstr("not checked: its plugin is refused; fake requires the operating system"));
  EXPECT_THAT(schema(fake_options()), HasSubstr("\"minimum\": 1,"));
  EXPECT_THAT(with("\"octavo.backend/1\""), fake);
  EXPECT_THAT(with("\"octavo.backend/1\", \"octavo.kernels/1\""), fake);
  EXPECT_THAT(with("\"octavo.kernels/1\""), testing::Not(fake));
}

// Options are checked where the manifest may be believed, whatever the library is.
TEST_F(CheckOptions, configuration_of_a_backend_that_cannot_be_loaded) {
  put_fake(dir, "plugins", "no_symbol");
  request().plugins(dir / "plugins");
  const auto check = [&](const std::string &manifest, const std::string &text) {
    dir.write("plugins/fake.octavo-plugin.toml", manifest);
    std::string out;
    return request_.text(text).print(octavo_check_config, "text", out);
  };
  const std::string good = "[fp8.fake]\ncount = 3";
  EXPECT_EQ(check(fake_manifest() + fake_options(), good), OCTAVO_OK);
  EXPECT_EQ(check(fake_manifest() + fake_options(), "[fp8.fake]\ncount = 0"), OCTAVO_INVALID);
  EXPECT_EQ(check(fake_manifest() + "[requires]\nos = \"plan9\"\n", good), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), StartsWith("table [fp8.fake] cannot be checked: its plugin is refused; "));
  EXPECT_EQ(check(fake_manifest() + "[provides]\ninterfaces = [\"octavo.kernels/1\"]\n", good),
            OCTAVO_UNSUPPORTED);
  EXPECT_THAT(error(), HasSubstr("expected the interface octavo.backend/1 in [provides], found"));
}

// A warning names what was set, whoever set it; nothing set leaves nothing unchecked.
TEST_F(CheckOptions, options_that_no_manifest_states_are_not_checked) {
  put_fake(dir, "plugins", "no_symbol");
  const auto warnings_of = [&](const std::string &text) {
    Request r;
    std::string out;
    r.text("plugins.trust = \"dev\"\n" + text).plugins(dir / "plugins");
    EXPECT_EQ(r.print(octavo_check_config, "text", out), OCTAVO_OK) << r.host.error();
    return r.host.texts(OCTAVO_SEVERITY_WARNING);
  };
  EXPECT_THAT(warnings_of("fp8.backend = \"fake\"\n[fp8.fake]\n"), ElementsAre());
  EXPECT_THAT(
      warnings_of("fp8.fake.window = 16\n"),
      ElementsAre("the options of backend fake, such as fp8.fake.window (octavo.toml:2:10), "
                  "were not checked: " +
                  (dir / "plugins/fake.octavo-plugin.toml") +
                  " has no [options], and no code of the plugin runs here; `octavo check "
                  "--set fp8.backend=fake` asks the plugin"));
  EXPECT_THAT(warnings_of("[[layers.rule]]\nmatch = \"x\"\nfp8.fake.window = 16\n"),
              ElementsAre(HasSubstr("such as layers.rule.0.fp8.fake.window (octavo.toml:4:10), ")));
  environment.set("OCTAVO_FP8_FAKE_WINDOW", "16");
  EXPECT_THAT(warnings_of("fp8.backend = \"fake\"\n"),
              ElementsAre(HasSubstr("such as OCTAVO_FP8_FAKE_WINDOW, were not checked")));
}

// A run has the plugin's own options, whatever its manifest states.
TEST_F(CheckOptions, manifest_that_states_other_options_than_the_plugin) {
  put_fake(dir, "plugins");
  const std::string path = "plugins/fake.octavo-plugin.toml";
  const auto warning = [&](const std::string &options) {
    dir.write(path, fake_manifest() + options);
    Request r;
    r.set("plugins.trust", "dev").set("fp8.backend", "fake").set("fp8.fake.count", 7);
    const RunPtr run = r.plugins(dir / "plugins").opened();
    EXPECT_NE(run, nullptr) << r.host.error();
    EXPECT_THAT(r.host.texts(OCTAVO_SEVERITY_INFO), Contains(StartsWith("count=7 ")));
    return r.host.texts(OCTAVO_SEVERITY_WARNING);
  };
  EXPECT_THAT(warning(fake_options()), ElementsAre());
  EXPECT_THAT(warning(""), ElementsAre());
  EXPECT_THAT(
      warning("[options.count]\ndefault = 4\nlow = 1\nhigh = 5\nhelp = \"an option\"\n"),
      ElementsAre(dir / path +
                  ": [options] differs from the plugin, which counts: option count: "
                  "expected high = nothing, found 5; print it again with `octavo plugin manifest "
                  "fake --options " +
                  (dir / "plugins/fake.so") + " --only-options`"));
  EXPECT_THAT(warning("[options]\n"),
              ElementsAre(HasSubstr("expected the option count, found none")));
  EXPECT_THAT(warning(fake_options() + "[options.window]\ndefault = 1\n"),
              ElementsAre(HasSubstr("expected no option window, which the plugin does not have")));
}

}  // namespace
}  // namespace octavo::test
