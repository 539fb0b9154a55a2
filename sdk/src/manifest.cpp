// Strict about what it needs, tolerant of keys it does not know, and silent about nothing.
#include "manifest.h"

#include <filesystem>

#include "config.h"
#include "failure.h"
#include "text.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
constexpr const char *kDomain = "octavo.manifest";
constexpr std::string_view kSuffix = ".octavo-plugin.toml";

class Reader {
 public:
  explicit Reader(const std::string &path) { manifest_.path = path; }

  Manifest read() {
    for (const TomlEntry &entry :
         parse_toml(read_file(manifest_.path, kDomain), manifest_.path, kDomain))
      accept(entry);
    if (version_ != 1)
      fail("manifest_version: expected 1" +
           std::string(version_ ? ", found " + std::to_string(version_) : ", found nothing"));
    require(!manifest_.name.empty(), "[plugin] name");
    require(!manifest_.version.empty(), "[plugin] version");
    require(has_abi_, "[abi] major");
    if (manifest_.name.size() > 64 ||
        manifest_.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") !=
            std::string::npos)
      fail("[plugin] name: expected at most 64 characters of a-z 0-9 _ . -, found \"" +
           manifest_.name + "\"");
    const std::string file = fs::path(manifest_.path).filename().string();
    if (file != manifest_.name + std::string(kSuffix))
      fail("[plugin] name: expected the name in the file name, \"" +
           file.substr(0, file.size() - kSuffix.size()) + "\", found \"" + manifest_.name + "\"");
    if (manifest_.library.empty())
      fail("[library]: expected a file for this platform, " + std::string(platform_tuple()) +
           " = \"" + manifest_.name + ".so\", found " + enumerate(other_platforms_));
    locate_library();
    return std::move(manifest_);
  }

 private:
  [[noreturn]] void fail(const std::string &text) const {
    throw Failure(OCTAVO_INVALID, kDomain, manifest_.path + ": " + text);
  }
  void require(bool present, const char *what) const {
    if (!present) fail(std::string(what) + ": expected a value, found nothing");
  }

  template <typename T>
  void take(const TomlEntry &entry, T &out) const {
    const T *value = std::get_if<T>(&entry.value);
    if (value == nullptr)
      throw Failure(OCTAVO_INVALID, kDomain,
                    manifest_.path + ":" + std::to_string(entry.line) + ":" +
                        std::to_string(entry.column) + ": " + dotted(entry.path) + ": expected " +
                        kind_of(TomlValue(T{})) + ", found " + kind_of(entry.value));
    out = *value;
  }

  void accept(const TomlEntry &entry) {
    const std::string key = dotted(entry.path);
    std::string ignored;
    if (key == "manifest_version") return take(entry, version_);
    if (key == "plugin.name") return take(entry, manifest_.name);
    if (key == "plugin.version") return take(entry, manifest_.version);
    if (key == "plugin.description") return take(entry, manifest_.description);
    if (key == "plugin.vendor" || key == "plugin.license") return take(entry, ignored);
    if (key == "abi.major") {
      has_abi_ = true;
      return take(entry, manifest_.abi_major);
    }
    if (key == "abi.minor") return take(entry, manifest_.abi_minor);
    // [library] linux-x86_64 = "x.so", or = { file = "x.so", sha256 = "..." }
    if (entry.path[0] == "library" && entry.path.size() >= 2) {
      if (entry.path[1] != platform_tuple()) {
        other_platforms_.push_back(entry.path[1]);
        return;
      }
      if (entry.path.size() == 2 || entry.path[2] == "file") return take(entry, manifest_.library);
      if (entry.path[2] == "sha256") return take(entry, manifest_.sha256);
    }
    // A requirement that is not understood cannot be met; anything else is only mentioned.
    if (entry.path[0] == "requires")
      fail("[requires] " + key + ": not known to this version; a newer liboctavo is needed");
    manifest_.warnings.push_back("unknown key \"" + key + "\" in line " +
                                 std::to_string(entry.line));
  }

  // The file must be there, and inside the manifest's own directory when it is relative.
  void locate_library() {
    const fs::path directory = fs::weakly_canonical(manifest_.path).parent_path();
    const fs::path file(manifest_.library);
    const fs::path full = fs::weakly_canonical(file.is_absolute() ? file : directory / file);
    const auto inside = full.lexically_relative(directory);
    if (file.is_relative() && (inside.empty() || *inside.begin() == ".."))
      fail("[library]: expected a file inside " + directory.string() + ", found " + full.string());
    if (!fs::is_regular_file(full))
      throw Failure(OCTAVO_RESOURCE, kDomain,
                    manifest_.path + ": names " + full.string() +
                        ", which does not exist or is no regular file; install the library beside "
                        "its manifest");
    manifest_.library = full.string();
  }

  Manifest manifest_;
  int64_t version_ = 0;
  bool has_abi_ = false;
  std::vector<std::string> other_platforms_;
};

}  // namespace

const char *platform_tuple() {
#if defined(__x86_64__)
  return "linux-x86_64";
#elif defined(__aarch64__)
  return "linux-aarch64";
#else
#error "Octavo runs on linux-x86_64 and linux-aarch64"
#endif
}

std::optional<Manifest> read_manifest(const std::string &path, std::vector<Verdict> &verdicts) {
  try {
    return Reader(path).read();
  } catch (const Failure &f) {
    const bool library = f.status() == OCTAVO_RESOURCE;
    verdicts.push_back({OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE,
                        library ? static_cast<uint32_t>(OCTAVO_REASON_LIBRARY)
                                : static_cast<uint32_t>(OCTAVO_REASON_MANIFEST),
                        f.text(), path,
                        library ? "reinstall the plugin: its .so belongs beside the manifest"
                                : "correct the manifest or reinstall the plugin"});
  } catch (const std::exception &e) {
    verdicts.push_back({OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE, OCTAVO_REASON_MANIFEST,
                        path + ": cannot be read: " + e.what(), path, "check the path"});
  }
  return std::nullopt;
}

}  // namespace octavo
