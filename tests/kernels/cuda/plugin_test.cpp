// The plugin of CUDA kernels as hosts meet it: liboctavo finds, checks and opens it. The GPU is
// made up (tests/misconfigurations/fake_gpu.c), the device code runs on the CPU.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/kernels/cuda/plugin_fixture.h"

namespace octavo::test {
namespace {

TEST_F(CudaPlugin, is_found_and_opened) {
  request.set("fp8.backend", "te");
  RunPtr run;
  ASSERT_EQ(request.open(run), OCTAVO_OK) << request.host.error();
  const octavo_session_desc *desc = octavo_run_session_desc(run.get());
  EXPECT_EQ(desc->device.type, uint32_t{OCTAVO_DEVICE_CUDA});
  EXPECT_EQ(desc->device.index, 0);
  EXPECT_EQ(text_of(desc->caps->id), "cuda");
  EXPECT_NE(desc->caps->flags & OCTAVO_CAPS_CAPTURE_SAFE, 0u);
  EXPECT_NE(static_cast<const octavo_memory *>(
                octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_MEMORY_ID))),
            nullptr);
  EXPECT_THAT(line("device"), HasSubstr("cuda:0 (fake GPU sm_90 of device 0), kernels cuda"));
}

TEST_F(CudaPlugin, host_that_asks_for_the_device) {
  request.set("fp8.backend", "te").set("device.kind", "auto");
  octavo_open_desc d = request.desc();
  octavo_run *opened = nullptr;
  ASSERT_EQ(octavo_open(&d, &opened), OCTAVO_OK);
  EXPECT_EQ(octavo_run_session_desc(opened)->device.type, uint32_t{OCTAVO_DEVICE_CPU});
  EXPECT_EQ(static_cast<const octavo_memory *>(
                octavo_run_interface(opened, OCTAVO_STR(OCTAVO_MEMORY_ID))),
            nullptr);
  octavo_close(opened);
  d.device = {OCTAVO_DEVICE_CUDA, 0};
  ASSERT_EQ(octavo_open(&d, &opened), OCTAVO_OK) << request.host.error();
  EXPECT_EQ(octavo_run_session_desc(opened)->device.type, uint32_t{OCTAVO_DEVICE_CUDA});
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

TEST_F(CudaPlugin, lock_file_of_a_gpu_without_kernels_warns_once) {
  Request other;
  on_cuda(other, dir.path());  // which has no plugin
  other.path(dir.write("octavo.toml", "fp8.preference = [\"te\", \"msamp\"]\n"));
  octavo_open_desc d = other.desc();
  std::string said;
  EXPECT_EQ(octavo_lock(&d, Request::append_line, &said), OCTAVO_OK);
  EXPECT_THAT(said, testing::Not(HasSubstr("kernels-cuda")));
  EXPECT_THAT(other.host.texts(OCTAVO_SEVERITY_WARNING),
              testing::ElementsAre(HasSubstr(
                  "a plugin of kernels is not locked: no kernels for cuda are installed")));
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
  on_cuda(other, dir.path()).set("fp8.backend", "te");
  RunPtr run;
  EXPECT_EQ(other.open(run), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(other.host.error(), HasSubstr("kernels-cuda.octavo-plugin.toml"));
}

// A plugin of that name with less than it: partial_plugin.cpp.
class PartialCudaPlugin : public CudaPlugin {
 protected:
  octavo_status open(const std::string &part, RunPtr &run) {
    return on_cuda(parted, OCTAVO_PARTIAL_DIR + part).set("fp8.backend", "te").open(run);
  }
  Request parted;
};

TEST_F(PartialCudaPlugin, without_memory_opens_and_has_no_store) {
  RunPtr run;
  ASSERT_EQ(open("no_memory", run), OCTAVO_OK) << parted.host.error();
  EXPECT_EQ(static_cast<const octavo_memory *>(
                octavo_run_interface(run.get(), OCTAVO_STR(OCTAVO_MEMORY_ID))),
            nullptr);
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

}  // namespace
}  // namespace octavo::test
