// libFuzzer target of the C ABI: bytes as sequences of calls on liboctavo, with real plugins and
// with one that answers what the bytes say.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "machine.h"

namespace fs = std::filesystem;

namespace octavo::fuzz {

extern "C" {
__attribute__((visibility("default"))) Script *octavo_fuzz_script = nullptr;
}

namespace {

class Folder {
 public:
  Folder() : path_(fs::absolute("c_abi." + std::to_string(getpid())).string()) {}
  ~Folder() { clean(); }
  void clean() {
    std::error_code ignored;
    if (used_) fs::remove_all(path_, ignored);
    used_ = false;
  }
  void use() {
    fs::create_directories(path_);
    used_ = true;
  }
  const std::string &path() const { return path_; }

 private:
  const std::string path_;
  bool used_ = false;
};

Folder &folder() {
  static Folder it;
  return it;
}

}  // namespace

const std::string &work_folder() {
  return folder().path();
}

void use_work_folder() {
  folder().use();
}

Machine::~Machine() {
  octavo_fuzz_script = nullptr;
  for (OpenStore &s : stores_) close_store(s);
  for (OpenRun &r : runs_) close_run(r);
}

void Machine::run() {
  using Operation = void (Machine::*)();
  // Those that build something up stand more than once.
  static constexpr Operation kOperations[] = {
      &Machine::open,          &Machine::open,       &Machine::describe,   &Machine::describe,
      &Machine::seal,          &Machine::seal,       &Machine::open_store, &Machine::open_store,
      &Machine::quantize,      &Machine::forward,    &Machine::forward,    &Machine::backward,
      &Machine::backward,      &Machine::end_step,   &Machine::step,       &Machine::transfer,
      &Machine::prepare,       &Machine::fused,      &Machine::reduce,     &Machine::collective,
      &Machine::use_store,     &Machine::use_store,  &Machine::checkpoint, &Machine::close_store,
      &Machine::add_parameter, &Machine::add_linear, &Machine::look,       &Machine::report,
      &Machine::close,         &Machine::no_handles, &Machine::threads};
  constexpr int kMostCalls = 48;
  for (int i = 0; i < kMostCalls && !script_.is_over(); ++i)
    (this->*kOperations[script_.below(std::size(kOperations))])();
}

}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  // Nothing of the user's surroundings counts.
  for (const char *variable : {"HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "OCTAVO_PLUGIN_PATH",
                               "OCTAVO_MIXED_PRECISION", "OCTAVO_BACKEND"})
    unsetenv(variable);
  // Those that are compiled with sanitizers.
  setenv("OCTAVO_FORCE_KERNELS", "baseline", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  octavo::fuzz::Script script(data, size);
  {
    octavo::fuzz::Machine machine(script);
    machine.run();
  }
  octavo::fuzz::folder().clean();
  return 0;
}
