// The trace of a run: what is in the file, that the bits stay, and what goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "octavo/octavo.hpp"
#include "tests/support/environment.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kM = 16, kN = 48, kK = 32;

// One linear of te, whose name needs quotes in JSON.
class Layer {
 public:
  explicit Layer(const Settings &more)
      : run(Settings(more).set("mixed_precision", "fp8").set("fp8.backend", "te"), &host),
        x(kM * kK),
        dy(kM * kN),
        w(kN * kK),
        y(kM * kN),
        dx(kM * kK),
        dw(kN * kK) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<float>(i % 5) - 2;
    for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i % 11) - 5;
    run.add_parameter({"kept", kN, kK, 0});
    parameter = run.add_parameter({"a.weight", kN, kK}).id;
    linear = run.add_linear("the \"a\"", parameter).id;
    run.seal();
    store.emplace(run);
    store->native(parameter, w.data());
    calls.emplace(run, *store, parameter, linear, kM);
    end.emplace(run, *store);
    calls->forward.x(view(x, kM, kK)).y(view(y, kM, kN));
    calls->backward.x(view(x, kM, kK)).dy(view(dy, kM, kN)).dx(view(dx, kM, kK));
    calls->backward.dw(view(dw, kN, kK));
  }
  void step() {
    calls->quantize_weight();
    calls->forward();
    calls->backward();
    (*end)();
  }

  Host host;
  octavo::Run run;
  Array<float> x, dy, w, y, dx, dw;
  uint32_t parameter = OCTAVO_NONE, linear = OCTAVO_NONE;
  std::optional<Store> store;
  std::optional<LinearCalls> calls;
  std::optional<EndStep> end;
};

class RunTrace : public testing::Test {
 protected:
  Settings traced(int64_t first = 1, int64_t steps = 1) {
    return Settings()
        .set("trace.directory", dir / "trace")
        .set("trace.first_step", first)
        .set("trace.steps", steps);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    if (std::filesystem::exists(dir / "trace"))
      for (const auto &entry : std::filesystem::directory_iterator(dir / "trace"))
        all.push_back(entry.path());
    return all;
  }
  std::string text() const {
    EXPECT_EQ(files().size(), 1U);
    std::ostringstream out;
    if (!files().empty()) out << std::ifstream(files()[0]).rdbuf();
    return out.str();
  }
  json events() const { return json::parse(text(), nullptr, false); }
  static std::vector<std::string> names(const json &events, const char *category) {
    std::vector<std::string> all;
    for (const json &e : events)
      if (e.value("cat", "") == category) all.push_back(e["name"]);
    return all;
  }
  static std::string warnings(const Host &host) {
    std::string all;
    for (const octavo::Diagnostic &d : host.diagnostics()) all += d.text + "\n";
    return all;
  }

  Environment environment;
  TempDir dir;
};

TEST_F(RunTrace, has_verbs_and_their_kernels) {
  {
    Layer layer(traced());
    for (int i = 0; i < 3; ++i) layer.step();
  }
  const json all = events();
  ASSERT_TRUE(all.is_array()) << text();
  EXPECT_THAT(names(all, "verb"),
              ElementsAre("quantize_weight", "linear_forward", "linear_backward", "end_step"));
  EXPECT_THAT(names(all, "step"), ElementsAre("step"));
  EXPECT_THAT(names(all, "kernel"), testing::IsSupersetOf({"quantize", "gemm", "gemm", "gemm"}));
  const json *forward = nullptr, *step = nullptr;
  for (const json &e : all) {
    if (e["name"] == "linear_forward") forward = &e;
    if (e["name"] == "step") step = &e;
  }
  ASSERT_TRUE(forward != nullptr && step != nullptr);
  EXPECT_EQ((*forward)["args"], (json{{"linear", "the \"a\""}, {"x", "f32[16,32]"}}));
  EXPECT_EQ((*step)["args"]["number"], 1);
  // The product of the forward pass is inside of its verb, and that inside of the step.
  const auto begins = [](const json &e) { return e["ts"].get<double>(); };
  const auto ends = [](const json &e) { return e["ts"].get<double>() + e["dur"].get<double>(); };
  size_t inside = 0;
  for (const json &e : all) {
    if (e["ph"] != "X") continue;
    EXPECT_EQ(e["pid"], getpid());
    EXPECT_GE(begins(e), begins(*step));
    EXPECT_LE(ends(e), ends(*step) + 0.002);  // three digits are written
    if (e["name"] != "gemm" || e["args"]["d"] != "f32[16,48]") continue;
    EXPECT_EQ(e["args"]["a"], "e4m3fn[16,32]");
    EXPECT_GE(begins(e) + 0.002, begins(*forward));
    EXPECT_LE(ends(e), ends(*forward) + 0.002);
    ++inside;
  }
  EXPECT_EQ(inside, 1U);
}

TEST_F(RunTrace, changes_no_bit) {
  Layer plain{Settings()}, traced_layer(traced(1, 1000));
  for (int i = 0; i < 3; ++i) {
    plain.step();
    traced_layer.step();
  }
  EXPECT_EQ(std::memcmp(plain.y.data(), traced_layer.y.data(), plain.y.bytes()), 0);
  EXPECT_EQ(std::memcmp(plain.dx.data(), traced_layer.dx.data(), plain.dx.bytes()), 0);
  EXPECT_EQ(std::memcmp(plain.dw.data(), traced_layer.dw.data(), plain.dw.bytes()), 0);
}

TEST_F(RunTrace, has_the_steps_that_are_asked_for) {
  {
    Layer layer(traced(3, 2));
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(files().size(), i >= 3 ? 1U : 0U) << i;
      layer.step();
    }
    EXPECT_TRUE(json::accept(text())) << "complete before the run is closed";
    EXPECT_EQ(warnings(layer.host), "");
  }
  std::vector<int> numbers;
  for (const json &e : events())
    if (e["name"] == "step") numbers.push_back(e["args"]["number"]);
  EXPECT_THAT(numbers, ElementsAre(3, 4));
  EXPECT_EQ(names(events(), "verb").size(), 8U);
}

TEST_F(RunTrace, ends_in_the_middle_of_a_step) {
  {
    Layer layer(traced(2));
    layer.step();
    layer.calls->forward();
  }
  EXPECT_THAT(names(events(), "verb"), ElementsAre("linear_forward"));
}

TEST_F(RunTrace, each_run_has_a_file_of_its_own) {
  {
    Layer first(traced()), second(traced());
    std::thread other([&] { second.step(); });
    first.step();
    other.join();
  }
  EXPECT_EQ(files().size(), 2U);
}

// A process that was forked writes nothing into its parent's file.
TEST_F(RunTrace, belongs_to_one_process) {
  {
    Layer layer(traced());
    layer.calls->quantize_weight();
    layer.calls->forward();
    const pid_t child = fork();
    if (child == 0) {
      layer.calls->forward();
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    (*layer.end)();
  }
  EXPECT_THAT(names(events(), "verb"),
              ElementsAre("quantize_weight", "linear_forward", "end_step"));
}

// As a disk that fills up: the file may not grow.
TEST_F(RunTrace, a_write_that_fails_ends_the_trace) {
  Layer layer(traced());
  layer.calls->quantize_weight();
  layer.calls->forward();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit none = {16, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);
  (*layer.end)();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  layer.step();
  EXPECT_THAT(warnings(layer.host), HasSubstr(".json: the trace ends here: File too large"));
  EXPECT_EQ(layer.host.diagnostics().size(), 1U) << "said once";
}

TEST_F(RunTrace, another_session_is_refused) {
  Layer layer(traced());
  octavo_step_call call{};
  EXPECT_EQ(layer.run.backend()->end_step(nullptr, &call), OCTAVO_INVALID);
}

TEST_F(RunTrace, too_short_a_run_is_a_warning) {
  Host host;
  {
    octavo::Run run(traced(7).set("mixed_precision", "fp8").set("fp8.backend", "te"), &host);
    run.seal();
  }
  EXPECT_EQ(warnings(host),
            "trace.directory: nothing was written: the run ended in step 1, expected calls in step "
            "7 (trace.first_step)\n");
  EXPECT_TRUE(files().empty());
}

TEST_F(RunTrace, a_directory_that_cannot_be_written) {
  try {
    Layer layer(Settings().set("trace.directory", dir.write("file", "") + "/trace"));
    FAIL() << "expected an exception";
  } catch (const Error &error) {
    EXPECT_EQ(error.status(), OCTAVO_INVALID);
    EXPECT_THAT(error.what(), HasSubstr("trace.directory: expected a directory that can be created "
                                        "and written, found "));
  }
}

TEST_F(RunTrace, training_goes_on_without_the_disk) {
  Layer layer(traced());
  std::filesystem::remove_all(dir / "trace");
  layer.step();
  layer.step();
  EXPECT_THAT(warnings(layer.host), testing::ContainsRegex("the trace ends here: .*No such file or "
                                                           "directory; training goes on\n$"));
  EXPECT_EQ(layer.host.diagnostics().size(), 1U) << "said once";
}

}  // namespace
}  // namespace octavo::test
