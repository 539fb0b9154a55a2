// One broken plugin in a directory of its own, and what octavo_open says about it.
//
// Every cage checks at its end that the host is alive: a good backend still opens in this process.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/request.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {

class Cage : public testing::Test {
 protected:
  void TearDown() override {
    Request good;
    good.set("fp8.backend", "reference").set("plugins.trust", "dev");
    RunPtr run;
    EXPECT_EQ(good.open(run), OCTAVO_OK) << good.host.error();
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(text_of(octavo_run_backend_id(run.get())), "reference");
  }

  // The library fake_<fault>.so as plugins/fake.so, with a manifest that fits.
  void put(const std::string &fault) { put_fake(dir, "plugins", fault); }
  std::string library() const { return dir / "plugins/fake.so"; }
  std::string manifest() const { return dir / "plugins/fake.octavo-plugin.toml"; }

  // Asks for the fake and nothing else.
  Request &request() {
    request_.set("fp8.backend", "fake").set("plugins.trust", "dev").plugins(dir / "plugins");
    return request_;
  }

  // Opening is refused with exactly this reason.
  void expect_refusal(const std::string &text, const std::string &found,
                      const std::string &remedy) {
    RunPtr run;
    EXPECT_EQ(request().open(run), OCTAVO_UNSUPPORTED);
    EXPECT_EQ(run, nullptr);
    EXPECT_EQ(request_.host.error(),
              "fake: " + text + (found.empty() ? "" : "\n    found: " + found) + "\n    remedy: " +
                  remedy + "\n  fp8.fallback is empty, so nothing else was tried");
  }

  const Environment environment;
  const TempDir dir;

 private:
  Request request_;
};

// A cage whose plugin opens; model() adds one weight [4, 8] and two linears on it.
class OpenCage : public Cage {
 protected:
  void open(const std::string &fault) {
    put(fault);
    ASSERT_EQ(request().open(run), OCTAVO_OK) << host().error();
  }
  RecordingHost &host() { return request().host; }

  octavo_status add_weight(const std::string &name, uint32_t *id, uint32_t dtype = OCTAVO_F32) {
    octavo_parameter_desc d{};
    d.size = sizeof(d);
    d.kind = OCTAVO_KIND_PARAMETER_DESC;
    d.name = borrow(name);
    d.rows = 4;
    d.cols = 8;
    d.dtype = d.gradient_dtype = dtype;
    d.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    return octavo_add_parameter(run.get(), &d, nullptr, id);
  }
  octavo_status add_linear(const std::string &name, uint32_t weight, uint32_t *id) {
    octavo_linear_desc d{};
    d.size = sizeof(d);
    d.kind = OCTAVO_KIND_LINEAR_DESC;
    d.name = borrow(name);
    d.weight = weight;
    return octavo_add_linear(run.get(), &d, nullptr, id);
  }
  void model() {
    uint32_t weight = 9, a = 9, b = 9;
    ASSERT_EQ(add_weight("w", &weight), OCTAVO_OK) << host().error();
    ASSERT_EQ(add_linear("a", weight, &a), OCTAVO_OK) << host().error();
    ASSERT_EQ(add_linear("b", weight, &b), OCTAVO_OK) << host().error();
    EXPECT_EQ(weight, 0u);
    EXPECT_EQ(a, 0u);
    EXPECT_EQ(b, 1u);
  }

  RunPtr run;
};

}  // namespace octavo::test
