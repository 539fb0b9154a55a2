/* Opening libnccl by dlopen, which finds the copy that the process has loaded, if it has one. */
#include "host_adapters/ranks/nccl/library.h"

#include <dlfcn.h>

#include <deque>
#include <mutex>
#include <string>

namespace octavo::cuda::nccl {
namespace {

struct Library {
  std::string path;
  Functions functions = {};
};

/* The first function that the library lacks, or null. */
const char *load(void *handle, Functions &f) {
  const char *missing = nullptr;
  const auto take = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  take(f.GetVersion, "ncclGetVersion");
  take(f.GetUniqueId, "ncclGetUniqueId");
  take(f.CommInitRankConfig, "ncclCommInitRankConfig");
  take(f.CommFinalize, "ncclCommFinalize");
  take(f.CommDestroy, "ncclCommDestroy");
  take(f.CommAbort, "ncclCommAbort");
  take(f.CommGetAsyncError, "ncclCommGetAsyncError");
  take(f.GetErrorString, "ncclGetErrorString");
  take(f.GetLastError, "ncclGetLastError");
  take(f.AllGather, "ncclAllGather");
  take(f.Broadcast, "ncclBroadcast");
  take(f.Send, "ncclSend");
  take(f.Recv, "ncclRecv");
  take(f.GroupStart, "ncclGroupStart");
  take(f.GroupEnd, "ncclGroupEnd");
  return missing;
}

constexpr const char *kRemedy =
    "install libnccl2, or nvidia-nccl-cu13 from PyPI, or name its file in octavo_nccl_desc.library";

/* Asked before the functions are: a library that is too old lacks some of them for that reason. */
octavo_status check_version(const Caller &caller, const char *verb, const char *path,
                            Result (*get_version)(int *)) {
  int version = 0;
  const Result answer = get_version == nullptr ? kSuccess : get_version(&version);
  if (answer == kSuccess && version >= kOldestVersion && version < kNextMajor) return OCTAVO_OK;
  /* Until 2.8 a version was 1000 * major + 100 * minor + patch. */
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return report_error(caller, OCTAVO_INCOMPATIBLE,
                      "%s: %s: expected NCCL 2.14 or later of major 2, found %d.%d.%d%s; %s", verb,
                      path, major, minor, version % 100,
                      get_version == nullptr ? ", without ncclGetVersion"
                      : answer == kSuccess   ? ""
                                             : ", ncclGetVersion failed",
                      kRemedy);
}

}  // namespace

octavo_status find_library(const Caller &caller, const char *verb, octavo_str path,
                           const Functions **out) {
  static std::mutex mutex;
  static auto *libraries = new std::deque<Library>; /* outlives the threads of communicators */
  const std::lock_guard lock(mutex);
  const std::string name(path.size == 0 ? "libnccl.so.2" : path.data,
                         path.size == 0 ? sizeof("libnccl.so.2") - 1 : path.size);
  const Library *found = nullptr;
  for (const Library &l : *libraries)
    if (l.path == name) found = &l;
  if (found != nullptr) {
    *out = &found->functions;
    return check_version(caller, verb, name.c_str(), found->functions.GetVersion);
  }
  void *handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char *reason = dlerror();
    return report_error(caller, OCTAVO_NO_RESOURCE,
                        "%s: %s: expected NCCL 2.14 or later of major 2, found none (%s); %s", verb,
                        name.c_str(), reason == nullptr ? "no reason given" : reason, kRemedy);
  }
  Library library = {name, {}};
  const char *missing = load(handle, library.functions);
  const octavo_status status =
      check_version(caller, verb, name.c_str(), library.functions.GetVersion);
  if (status != OCTAVO_OK) return status;
  if (missing != nullptr)
    return report_error(caller, OCTAVO_INCOMPATIBLE,
                        "%s: %s: expected the function %s, found none: it is not a whole NCCL; %s",
                        verb, name.c_str(), missing, kRemedy);
  libraries->push_back(library);
  *out = &libraries->back().functions;
  return OCTAVO_OK;
}

octavo_status status_of(Result result) {
  switch (result) {
    case kSuccess: return OCTAVO_OK;
    case kSystemError: return OCTAVO_NO_RESOURCE;
    case kInternalError: return OCTAVO_INTERNAL;
    case kInvalidArgument:
    case kInvalidUsage: return OCTAVO_INVALID;
    case kInProgress: return OCTAVO_WRONG_STATE;
    case kUnhandledCudaError:
    case kRemoteError: break;
  }
  return OCTAVO_FAILED_DEVICE; /* also what later versions add */
}

const char *name_of(Result result) {
  switch (result) {
    case kSuccess: return "ncclSuccess";
    case kUnhandledCudaError: return "ncclUnhandledCudaError";
    case kSystemError: return "ncclSystemError";
    case kInternalError: return "ncclInternalError";
    case kInvalidArgument: return "ncclInvalidArgument";
    case kInvalidUsage: return "ncclInvalidUsage";
    case kRemoteError: return "ncclRemoteError";
    case kInProgress: return "ncclInProgress";
  }
  return "an unknown ncclResult_t";
}

}  // namespace octavo::cuda::nccl
