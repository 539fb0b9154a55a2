// Manifest: what `<name>.octavo-plugin.toml` states about a plugin, before any of its code is
// touched.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/src/base/verdict.h"
#include "sdk/src/config/declared.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {

inline constexpr std::string_view kManifestSuffix = ".octavo-plugin.toml";

// [requires]: what the machine must have. Empty: nothing is required.
struct ManifestRequires {
  std::vector<std::string> cpu;  // features: "avx2", ...
  std::string os;
  std::string arch;
  std::string libc;                    // "glibc-2.34": at least
  std::vector<std::string> libraries;  // names as in DT_NEEDED
  std::string gpu_vendor;              // accelerator.vendor: "nvidia"
  std::string min_arch;                // "sm_89"
  std::string min_driver;              // the CUDA version that the driver supports: "12.4"
  int64_t min_free_mib = 0;            // of the GPU's memory
  std::vector<std::string> layers;     // ids of plugins that stand on the kernels, from below
};

// [provides]: hints for people and tools; the plugin itself declares what it really offers.
struct Provides {
  std::vector<std::string> recipes;
  std::vector<std::string> encodings;
  std::vector<std::string> interfaces;
};

// [kernels]: the device that a plugin of kernels serves, or the devices on which its layer stands.
struct ManifestKernels {
  std::string kind;               // as in device.kind: "npu"; empty: the plugin has no kernels
  int64_t device_type = 0;        // of octavo_device, by DLPack: 12
  std::vector<std::string> over;  // kinds; empty: the plugin has no layer
};

// [conformance]: the report of `octavo plugin verify` that the author publishes.
struct Conformance {
  std::string kit;
  std::string level;
  std::string report_sha256;
};

struct Manifest {
  std::string path;
  std::string name;
  std::string version;
  std::string description;
  std::string vendor;
  std::string license;
  int64_t abi_major = 0;
  int64_t abi_minor = 0;              // the lowest minor that a host needs
  int64_t built_minor = 0;            // that of the headers it was built with
  std::string library;                // absolute, without links
  std::string sha256;                 // of the library, as stated; empty: not stated
  ManifestRequires requires_;         // [requires]
  Provides provides;                  // [provides]
  ManifestKernels kernels;            // [kernels]
  Conformance conformance;            // [conformance]
  std::vector<std::string> warnings;  // unknown keys
  std::string text;                   // the bytes that all of this comes from
  std::shared_ptr<const CheckedFile> file;
  // The library as check_trust opened, judged and hashed it; null until then.
  std::shared_ptr<const CheckedFile> checked;
  // [options]; nothing: it states none, nor that there are none.
  std::optional<std::vector<DeclaredOption>> options;
};

// "linux-x86_64": the key of this platform under [library].
const char *platform_tuple();

// Reads and checks the manifest and that its library file is there. On failure returns nothing and
// appends a declining verdict with the reason.
std::optional<Manifest> read_manifest(const std::string &path, std::vector<Verdict> &verdicts);

}  // namespace octavo
