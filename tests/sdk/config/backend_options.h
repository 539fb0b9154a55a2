// What the session of a backend was opened with: its options, by file and by override.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/environment.h"
#include "tests/support/request.h"

namespace octavo::test {

class BackendOptions : public testing::Test {
 protected:
  // `file`: what by_override has in its file, where the override wins over it.
  explicit BackendOptions(const char *backend, const char *file = "")
      : backend_(backend), file_(file) {}

  Request &base(Request &r) const {
    return r.set("fp8.backend", backend_).set("plugins.trust", "dev");
  }
  // The option as the plugin gets it, or why the run was refused.
  std::string seen(Request &r, const std::string &name) const {
    RunPtr run;
    if (base(r).open(run) != OCTAVO_OK) return r.host.error();
    const octavo_session_desc *d = octavo_run_session_desc(run.get());
    for (uint64_t i = 0; i < d->option_count; ++i) {
      const octavo_value &v = d->options[i].value;
      if (text_of(d->options[i].name) != name) continue;
      if (v.type == OCTAVO_VALUE_INT) return std::to_string(v.integer);
      if (v.type == OCTAVO_VALUE_TEXT) return text_of(v.text);
      if (v.type == OCTAVO_VALUE_BOOL) return v.integer != 0 ? "true" : "false";
      if (v.type == OCTAVO_VALUE_REAL) return std::to_string(v.real);
      return "type " + std::to_string(v.type);
    }
    return "(absent)";
  }
  std::string by_file(const std::string &line, const std::string &name) const {
    Request r;
    return seen(r.text("[fp8." + backend_ + "]\n" + line + "\n"), name);
  }
  template <typename T>
  std::string by_override(const std::string &name, T value) const {
    Request r;
    if (!file_.empty()) r.text("[fp8." + backend_ + "]\n" + file_);
    return seen(r.set("fp8." + backend_ + "." + name, value), name);
  }
  // OCTAVO_BACKEND wins over the file.
  void expect_chosen_by_environment() {
    environment.set("OCTAVO_BACKEND", backend_);
    Request r;
    r.text("fp8.backend = \"reference\"").set("plugins.trust", "dev");
    const RunPtr run = r.opened();
    ASSERT_NE(run, nullptr) << r.host.error();
    EXPECT_EQ(text_of(octavo_run_backend_id(run.get())), backend_);
  }
  Environment environment;

 private:
  const std::string backend_, file_;
};

}  // namespace octavo::test
