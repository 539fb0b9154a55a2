/* NCCL opened at run time: its functions, and what its answers mean. */
#pragma once

#include "host_adapters/ranks/nccl/nccl_types.h"
#include "kernels/check/check.h"

namespace octavo::cuda::nccl {

/* The functions of the library at `path`, or of libnccl.so.2 when it is empty; opened once and
 * never closed. On failure the text went to the host: OCTAVO_NO_RESOURCE when there is no such
 * library, OCTAVO_INCOMPATIBLE when it is not one of 2.14 or later of major 2, or lacks a function.
 */
octavo_status find_library(const Caller &caller, const char *verb, octavo_str path,
                           const Functions **out);

octavo_status status_of(Result result);
/* "ncclRemoteError" */
const char *name_of(Result result);

}  // namespace octavo::cuda::nccl
