// Barriers and shuffles of device code by the place that calls them: CUDA_ON_CPU_SITES names a file
// to which every place that is met is added, one "FILE:LINE" a line, and CUDA_ON_CPU_LEAVE_OUT one
// of them whose calls do nothing. So a test finds out whether each of them is needed.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

namespace cuda_on_cpu {
namespace {

std::string value_of(const char *name) {
  const char *value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Sites {
  std::string record = value_of("CUDA_ON_CPU_SITES");
  std::string left_out = value_of("CUDA_ON_CPU_LEAVE_OUT");
  bool is_watched = !record.empty() || !left_out.empty();
  std::mutex mutex;
  std::set<std::string> met;

  // At once, since a test may end the process.
  void add(const std::string &site) {
    const std::lock_guard lock(mutex);
    if (!met.insert(site).second) return;
    std::FILE *file = std::fopen(record.c_str(), "a");
    if (file == nullptr) std::abort();
    std::fprintf(file, "%s\n", site.c_str());
    std::fclose(file);
  }
};

}  // namespace

bool is_left_out(const char *file, int line) {
  static Sites sites;
  if (!sites.is_watched) return false;
  thread_local const char *last_file = nullptr;
  thread_local int last_line = 0;
  thread_local bool is_last_left_out = false;
  if (file == last_file && line == last_line) return is_last_left_out;
  const std::string site = std::string(file) + ":" + std::to_string(line);
  if (!sites.record.empty()) sites.add(site);
  last_file = file;
  last_line = line;
  return is_last_left_out = site == sites.left_out;
}

}  // namespace cuda_on_cpu
