// The plugin of CUDA kernels as hosts meet it: liboctavo finds, checks and opens it, backends train
// on it. The GPU is made up (tests/misconfigurations/fake_gpu.c), the device code runs on the CPU.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/cuda_on_cpu/runtime.h"
#include "tests/support/environment.h"
#include "tests/support/model.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;

class CudaPlugin : public testing::Test {
 protected:
  CudaPlugin() {
    environment.set("OCTAVO_FAKE_GPU", "cuda=13000 driver=580.65.06");
    request.set("plugins.trust", "dev").set("device.kind", "cuda").set("layers.min_gain", "off");
    request.plugins(OCTAVO_FAKE_KERNELS_DIR).plugins(OCTAVO_PLUGINS_DIR);
  }
  // A runtime in a state of its own, once the plugin is loaded.
  static cuda_on_cpu::Script &script() {
    return *function<cuda_on_cpu::Script *()>("cuda_on_cpu_script")();
  }
  static cuda_on_cpu::Counters &counters() {
    return *function<cuda_on_cpu::Counters *()>("cuda_on_cpu_counters")();
  }
  template <typename F>
  static F *function(const char *name) {
    void *opened = dlopen(OCTAVO_FAKE_KERNELS_DIR "/kernels-cuda.so", RTLD_NOW | RTLD_NOLOAD);
    EXPECT_NE(opened, nullptr) << "the plugin is not loaded";
    return reinterpret_cast<F *>(dlsym(opened, name));
  }
  // One line of what explain says; empty when there is none of that name.
  std::string line(const char *name) {
    const octavo_open_desc d = request.desc();
    std::string all;
    octavo_explain(&d, borrow("text"), Request::append_line, &all);
    const size_t at = all.find(name);
    return at == std::string::npos ? all : all.substr(at, all.find('\n', at) - at);
  }

  Environment environment;
  TempDir dir;
  Request request;
};

TEST_F(CudaPlugin, is_found_and_opened) {
  request.set("fp8.backend", "te");
  RunPtr run;
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  const octavo_session_desc *desc = octavo_session_desc_of(run.get());
  EXPECT_EQ(desc->device.type, uint32_t{OCTAVO_DEVICE_CUDA});
  EXPECT_EQ(desc->device.index, 0);
  EXPECT_EQ(text_of(desc->caps->id), "cuda");
  EXPECT_NE(desc->caps->flags & OCTAVO_CAPS_GEMM_K_CONTIGUOUS_ONLY, 0u);
  EXPECT_NE(octavo_memory_of(run.get()), nullptr);
  EXPECT_THAT(line("device"), HasSubstr("cuda:0 (made-up GPU sm_90 of device 0), kernels cuda"));
}

TEST_F(CudaPlugin, host_that_asks_for_the_device) {
  request.set("fp8.backend", "te").set("device.kind", "auto");
  octavo_open_desc d = request.desc();
  octavo_run *opened = nullptr;
  ASSERT_EQ(octavo_open(&d, &opened), OCTAVO_OK);
  EXPECT_EQ(octavo_session_desc_of(opened)->device.type, uint32_t{OCTAVO_DEVICE_CPU});
  EXPECT_EQ(octavo_memory_of(opened), nullptr);
  octavo_close(opened);
  d.device = {OCTAVO_DEVICE_CUDA, 0};
  ASSERT_EQ(octavo_open(&d, &opened), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(octavo_session_desc_of(opened)->device.type, uint32_t{OCTAVO_DEVICE_CUDA});
  octavo_close(opened);
  d.device.index = 5;
  EXPECT_EQ(octavo_open(&d, &opened), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.error(), HasSubstr("no CUDA device with that index"));
}

TEST_F(CudaPlugin, is_no_backend_and_backends_are_no_kernels) {
  request.set("fp8.backend", "kernels-cuda");
  RunPtr run;
  EXPECT_EQ(request.open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.error(),
              HasSubstr("expected the interface octavo.backend/1, found octavo.kernels/1 only"));
}

TEST_F(CudaPlugin, driver_that_its_manifest_refuses) {
  request.set("fp8.backend", "te");
  environment.set("OCTAVO_FAKE_GPU", "cuda=12040 driver=550.54.14");
  RunPtr run;
  EXPECT_EQ(request.open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.error(), HasSubstr("a driver for CUDA 13.0 or later"));
}

TEST_F(CudaPlugin, lock_file_holds_the_kernels_too) {
  request.path(dir.write("octavo.toml", "fp8.preference = [\"te\", \"msamp\"]\n"));
  octavo_open_desc d = request.desc();
  std::string said;
  ASSERT_EQ(octavo_lock(&d, Request::append_line, &said), OCTAVO_OK) << request.host.error();
  EXPECT_THAT(said, HasSubstr("kernels-cuda"));
  request.set("plugins.locked", true);
  RunPtr run;
  EXPECT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  std::filesystem::remove(dir / "octavo.lock");
  EXPECT_NE(request.open(run), OCTAVO_OK);
}

TEST_F(CudaPlugin, kernels_that_trust_refuses) {
  request.set("plugins.trust", "pinned").set("fp8.backend", "te");
  RunPtr run;
  EXPECT_EQ(request.open(run), OCTAVO_UNSUPPORTED);
  const std::string refused = request.host.error(), before = "plugins.pins = [\"te:";
  ASSERT_THAT(refused, HasSubstr(before));
  constexpr size_t kDigits = 64;
  std::string pins = "plugins.pins = [\"te:";
  pins += refused.substr(refused.find(before) + before.size(), kDigits);
  pins += "\"]\n";
  request.text(pins);
  EXPECT_EQ(request.open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.error(), HasSubstr("kernels-cuda.so: expected a pin of kernels-cuda"));
}

TEST_F(CudaPlugin, lock_file_of_a_machine_without_a_gpu_has_backends_only) {
  environment.set("OCTAVO_FAKE_GPU", "count=0");
  request.path(dir.write("octavo.toml", "fp8.preference = [\"te\", \"msamp\"]\n"));
  octavo_open_desc d = request.desc();
  std::string said;
  octavo_lock(&d, Request::append_line, &said);
  EXPECT_THAT(said, testing::Not(HasSubstr("kernels-cuda")));
}

TEST_F(CudaPlugin, lock_file_that_knows_other_verdicts_of_the_kernels) {
  const std::string config = dir.write("octavo.toml", "fp8.preference = [\"te\"]\n");
  request.path(config);
  octavo_open_desc d = request.desc();
  std::string said;
  ASSERT_EQ(octavo_lock(&d, Request::append_line, &said), OCTAVO_OK) << request.host.error();
  std::ostringstream text;
  text << std::ifstream(dir / "octavo.lock").rdbuf();
  std::string lock = text.str();
  const size_t plugin = lock.find("kernels-cuda");
  ASSERT_NE(plugin, std::string::npos) << lock;
  const size_t digest = lock.find("verdict", plugin);
  ASSERT_NE(digest, std::string::npos) << lock;
  char &digit = lock[lock.find('"', digest) + 1];
  digit = digit == '0' ? '1' : '0';
  dir.write("octavo.lock", lock);
  request.set("plugins.locked", true);
  RunPtr run;
  EXPECT_EQ(request.open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.error(), HasSubstr("kernels-cuda"));
}

TEST_F(CudaPlugin, kernels_whose_device_does_not_open) {
  environment.set("OCTAVO_CUDA_GEMM", "fast");
  request.set("fp8.backend", "te");
  RunPtr run;
  EXPECT_EQ(request.open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.error(), HasSubstr("could not be opened: status 2"));
  environment.unset("OCTAVO_CUDA_GEMM");
}

TEST_F(CudaPlugin, manifest_that_is_none) {
  dir.write("kernels-cuda.octavo-plugin.toml", "manifest_version = \n");
  Request other;
  other.set("plugins.trust", "dev").set("device.kind", "cuda").set("fp8.backend", "te");
  other.plugins(dir.path()).plugins(OCTAVO_PLUGINS_DIR);
  RunPtr run;
  EXPECT_EQ(other.open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(other.host.error(), HasSubstr("kernels-cuda.octavo-plugin.toml"));
}

// A plugin of that name with less than it: partial_plugin.cpp.
class PartialCudaPlugin : public CudaPlugin {
 protected:
  octavo_status open(const std::string &part, RunPtr &run) {
    parted.set("plugins.trust", "dev").set("device.kind", "cuda").set("fp8.backend", "te");
    parted.plugins(OCTAVO_PARTIAL_DIR + part).plugins(OCTAVO_PLUGINS_DIR);
    return parted.open(run);
  }
  Request parted;
};

TEST_F(PartialCudaPlugin, without_memory_opens_and_has_no_store) {
  RunPtr run;
  ASSERT_EQ(open("no_memory", run), OCTAVO_OK) << parted.host.error();
  EXPECT_EQ(octavo_memory_of(run.get()), nullptr);
  ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
  octavo_store *store = nullptr;
  EXPECT_EQ(octavo_store_open(run.get(), &store), OCTAVO_UNSUPPORTED);
}

TEST_F(PartialCudaPlugin, kernels_of_another_kind_are_none) {
  RunPtr run;
  EXPECT_EQ(open("wrong_kind", run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(parted.host.error(), HasSubstr("expected the interface"));
}

TEST_F(PartialCudaPlugin, backend_is_no_kernels) {
  RunPtr run;
  EXPECT_EQ(open("backend", run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(parted.host.error(),
              HasSubstr("expected the interface octavo.kernels/1, found octavo.backend/1 only"));
  EXPECT_THAT(parted.host.error(), HasSubstr("reinstall the plugin kernels-cuda"));
}

// A backend with one weight and one layer on the device.
class CudaLayer : public CudaPlugin, public testing::WithParamInterface<const char *> {
 protected:
  static constexpr int64_t kRows = 48, kN = 80, kK = 112;

  void open() {
    const std::string all = GetParam(), backend = all.substr(0, all.find(':'));
    request.set("fp8.backend", backend);
    if (const size_t at = all.find(':'); at != std::string::npos) {
      const size_t equals = all.find('=');
      request.set(all.substr(at + 1, equals - at - 1), all.substr(equals + 1));
    }
    ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
    ASSERT_EQ(add_weight(run.get(), "w", kN, kK).status, OCTAVO_OK);
    ASSERT_EQ(add_linear(run.get(), "l", 0).id, 0u);
    ASSERT_EQ(octavo_seal(run.get()), OCTAVO_OK);
    octavo_store *opened = nullptr;
    ASSERT_EQ(octavo_store_open(run.get(), &opened), OCTAVO_OK) << request.host.error();
    store.reset(opened);
    memory = octavo_memory_of(run.get());
    ctx = octavo_session_desc_of(run.get())->kernels_ctx;
    plan = octavo_get_plan(run.get(), 0);
    void *weight = on_device(std::vector<float>(kN * kK, 0.25f));
    // A backend that keeps the weight itself takes its values.
    if (octavo_store_native(store.get(), 0, OCTAVO_ROLE_WEIGHT, weight) != OCTAVO_OK) {
      ASSERT_EQ(write_weight(weight), OCTAVO_OK);
    }
    workspace = on_device(std::vector<float>(
        (std::max(plan->weight_workspace, octavo_extent_bytes(&plan->forward_workspace, kRows)) +
         sizeof(float)) /
        sizeof(float)));
    saved =
        on_device(std::vector<float>(octavo_extent_bytes(&plan->saved, kRows) / sizeof(float) + 1));
    in = on_device(std::vector<float>(kRows * kK, 0.5f));
    out = on_device(std::vector<float>(kRows * kN));
  }
  void *on_device(const std::vector<float> &values) {
    void *data = nullptr;
    const uint64_t bytes = values.size() * sizeof(float);
    EXPECT_EQ(memory->allocate(ctx, bytes, &data), OCTAVO_OK);
    EXPECT_EQ(memory->copy(ctx, data, values.data(), bytes), OCTAVO_OK);
    allocated.push_back(data);
    return data;
  }
  octavo_status write_weight(void *values) {
    const octavo_optimizer *optimizer = octavo_optimizer_of(run.get());
    octavo_session *session = octavo_session_of(run.get());
    const uint32_t all[] = {0};
    uint64_t bytes = 0;
    EXPECT_EQ(optimizer->workspace_bytes(session, all, 1, &bytes), OCTAVO_OK);
    octavo_tensor plain{values, kN, kK, kK, OCTAVO_F32, 0};
    octavo_parameter_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_PARAMETER_CALL;
    c.role = OCTAVO_ROLE_WEIGHT;
    c.plain = &plain;
    c.slots = octavo_store_list(store.get(), OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, 0);
    c.workspace = on_device(std::vector<float>(bytes / sizeof(float) + 1));
    return optimizer->write_parameter(session, &c);
  }
  octavo_status quantize_weight() {
    octavo_weight_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_WEIGHT_CALL;
    c.slots =
        octavo_store_list(store.get(), OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, 0);
    c.workspace = workspace;
    return octavo_backend_of(run.get())->quantize_weight(octavo_session_of(run.get()), &c);
  }
  octavo_status forward() {
    const octavo_tensor x{in, kRows, kK, kK, OCTAVO_F32, 0};
    octavo_tensor y{out, kRows, kN, kN, OCTAVO_F32, 0};
    octavo_forward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_FORWARD_CALL;
    c.x = &x;
    c.y = &y;
    c.saved = saved;
    c.slots = octavo_store_list(store.get(), OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, 0);
    c.workspace = workspace;
    return octavo_backend_of(run.get())->linear_forward(octavo_session_of(run.get()), &c);
  }
  std::vector<float> result() {
    std::vector<float> y(kRows * kN);
    EXPECT_EQ(memory->copy(ctx, y.data(), out, y.size() * sizeof(float)), OCTAVO_OK);
    return y;
  }
  void TearDown() override {
    for (void *data : allocated) memory->release(ctx, data);
  }

  RunPtr run;
  StorePtr store;
  const octavo_memory *memory = nullptr;
  void *ctx = nullptr;
  const octavo_linear_plan *plan = nullptr;
  std::vector<void *> allocated;
  void *workspace = nullptr, *saved = nullptr, *in = nullptr, *out = nullptr;
};

// A measure and a cast of x, and what a product needs besides; plans and weights are made before.
TEST_P(CudaLayer, forward_is_three_launches_at_most) {
  open();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(quantize_weight(), OCTAVO_OK) << request.host.error();
  ASSERT_EQ(forward(), OCTAVO_OK) << request.host.error();  // plans are made
  counters() = {};
  ASSERT_EQ(forward(), OCTAVO_OK);
  EXPECT_LE(counters().launches, 3);
  EXPECT_GE(counters().launches, 1);
  EXPECT_EQ(counters().allocations, 0);
  EXPECT_EQ(counters().synchronisations, 0);
  for (const float y : result()) EXPECT_NEAR(y, kK * 0.125f, kK * 0.125f / 16);
}

TEST_P(CudaLayer, checkpoint_comes_back_from_the_device) {
  open();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(quantize_weight(), OCTAVO_OK);
  ASSERT_EQ(forward(), OCTAVO_OK);
  const std::string path = dir / "checkpoint";
  ASSERT_EQ(octavo_store_save(store.get(), borrow(path), 7), OCTAVO_OK) << request.host.error();
  const auto bytes_of = [](const octavo_slot &s) {
    const uint64_t bytes = s.dtype == OCTAVO_F32 || s.dtype == OCTAVO_I32    ? 4
                           : s.dtype == OCTAVO_F16 || s.dtype == OCTAVO_BF16 ? 2
                                                                             : 1;
    return static_cast<uint64_t>(s.rows * s.cols) * bytes;
  };
  const auto read_all = [&] {
    std::vector<std::vector<unsigned char>> all;
    for (uint32_t id = 0; id < octavo_slot_count(run.get()); ++id) {
      const octavo_slot &s = *octavo_get_slot(run.get(), id);
      all.emplace_back();
      if ((s.flags & OCTAVO_SLOT_CHECKPOINT) == 0 || (s.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
      all.back().resize(bytes_of(s));
      EXPECT_EQ(memory->copy(ctx, all.back().data(), octavo_store_address(store.get(), id),
                             all.back().size()),
                OCTAVO_OK);
    }
    return all;
  };
  const auto before = read_all();
  for (uint32_t role = 1; role < 32; ++role) octavo_store_clear(store.get(), role);
  uint64_t step = 0;
  ASSERT_EQ(octavo_store_load(store.get(), borrow(path), &step), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(step, 7u);
  EXPECT_EQ(read_all(), before);
}

TEST_P(CudaLayer, device_that_was_lost_answers_at_once) {
  open();
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_EQ(quantize_weight(), OCTAVO_OK);
  script().launches_before_failure = 0;
  // A kernel fails while the host goes on: whoever asks next learns of it.
  octavo_status status = forward();
  if (status == OCTAVO_OK) status = forward();
  EXPECT_EQ(status, OCTAVO_DEVICE);
  EXPECT_THAT(request.host.error(), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_THAT(request.host.error(), HasSubstr("restart it from a checkpoint"));
  counters() = {};
  EXPECT_EQ(forward(), OCTAVO_DEVICE);
  EXPECT_EQ(memory->synchronize(ctx), OCTAVO_DEVICE);
  EXPECT_EQ(counters().launches, 0);
  EXPECT_EQ(counters().synchronisations, 0);
  EXPECT_THAT(request.host.error(), HasSubstr("failed before with cudaErrorIllegalAddress"));
  function<void()>("cuda_on_cpu_reset")();
}

INSTANTIATE_TEST_SUITE_P(All, CudaLayer,
                         testing::Values("te", "te:fp8.te.recipe=current", "te:fp8.te.recipe=block",
                                         "msamp"),
                         [](const auto &each) {
                           std::string name = each.param;
                           for (char &c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace octavo::test
