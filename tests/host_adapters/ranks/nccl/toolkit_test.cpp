// nccl_types.h against the toolkit's nccl.h, and library.cpp against a real libnccl, where there
// are such. Compiled without the fake CUDA runtime.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "host_adapters/ranks/nccl/library.h"

#ifdef OCTAVO_HAS_NCCL_HEADER
#include <nccl.h>
#endif

namespace octavo::cuda::nccl {
namespace {

#ifdef OCTAVO_HAS_NCCL_HEADER

TEST(NcclHeader, values) {
  EXPECT_EQ(int{kSuccess}, int{ncclSuccess});
  EXPECT_EQ(int{kUnhandledCudaError}, int{ncclUnhandledCudaError});
  EXPECT_EQ(int{kSystemError}, int{ncclSystemError});
  EXPECT_EQ(int{kInternalError}, int{ncclInternalError});
  EXPECT_EQ(int{kInvalidArgument}, int{ncclInvalidArgument});
  EXPECT_EQ(int{kInvalidUsage}, int{ncclInvalidUsage});
  EXPECT_EQ(int{kRemoteError}, int{ncclRemoteError});
  EXPECT_EQ(int{kInProgress}, int{ncclInProgress});
  EXPECT_EQ(int{ncclInProgress} + 1, int{ncclNumResults})
      << "a result that status_of does not know";
  EXPECT_EQ(int{kUint8}, int{ncclUint8});
  EXPECT_EQ(sizeof(UniqueId), sizeof(ncclUniqueId));
  EXPECT_EQ(NCCL_VERSION(2, 14, 0), kOldestVersion);
  EXPECT_GE(NCCL_VERSION_CODE, kOldestVersion);
  EXPECT_LT(NCCL_VERSION_CODE, kNextMajor);
}

// The part of ncclConfig_t that is given, and that the rest is told to be unset.
TEST(NcclHeader, config) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(offsetof(Config, magic), offsetof(ncclConfig_t, magic));
  EXPECT_EQ(offsetof(Config, version), offsetof(ncclConfig_t, version));
  EXPECT_EQ(offsetof(Config, blocking), offsetof(ncclConfig_t, blocking));
  EXPECT_LE(sizeof(Config), sizeof(ncclConfig_t));
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.unset, NCCL_CONFIG_UNDEF_INT);
  EXPECT_EQ(ours.size, sizeof(Config));
}

// A parameter of one header beside that of the other, as a call passes them.
template <typename Theirs, typename Ours>
constexpr bool passes_as() {
  if constexpr (std::is_pointer_v<Theirs>) return std::is_pointer_v<Ours>;
  if constexpr (std::is_void_v<Theirs>) return std::is_void_v<Ours>;
  if constexpr (!std::is_void_v<Theirs> && !std::is_void_v<Ours>)
    return sizeof(Theirs) == sizeof(Ours) && std::is_class_v<Theirs> == std::is_class_v<Ours>;
  return false;
}
template <typename R, typename... A, typename S, typename... B>
constexpr bool same_call(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return passes_as<R, S>() && (passes_as<A, B>() && ...);
}

TEST(NcclHeader, functions) {
  const Functions f = {};
  EXPECT_TRUE(same_call(decltype(&ncclGetVersion){}, f.GetVersion));
  EXPECT_TRUE(same_call(decltype(&ncclGetUniqueId){}, f.GetUniqueId));
  EXPECT_TRUE(same_call(decltype(&ncclCommInitRankConfig){}, f.CommInitRankConfig));
  EXPECT_TRUE(same_call(decltype(&ncclCommFinalize){}, f.CommFinalize));
  EXPECT_TRUE(same_call(decltype(&ncclCommDestroy){}, f.CommDestroy));
  EXPECT_TRUE(same_call(decltype(&ncclCommAbort){}, f.CommAbort));
  EXPECT_TRUE(same_call(decltype(&ncclCommGetAsyncError){}, f.CommGetAsyncError));
  EXPECT_TRUE(same_call(decltype(&ncclGetErrorString){}, f.GetErrorString));
  EXPECT_TRUE(same_call(decltype(&ncclGetLastError){}, f.GetLastError));
  EXPECT_TRUE(same_call(decltype(&ncclAllGather){}, f.AllGather));
  EXPECT_TRUE(same_call(decltype(&ncclBroadcast){}, f.Broadcast));
  EXPECT_TRUE(same_call(decltype(&ncclSend){}, f.Send));
  EXPECT_TRUE(same_call(decltype(&ncclRecv){}, f.Recv));
  EXPECT_TRUE(same_call(decltype(&ncclGroupStart){}, f.GroupStart));
  EXPECT_TRUE(same_call(decltype(&ncclGroupEnd){}, f.GroupEnd));
  EXPECT_FALSE(same_call(decltype(&ncclAllGather){}, f.Broadcast));  // it can tell
}

#else

TEST(NcclHeader, values) {
  GTEST_SKIP() << "there is no nccl.h beside cuda_runtime.h here: CUDA's toolkit has both";
}

#endif

// Every function is found in it, and its version is taken; no device is asked.
TEST(NcclLibrary, opens) {
  const std::string path = OCTAVO_NCCL_LIBRARY;
  if (path.empty())
    GTEST_SKIP() << "there is no libnccl.so.2 here, or this is a build for a sanitizer";
  std::string told;
  octavo_host host = {};
  host.size = sizeof(host);
  host.ctx = &told;
  host.diagnose = [](void *ctx, const octavo_diagnostic *d) {
    static_cast<std::string *>(ctx)->assign(d->text.data, d->text.size);
  };
  const Functions *found = nullptr;
  ASSERT_EQ(find_library({&host, "test"}, "test", {path.data(), path.size()}, &found), OCTAVO_OK)
      << told;
  EXPECT_STRNE(found->GetErrorString(kInvalidArgument), "");
  EXPECT_STRNE(found->GetErrorString(kInvalidArgument), found->GetErrorString(kRemoteError));
}

}  // namespace
}  // namespace octavo::cuda::nccl
