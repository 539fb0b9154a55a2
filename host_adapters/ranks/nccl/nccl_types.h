/* The part of NCCL's interface that is called here, so that it is built without NCCL's header.
 * Names of values are NCCL's; a test compares them with the toolkit's nccl.h where there is one. */
#pragma once

#include <climits>
#include <cstddef>

namespace octavo::cuda::nccl {

struct Comm; /* ncclComm */

struct UniqueId { /* ncclUniqueId */
  char internal[128];
};

enum Result : int { /* ncclResult_t */
                    kSuccess = 0,
                    kUnhandledCudaError = 1,
                    kSystemError = 2,
                    kInternalError = 3,
                    kInvalidArgument = 4,
                    kInvalidUsage = 5,
                    kRemoteError = 6,
                    kInProgress = 7
};

enum DataType : int { kUint8 = 1 }; /* ncclDataType_t: everything travels as bytes */

constexpr int kOldestVersion = 21400; /* 2.14: communicators that do not block */
constexpr int kNextMajor = 30000;

/* ncclConfig_t as it was in 2.14; later versions read its `version` and take their defaults for the
 * rest, and their cgaClusterSize is where the last field is. */
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestVersion;
  int blocking = 0;
  int unset = INT_MIN;
};

/* Streams are void *, as in the contract: a pointer for both. */
struct Functions {
  Result (*GetVersion)(int *version);
  Result (*GetUniqueId)(UniqueId *id);
  Result (*CommInitRankConfig)(Comm **comm, int world, UniqueId id, int rank, Config *config);
  Result (*CommFinalize)(Comm *comm);
  Result (*CommDestroy)(Comm *comm);
  Result (*CommAbort)(Comm *comm);
  Result (*CommGetAsyncError)(Comm *comm, Result *error);
  const char *(*GetErrorString)(Result result);
  const char *(*GetLastError)(Comm *comm);
  Result (*AllGather)(const void *send, void *recv, size_t count, DataType type, Comm *comm,
                      void *stream);
  Result (*Broadcast)(const void *send, void *recv, size_t count, DataType type, int root,
                      Comm *comm, void *stream);
  Result (*Send)(const void *send, size_t count, DataType type, int peer, Comm *comm, void *stream);
  Result (*Recv)(void *recv, size_t count, DataType type, int peer, Comm *comm, void *stream);
  Result (*GroupStart)();
  Result (*GroupEnd)();
};

}  // namespace octavo::cuda::nccl
