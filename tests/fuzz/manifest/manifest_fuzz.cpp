// libFuzzer target of manifests: the first byte chooses a machine, the rest is the file.
//
// The files lie in a folder of this process below the current one, which goes away at its end.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "sdk/src/plugin/loader.h"
#include "sdk/src/plugin/manifest.h"
#include "sdk/src/plugin/manifest_requires.h"
#include "tests/fuzz/expect.h"

namespace octavo::fuzz {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder()
      : root_(fs::absolute("manifest." + std::to_string(getpid()))),
        path_((root_ / "fuzz.octavo-plugin.toml").string()) {
    fs::create_directories(root_ / "inner");
    for (const char *library : {"fuzz.so", "inner/fuzz.so"})
      std::ofstream(root_ / library) << "ELF";
    file_ = open(path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    expect(file_ >= 0, "a file that can be created", path());
  }
  ~Folder() {
    close(file_);
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  const std::string &path() const { return path_; }
  const fs::path &root() const { return root_; }
  void write(const uint8_t *data, size_t size) const {
    // In this order: some file systems bring a file to the disk at once when it is made empty
    // first.
    expect(pwrite(file_, data, size, 0) == static_cast<ssize_t>(size) &&
               ftruncate(file_, static_cast<off_t>(size)) == 0,
           "a file that can be written", path_);
  }

 private:
  const fs::path root_;
  const std::string path_;
  int file_ = -1;
};

Hardware machine(uint8_t choice) {
  Hardware hw;
  hw.cuda_text = "no driver";
  if ((choice & 1) == 0) return hw;
  hw.cuda_driver = true;
  hw.cuda_version = choice & 2 ? 11080 : 12040;
  for (int i = 0; i < (choice >> 2 & 3); ++i) {
    CudaDevice device;
    device.index = i;
    device.name = "GPU";
    device.capability_major = 8 + i;
    hw.cuda_devices.push_back(device);
  }
  return hw;
}

void check_verdict(const Verdict &v) {
  expect(v.decision == OCTAVO_DECLINE && v.reason != OCTAVO_REASON_NONE, "a refusal has a reason",
         v.text);
  expect(!v.text.empty() && !v.remedy.empty(), "a refusal says what to do", v.text);
}

void check_manifest(const Folder &folder, const Manifest &m, const Hardware &hw) {
  expect(m.name == "fuzz" && !m.version.empty(), "name and version", m.name);
  expect(fs::is_regular_file(m.library) && fs::path(m.library).is_absolute(), "a library",
         m.library);
  const bool inside = m.library.starts_with(folder.root().string() + "/");
  const bool stated =
      m.text.find('/') != std::string::npos || m.text.find('\\') != std::string::npos;
  expect(inside || stated, "a relative file lies beside the manifest", m.library);
  if (m.options) {
    for (const DeclaredOption &o : *m.options)
      expect(!o.name.empty() && is_value(o.initial), "an option with a default", o.name);
    expect(first_difference(*m.options, *m.options).empty(), "options that equal themselves");
    options_toml(*m.options);
  }
  std::vector<Verdict> refusals;
  const bool met = check_requirements(m, hw, refusals);
  expect(met == refusals.empty(), "one refusal for each requirement", m.text);
  for (const Verdict &v : refusals) check_verdict(v);
  if (const auto abi = abi_verdict(m)) check_verdict(*abi);
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace octavo::fuzz;
  static const Folder folder;
  if (size == 0) return 0;
  folder.write(data + 1, size - 1);
  std::vector<octavo::Verdict> refusals;
  const auto manifest = octavo::read_manifest(folder.path(), refusals);
  expect(manifest.has_value() == refusals.empty(), "a manifest or a refusal");
  for (const octavo::Verdict &v : refusals) {
    check_verdict(v);
    expect(v.text.find("octavo-plugin.toml") != std::string::npos, "a refusal names the file",
           v.text);
  }
  if (manifest) check_manifest(folder, *manifest, machine(data[0]));
  return 0;
}
