// A real libnccl on a machine without a GPU: an id is made, and the start that NCCL goes on with in
// its own thread fails with CUDA's reason. With a GPU it would reach for memory of the fake
// runtime.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/host_adapters/ranks/nccl/world.h"

namespace octavo::test {
namespace {

TEST(NcclRealLibrary, start_without_a_driver) {
  const std::string path = OCTAVO_NCCL_LIBRARY;
  if (path.empty())
    GTEST_SKIP() << "there is no libnccl.so.2 here (or a sanitizer, which cannot follow it)";
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a GPU";
  Listener listener;
  octavo_nccl_id id = {};
  ASSERT_EQ(octavo_nccl_get_id(listener.host(), text_view(path), &id), OCTAVO_OK)
      << listener.last();
  octavo_nccl_desc d = {};
  d.size = sizeof(d);
  d.world = 1;
  d.id = &id;
  d.host = listener.host();
  d.library = text_view(path);
  octavo_nccl *out = nullptr;
  EXPECT_EQ(octavo_nccl_open(&d, &out), OCTAVO_FAILED_DEVICE);
  EXPECT_EQ(out, nullptr);
  EXPECT_THAT(listener.last(),
              testing::HasSubstr("ncclCommInitRankConfig answered ncclUnhandledCudaError"));
  EXPECT_EQ(cuda_on_cpu::events_alive(), 0);
}

}  // namespace
}  // namespace octavo::test
