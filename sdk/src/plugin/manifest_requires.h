// The gates of [requires]: does this machine have what a manifest asks for? Decided before the
// library is opened.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/machine/hardware.h"
#include "sdk/src/plugin/manifest.h"

namespace octavo {

// Empty, or which value is no value at all: "libc: expected ..., found ...".
std::string malformed_requirement(const ManifestRequires &wanted);

// Appends one declining verdict for each requirement that is not met; false when there was one.
// *first_device receives the index of the first device that meets [requires.accelerator], else 0.
bool check_requirements(const Manifest &manifest, const Hardware &hardware,
                        std::vector<Verdict> &verdicts, int32_t *first_device = nullptr);

// The same for the kernels for NVIDIA GPUs of this release, which need not be installed.
bool check_gpu_of_release(const Hardware &hardware, std::vector<Verdict> &verdicts);

// The directories that ldconfig collects into the loader's cache, from a file of ld.so.conf's
// format.
std::vector<std::string> configured_directories(const std::string &file);

// Where the system's loader would find a library of this name for this process, or next to the
// manifest; empty when nowhere.
std::string find_library(const std::string &name, const std::string &directory);

}  // namespace octavo
