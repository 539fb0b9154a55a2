// What a machine has, as [requires] names it: features of the processor and libraries that the
// system's loader finds.
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <sys/stat.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <utility>

#include "manifest_requires.h"

namespace octavo {
namespace {

bool is_file(const std::string &path) {
  struct stat st {};
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

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

// Those that ldconfig collects into the loader's cache.
void add_configured(const std::string &file, int depth, std::vector<std::string> &found) {
  std::ifstream in(file);
  for (std::string line; depth < 4 && std::getline(in, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    std::istringstream words(line);
    std::string word;
    if (!(words >> word)) continue;
    if (word[0] == '/') found.push_back(word);
    if (word != "include") continue;
    while (words >> word) {
      if (word[0] != '/') word = "/etc/" + word;
      glob_t files{};
      if (glob(word.c_str(), 0, nullptr, &files) == 0)
        for (size_t i = 0; i < files.gl_pathc; ++i)
          add_configured(files.gl_pathv[i], depth + 1, found);
      globfree(&files);
    }
  }
}

}  // namespace

int cpu_has(const std::string &feature) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#define OCTAVO_FEATURE(name) \
  { name, __builtin_cpu_supports(name) != 0 }
  const std::pair<const char *, bool> features[] = {
      OCTAVO_FEATURE("sse4.2"),     OCTAVO_FEATURE("avx"),       OCTAVO_FEATURE("avx2"),
      OCTAVO_FEATURE("fma"),        OCTAVO_FEATURE("bmi"),       OCTAVO_FEATURE("bmi2"),
      OCTAVO_FEATURE("avx512f"),    OCTAVO_FEATURE("avx512bw"),  OCTAVO_FEATURE("avx512cd"),
      OCTAVO_FEATURE("avx512dq"),   OCTAVO_FEATURE("avx512vl"),  OCTAVO_FEATURE("avx512vbmi"),
      OCTAVO_FEATURE("avx512vnni"), OCTAVO_FEATURE("avx512bf16")};
#undef OCTAVO_FEATURE
  for (const auto &[name, has] : features)
    if (feature == name) return static_cast<int>(has);
#elif defined(__aarch64__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  if (feature == "asimd") return (first & HWCAP_ASIMD) != 0;
  if (feature == "sve") return (first & HWCAP_SVE) != 0;
  if (feature == "sve2") return (second & HWCAP2_SVE2) != 0;
  if (feature == "bf16") return (second & HWCAP2_BF16) != 0;
  if (feature == "i8mm") return (second & HWCAP2_I8MM) != 0;
#endif
  return -1;
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
    if (is_file(place + "/" + name)) return place + "/" + name;
  return {};
}

}  // namespace octavo
