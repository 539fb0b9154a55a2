// Compares [requires] with cpuid, the C library, the loader's directories and the CUDA driver.
#include "sdk/src/plugin/manifest_requires.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <sstream>

#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/base/text.h"

namespace octavo {
namespace {

// "12.4" -> {12, 4}; false when the text is anything else.
bool parse_pair(std::string_view text, std::array<int, 2> &out) {
  const char *end = text.data() + text.size();
  auto part = std::from_chars(text.data(), end, out[0]);
  if (part.ec != std::errc() || part.ptr == end || *part.ptr != '.') return false;
  part = std::from_chars(part.ptr + 1, end, out[1]);
  return part.ec == std::errc() && part.ptr == end && out[0] >= 0 && out[1] >= 0;
}

constexpr std::string_view kGlibc = "glibc-";
bool parse_libc(std::string_view text, std::array<int, 2> &out) {
  return text.starts_with(kGlibc) && parse_pair(text.substr(kGlibc.size()), out);
}

// "sm_89" -> {8, 9}, "sm_100" -> {10, 0}
bool parse_arch(std::string_view text, std::array<int, 2> &out) {
  int number = 0;
  if (!text.starts_with("sm_")) return false;
  const char *end = text.data() + text.size();
  const auto part = std::from_chars(text.data() + 3, end, number);
  if (part.ec != std::errc() || part.ptr != end || number < 10) return false;
  out = {number / 10, number % 10};
  return true;
}

std::string pair_text(const std::array<int, 2> &v) {
  return concat(v[0], ".", v[1]);
}

std::string own_libc() {
  char text[64] = {};
  confstr(_CS_GNU_LIBC_VERSION, text, sizeof(text));  // "glibc 2.36"
  std::string found = text;
  if (const size_t space = found.find(' '); space != std::string::npos) found[space] = '-';
  return found;
}

// A container has the driver's library and the GPU's device nodes only when it asks for them.
constexpr const char *kWithGpu =
    "start it with the GPU, as by `docker run --gpus all` or `podman run --device "
    "nvidia.com/gpu=all`";

// What hides GPUs from CUDA: "; CUDA_VISIBLE_DEVICES = "3"".
std::string visible_devices() {
  const char *named = std::getenv("CUDA_VISIBLE_DEVICES");
  return named == nullptr ? std::string() : concat("; CUDA_VISIBLE_DEVICES = \"", named, "\"");
}

class Gate {
 public:
  Gate(const Manifest &manifest, std::vector<Verdict> &verdicts)
      : manifest_(manifest), verdicts_(verdicts) {}

  void decline(uint32_t reason, const std::string &needs, const std::string &found,
               const std::string &remedy) {
    verdicts_.push_back({OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE, reason,
                         manifest_.name + " requires " + needs, found, remedy});
    ++declined_;
  }

  bool run(const Hardware &hardware) {
    const ManifestRequires &r = manifest_.requires_;
    const std::string tuple = platform_tuple();
    const std::string os = tuple.substr(0, tuple.find('-'));
    const std::string arch = tuple.substr(tuple.find('-') + 1);
    const std::string build = "install a build of the plugin for " + tuple;
    if (!r.os.empty() && r.os != os)
      decline(OCTAVO_REASON_REQUIRE, "the operating system " + r.os, os, build);
    if (!r.arch.empty() && r.arch != arch)
      decline(OCTAVO_REASON_REQUIRE, "an " + r.arch + " processor", arch, build);
    std::vector<std::string> missing;
    for (const std::string &feature : r.cpu)
      if (cpu_has(feature) != 1) missing.push_back(feature);
    if (!missing.empty())
      decline(OCTAVO_REASON_REQUIRE, "the processor features " + enumerate(r.cpu),
              "missing: " + enumerate(missing),
              "install a build of the plugin for this processor, or run where it has them");
    libc(r.libc);
    const std::string directory = std::filesystem::path(manifest_.library).parent_path().string();
    for (const std::string &name : r.libraries)
      if (find_library(name, directory).empty())
        decline(OCTAVO_REASON_REQUIRE, "the library " + name,
                "not in the loader's directories, LD_LIBRARY_PATH or " + directory,
                "install the package that provides " + name);
    if (!r.gpu_vendor.empty()) gpu(r, hardware);
    return declined_ == 0;
  }

  int32_t first_device() const { return first_device_; }

 private:
  void libc(const std::string &wanted) {
    std::array<int, 2> least{}, found{};
    if (wanted.empty()) return;
    const std::string own = own_libc();
    if (!parse_libc(own, found) || (parse_libc(wanted, least) && found < least))
      decline(OCTAVO_REASON_REQUIRE, wanted + " or later", own,
              "install a build of the plugin for an older system, or upgrade this one");
  }

  void gpu(const ManifestRequires &r, const Hardware &hardware) {
    if (!hardware.cuda_driver)
      return decline(OCTAVO_REASON_DRIVER, "an NVIDIA driver", hardware.cuda_text,
                     hardware.cuda_library
                         ? "restart the machine, so that the driver's module and libcuda.so.1 are "
                           "of one version, or install the NVIDIA driver anew"
                         : concat("install the NVIDIA driver, or in a container ", kWithGpu));
    std::array<int, 2> least{};
    if (parse_pair(r.min_driver, least)) {
      const std::array<int, 2> found = {hardware.cuda_version / 1000,
                                        hardware.cuda_version % 1000 / 10};
      if (found < least)
        decline(OCTAVO_REASON_DRIVER, "a driver for CUDA " + r.min_driver + " or later",
                "a driver for CUDA " + pair_text(found), "install a newer NVIDIA driver");
    }
    if (hardware.cuda_devices.empty() && hardware.mig_devices > 0)
      return decline(
          OCTAVO_REASON_DEVICE, "an NVIDIA GPU that is offered to this process",
          concat(hardware.mig_devices, " GPU(s) in MIG mode, and no instance of one"),
          "create an instance with `nvidia-smi mig -cgi 0 -C` and name it in CUDA_VISIBLE_DEVICES");
    least = {};
    parse_arch(r.min_arch, least);
    std::vector<std::string> found;
    bool is_full = false;
    for (const CudaDevice &d : hardware.cuda_devices) {
      const std::array<int, 2> has = {d.capability_major, d.capability_minor};
      const bool fits = has >= least;
      const auto free_mib = static_cast<int64_t>(d.free_bytes >> 20);
      if (fits && free_mib >= r.min_free_mib) {
        first_device_ = d.index;
        return;
      }
      is_full = is_full || fits;
      found.push_back(concat(
          d.name, " of capability ", pair_text(has),
          r.min_free_mib == 0 ? std::string()
                              : concat(", ", free_mib, " of ", d.memory_bytes >> 20, " MiB free")));
    }
    decline(OCTAVO_REASON_DEVICE,
            concat("an NVIDIA GPU",
                   r.min_arch.empty() ? std::string()
                                      : concat(" of ", r.min_arch, " (capability ",
                                               pair_text(least), ") or later"),
                   r.min_free_mib == 0 ? std::string()
                                       : concat(" with ", r.min_free_mib, " MiB of free memory")),
            found.empty() ? "no CUDA device, and a " + hardware.cuda_text + visible_devices()
                          : enumerate(found),
            is_full                          ? "end what fills it: `nvidia-smi` lists the processes"
            : !hardware.cuda_devices.empty() ? "run on a machine with such a GPU"
            : visible_devices().empty()
                ? concat("run on a machine with one, or in a container ", kWithGpu)
                : "run `unset CUDA_VISIBLE_DEVICES`, or name the GPU in it");
  }

  const Manifest &manifest_;
  std::vector<Verdict> &verdicts_;
  int declined_ = 0;
  int32_t first_device_ = 0;
};

// The directories that ld.so searches for this process: LD_LIBRARY_PATH, unless it is privileged,
// and the system's.
std::vector<std::string> loader_directories() {
  std::vector<std::string> found;
  void *self = dlopen(nullptr, RTLD_NOW);
  Dl_serinfo size{};
  if (dlinfo(self, RTLD_DI_SERINFOSIZE, &size) != 0) return found;
  std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
  auto *info = reinterpret_cast<Dl_serinfo *>(memory.data());
  dlinfo(self, RTLD_DI_SERINFOSIZE, info);
  if (dlinfo(self, RTLD_DI_SERINFO, info) == 0)
    for (unsigned i = 0; i < info->dls_cnt; ++i) found.emplace_back(info->dls_serpath[i].dls_name);
  return found;
}

// Why glob, whose handler of errors is a plain function, did not go on.
thread_local int unlisted = 0;

// Those that ldconfig collects into the loader's cache.
void add_configured(const std::string &file, int depth, std::vector<std::string> &found) {
  std::ifstream in = open_lines(file);
  for (std::string line; depth < 4 && std::getline(in, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    std::istringstream words(line);
    words.exceptions(std::ios::badbit);
    std::string word;
    if (!(words >> word)) continue;
    if (word[0] == '/') found.push_back(word);
    if (word != "include") continue;
    while (words >> word) {
      if (word[0] != '/') word = "/etc/" + word;
      glob_t files{};
      unlisted = 0;
      const auto fails = [](const char *, int error) -> int {
        if (!is_verdict(error)) unlisted = error;
        return unlisted != 0;
      };
      const int result = glob(word.c_str(), 0, fails, &files);
      std::vector<std::string> names;
      if (result == 0) names.assign(files.gl_pathv, files.gl_pathv + files.gl_pathc);
      globfree(&files);
      if (result == GLOB_NOSPACE) throw std::bad_alloc();  // GCOVR_EXCL_BR_LINE: no memory
      if (result == GLOB_ABORTED)
        throw ResourceUnavailable(word + ": cannot be read", "glob", unlisted);
      for (const std::string &name : names) add_configured(name, depth + 1, found);
    }
  }
}

}  // namespace

std::string malformed_requirement(const ManifestRequires &wanted) {
  std::array<int, 2> unused{};
  if (!wanted.libc.empty() && !parse_libc(wanted.libc, unused))
    return "libc: expected \"glibc-<major>.<minor>\", found \"" + wanted.libc + "\"";
  for (const std::string &name : wanted.libraries)
    if (name.empty() || name.find('/') != std::string::npos)
      return "libraries: expected names without a directory, found \"" + name + "\"";
  for (const std::string &feature : wanted.cpu)
    if (cpu_has(feature) < 0)
      return "cpu: the feature \"" + feature + "\" is not known to this version for " +
             platform_tuple();
  if (wanted.gpu_vendor.empty()) {
    if (!wanted.min_arch.empty() || !wanted.min_driver.empty() || wanted.min_free_mib != 0)
      return "accelerator.vendor: expected \"nvidia\" with min_arch, min_driver and min_free_mib, "
             "found nothing";
    return {};
  }
  if (wanted.gpu_vendor != "nvidia")
    return "accelerator.vendor: expected \"nvidia\", the only one that this version knows, found "
           "\"" +
           wanted.gpu_vendor + "\"";
  if (wanted.min_free_mib < 0 || wanted.min_free_mib > (int64_t{1} << 40))
    return concat("accelerator.min_free_mib: expected MiB, 0 or more, found ", wanted.min_free_mib);
  if (!wanted.min_arch.empty() && !parse_arch(wanted.min_arch, unused))
    return "accelerator.min_arch: expected a text like \"sm_89\", found \"" + wanted.min_arch +
           "\"";
  if (!wanted.min_driver.empty() && !parse_pair(wanted.min_driver, unused))
    return "accelerator.min_driver: expected a CUDA version like \"12.4\", found \"" +
           wanted.min_driver + "\"";
  return {};
}

bool check_requirements(const Manifest &manifest, const Hardware &hardware,
                        std::vector<Verdict> &verdicts, int32_t *first_device) {
  Gate gate(manifest, verdicts);
  const bool met = gate.run(hardware);
  if (first_device != nullptr) *first_device = gate.first_device();
  return met;
}

bool check_gpu_of_release(const Hardware &hardware, std::vector<Verdict> &verdicts) {
  Manifest manifest;
  manifest.name = "kernels-cuda";
  manifest.requires_.gpu_vendor = "nvidia";
  manifest.requires_.min_arch = OCTAVO_CUDA_MIN_ARCH;
  manifest.requires_.min_driver = OCTAVO_CUDA_MIN_DRIVER;
  return check_requirements(manifest, hardware, verdicts);
}

std::vector<std::string> configured_directories(const std::string &file) {
  std::vector<std::string> found;
  add_configured(file, 0, found);
  return found;
}

std::string find_library(const std::string &name, const std::string &directory) {
  std::vector<std::string> places = loader_directories();
  for (std::string &place : configured_directories("/etc/ld.so.conf"))
    places.push_back(std::move(place));
  places.push_back(directory);
  for (const std::string &place : places)
    if (is_regular_file(place + "/" + name)) return place + "/" + name;
  return {};
}

}  // namespace octavo
