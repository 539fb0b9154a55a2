// Exceptions out of a plugin's functions: caught in the helper, and again in the host for plugins
// that nothing was asked of before (plugins.probe = "never").
#include "tests/zoo/cage.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

constexpr const char *kKinds[] = {"text", "number", "object"};

class ZooThrow : public OpenCage {
 protected:
  // A plugin of its own for every case, since an opened library stays and keeps its tables.
  Request &ask(Request &own, const std::string &what, const char *probe) {
    const std::string directory = std::string(probe) + "/" + what;
    dir.copy(OCTAVO_THROWING_PLUGIN, directory + "/fake.so");
    dir.write(directory + "/fake.octavo-plugin.toml", fake_manifest());
    outer.set("FAKE_THROWS", what);
    own.text("[fp8]\npreference = [\"fake\", \"reference\"]\n")
        .set("plugins.trust", "dev")
        .set("plugins.probe", probe)
        .plugins(dir / directory);
    return own;
  }
  static std::string words_of(const std::string &kind) {
    return kind == "text" ? "it threw an exception: out of luck"
                          : "it threw an exception of unknown type";
  }

  Environment outer;
};

TEST_F(ZooThrow, in_the_helper_the_next_backend_is_taken) {
  for (const std::string function : {"query", "get_interface", "list_options", "check_session",
                                     "open_session", "linear_forward"})
    for (const char *kind : kKinds) {
      Request own;
      RunPtr opened;
      ask(own, function + " " + kind, "always");
      ASSERT_EQ(own.open(opened), OCTAVO_OK) << function << " " << own.host.error();
      EXPECT_EQ(text_of(octavo_run_backend_id(opened.get())), "reference")
          << function << " " << kind;
    }
}

// Where nobody can catch it: a thread of the plugin.
TEST_F(ZooThrow, out_of_a_thread_ends_the_helper) {
  Request own;
  ask(own, "query thread", "always").set("fp8.backend", "fake");
  RunPtr opened;
  EXPECT_EQ(own.open(opened), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(own.host.error(), HasSubstr("first ended by signal 6 (SIGABRT)"));
  EXPECT_THAT(own.host.error(), HasSubstr("\n    found: stage entry, "));
}

TEST_F(ZooThrow, in_the_host_the_next_backend_is_taken) {
  for (const std::string function : {"query", "get_interface", "list_options", "check_session"})
    for (const char *kind : kKinds) {
      Request own;
      RunPtr opened;
      ask(own, function + " " + kind, "never");
      ASSERT_EQ(own.open(opened), OCTAVO_OK) << function << " " << own.host.error();
      EXPECT_EQ(text_of(octavo_run_backend_id(opened.get())), "reference")
          << function << " " << kind;
      std::string out;
      EXPECT_EQ(own.print(octavo_explain, "text", out), OCTAVO_OK);
      EXPECT_THAT(out, HasSubstr(words_of(kind))) << function;
    }
}

TEST_F(ZooThrow, in_setup_it_is_an_error) {
  for (const std::string function :
       {"open_session", "add_parameter", "add_linear", "seal", "linear_plan"})
    for (const std::string kind : kKinds) {
      Request own;
      ask(own, function + " " + kind, "never").set("fp8.backend", "fake");
      octavo_status status = own.open(run);
      uint32_t id = 0;
      if (function != "open_session") {
        ASSERT_EQ(status, OCTAVO_OK) << own.host.error();
        status = add_weight("w", &id);
        if (status == OCTAVO_OK) status = add_linear("a", 0, &id);
        if (status == OCTAVO_OK) status = octavo_seal(run.get());
      }
      EXPECT_EQ(status, OCTAVO_INTERNAL) << function << " " << kind;
      EXPECT_THAT(own.host.error(),
                  HasSubstr(kind == "text" ? "out of luck" : "an exception of unknown type"))
          << function;
      run.reset();
    }
}

TEST_F(ZooThrow, at_the_end_it_is_a_warning) {
  for (const std::string kind : kKinds) {
    Request own;
    ask(own, "close_session " + kind, "never").set("fp8.backend", "fake");
    ASSERT_EQ(own.open(run), OCTAVO_OK) << own.host.error();
    run.reset();
    EXPECT_THAT(own.host.texts(OCTAVO_SEVERITY_WARNING),
                testing::Contains("backend fake: close_session failed, " + words_of(kind) +
                                  "; this is a defect of the plugin"));
  }
}

}  // namespace
}  // namespace octavo::test
