// Strict about what it needs, tolerant of keys it does not know, and silent about nothing.
#include "sdk/src/plugin/manifest.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"
#include "sdk/src/config/toml.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/src/plugin/manifest_options.h"
#include "sdk/src/plugin/manifest_requires.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;
constexpr const char *kDomain = "octavo.manifest";
constexpr size_t kMostBytes = 64 << 10;
constexpr size_t kMostKeys = 1024;
constexpr size_t kMostLevels = 4;

bool is_plugin_name(const std::string &name) {
  return !name.empty() && name.size() <= 64 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.-") == std::string::npos;
}

class Reader {
 public:
  explicit Reader(const std::string &path) : options_(path, kDomain) {
    manifest_.path = path;
    Manifest &m = manifest_;
    fields_ = {{"manifest_version", &version_},
               {"plugin.name", &m.name},
               {"plugin.version", &m.version},
               {"plugin.description", &m.description},
               {"plugin.vendor", &m.vendor},
               {"plugin.license", &m.license},
               {"abi.major", &m.abi_major},
               {"abi.minor", &m.abi_minor},
               {"abi.built_minor", &m.built_minor},
               {"requires.cpu", &m.requires_.cpu},
               {"requires.os", &m.requires_.os},
               {"requires.arch", &m.requires_.arch},
               {"requires.libc", &m.requires_.libc},
               {"requires.libraries", &m.requires_.libraries},
               {"requires.layers", &m.requires_.layers},
               {"requires.accelerator.vendor", &m.requires_.gpu_vendor},
               {"requires.accelerator.min_arch", &m.requires_.min_arch},
               {"requires.accelerator.min_driver", &m.requires_.min_driver},
               {"requires.accelerator.min_free_mib", &m.requires_.min_free_mib},
               {"provides.recipes", &m.provides.recipes},
               {"provides.encodings", &m.provides.encodings},
               {"provides.interfaces", &m.provides.interfaces},
               {"kernels.kind", &m.kernels.kind},
               {"kernels.device_type", &m.kernels.device_type},
               {"kernels.over", &m.kernels.over},
               {"conformance.kit", &m.conformance.kit},
               {"conformance.level", &m.conformance.level},
               {"conformance.report_sha256", &m.conformance.report_sha256}};
  }

  Manifest read() {
    manifest_.file = std::make_shared<const CheckedFile>(manifest_.path, kDomain);
    manifest_.text = manifest_.file->read(kMostBytes);
    const std::vector<TomlEntry> entries = parse_toml(manifest_.text, manifest_.path, kDomain);
    if (entries.size() > kMostKeys)
      fail("expected at most ", kMostKeys, " keys, found ", entries.size());
    for (const TomlEntry &entry : entries) accept(entry);
    check_values();
    manifest_.options = options_.take();
    locate_library();
    return std::move(manifest_);
  }

 private:
  using Field = std::variant<int64_t *, std::string *, std::vector<std::string> *>;

  template <typename... Part>
  [[noreturn]] void fail(const Part &...text) const {
    throw Failure(OCTAVO_INVALID, kDomain, manifest_.path, ": ", text...);
  }
  template <typename... Part>
  [[noreturn]] void fail_at(const TomlEntry &entry, const Part &...text) const {
    throw Failure(OCTAVO_INVALID, kDomain, manifest_.path, ":", entry.line, ":", entry.column, ": ",
                  dotted(entry.path), ": ", text...);
  }
  void require(bool present, const char *what) const {
    if (!present) fail(what, ": expected a value, found nothing");
  }

  template <typename T>
  void take(const TomlEntry &entry, T &out) const {
    if constexpr (std::is_same_v<T, std::vector<std::string>>)
      if (const auto *one = std::get_if<std::string>(&entry.value)) {
        out = {plain_text(*one, kMaxPluginText)};  // one text is a list of one
        return;
      }
    const T *value = std::get_if<T>(&entry.value);
    if (value == nullptr)
      fail_at(entry, "expected ", kind_of(TomlValue(T{})), ", found ", kind_of(entry.value));
    if constexpr (std::is_same_v<T, std::string>) {
      out = plain_text(*value, kMaxPluginText);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      out.clear();
      for (const std::string &one : *value) out.push_back(plain_text(one, kMaxPluginText));
    } else {
      out = *value;
    }
  }

  void accept(const TomlEntry &entry) {
    const std::string key = dotted(entry.path);
    if (entry.path.size() > kMostLevels)
      fail_at(entry, "expected at most ", kMostLevels, " levels, found ", entry.path.size());
    if (const auto field = fields_.find(key); field != fields_.end()) {
      given_.push_back(key);
      std::visit([&](auto *out) { take(entry, *out); }, field->second);
      return;
    }
    const auto *other = std::get_if<OtherToml>(&entry.value);
    const bool empty_table = other != nullptr && other->kind == "table";
    if (empty_table && (key == "library" || is_table(key))) return;
    if (entry.path[0] == "library" && entry.path.size() >= 2 && accept_library(entry)) return;
    if (entry.path[0] == "options" && options_.accept(entry)) return;
    const std::string near = nearest(key, known(entry));
    const std::string hint = near.empty() ? "" : "; did you mean \"" + near + "\"?";
    // A requirement that is not understood cannot be met; anything else is only mentioned.
    if (entry.path[0] == "requires")
      fail("[requires] ", key, ": not known to this version; a newer liboctavo is needed", hint);
    manifest_.warnings.push_back(
        concat("unknown key \"", plain_text(key, kMaxPluginText), "\" in line ", entry.line, hint));
  }

  // linux-x86_64 = "x.so", or = { file = "x.so", sha256 = "..." }
  bool accept_library(const TomlEntry &entry) {
    if (entry.path[1] != platform_tuple()) {
      // A table of two keys is one platform.
      if (std::find(other_platforms_.begin(), other_platforms_.end(), entry.path[1]) ==
          other_platforms_.end())
        other_platforms_.push_back(entry.path[1]);
      return true;
    }
    if (entry.path.size() == 2 || (entry.path.size() == 3 && entry.path[2] == "file")) {
      take(entry, manifest_.library);
      return true;
    }
    if (entry.path.size() != 3 || entry.path[2] != "sha256") return false;
    take(entry, manifest_.sha256);
    if (!is_sha256(manifest_.sha256))
      fail_at(entry, "expected 64 digits of lower-case hex, found \"", manifest_.sha256, "\"");
    return true;
  }

  std::vector<std::string> known(const TomlEntry &entry) const {
    std::vector<std::string> names = ManifestOptions::keys_like(entry);
    for (const auto &[name, field] : fields_) names.push_back(name);
    for (const char *part : {".file", ".sha256"})
      names.push_back(std::string("library.") + platform_tuple() + part);
    return names;
  }
  bool is_table(const std::string &key) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const auto &field) { return field.first.starts_with(key + "."); });
  }
  bool given(const char *key) const {
    return std::find(given_.begin(), given_.end(), key) != given_.end();
  }

  void check_values() {
    Manifest &m = manifest_;
    if (version_ != 1)
      fail("manifest_version: expected 1",
           std::string(version_ ? concat(", found ", version_) : ", found nothing"));
    require(!m.name.empty(), "[plugin] name");
    require(!m.version.empty(), "[plugin] version");
    require(given("abi.major"), "[abi] major");
    if (!is_plugin_name(m.name))
      fail("[plugin] name: expected at most 64 characters of a-z 0-9 _ . -, found \"", m.name,
           "\"");
    check_kernels(m.kernels);
    const std::string file = fs::path(m.path).filename().string();
    if (file != m.name + std::string(kManifestSuffix))
      fail("[plugin] name: expected the name in the file name, \"",
           file.substr(0, file.size() - std::min(file.size(), kManifestSuffix.size())),
           "\", found \"", m.name, "\"");
    if (!given("abi.built_minor")) m.built_minor = m.abi_minor;
    if (m.built_minor < m.abi_minor)
      fail("[abi] built_minor: expected at least minor, ", m.abi_minor, ", found ", m.built_minor);
    const std::string &report = m.conformance.report_sha256;
    if (!report.empty() && !is_sha256(report))
      fail("[conformance] report_sha256: expected 64 digits of lower-case hex, found \"", report,
           "\"");
    if (const std::string problem = malformed_requirement(m.requires_); !problem.empty())
      fail("[requires] ", problem);
    if (m.library.empty())
      fail("[library]: expected a file for this platform, ", platform_tuple(), " = \"", m.name,
           ".so\", found ", enumerate(other_platforms_));
  }

  void check_kernels(const ManifestKernels &k) const {
    const bool serves = given("kernels.kind") || given("kernels.device_type");
    if (given("kernels.over") &&
        (serves || k.over.empty() || !std::all_of(k.over.begin(), k.over.end(), is_plugin_name)))
      fail("[kernels] over: expected the kinds of devices that the layer stands on, without kind ",
           "and device_type, found ", enumerate(k.over), serves ? " with them" : "");
    if (!serves) return;
    if (!is_plugin_name(k.kind) || k.kind == "auto")
      fail(
          "[kernels] kind: expected the device's name for device.kind, at most 64 characters of "
          "a-z 0-9 _ . -, found \"",
          k.kind, "\"");
    if (k.device_type < 1 || k.device_type > INT32_MAX)
      fail("[kernels] device_type: expected the device's type in DLPack, 1 or more, found ",
           given("kernels.device_type") ? concat(k.device_type) : std::string("nothing"));
    if ((k.kind == "cpu") != (k.device_type == OCTAVO_DEVICE_CPU))
      fail("[kernels] device_type: expected ", OCTAVO_DEVICE_CPU, " for kind \"cpu\" only, found ",
           k.device_type, " for \"", k.kind, "\"");
  }

  // The file must be there, and inside the manifest's own directory.
  void locate_library() {
    int error = 0;
    const fs::path directory = fs::path(resolved_path(manifest_.path, &error)).parent_path();
    const fs::path file(manifest_.library);
    if (file.is_absolute() || std::find(file.begin(), file.end(), "..") != file.end())
      fail(
          "[library]: expected a file inside the manifest's own directory, by a relative path "
          "without \"..\", found ",
          manifest_.library);
    fs::path full = resolved_path((directory / file).string(), &error);
    if (error == ENAMETOOLONG)
      fail("[library]: expected a path that a file can have, found one that is too long: ",
           manifest_.library);
    if (error != 0) full = (directory / file).lexically_normal();
    const auto inside = full.lexically_relative(directory);
    if (*inside.begin() == "..")
      fail("[library]: expected a file inside ", directory.string(), ", found ", full.string());
    if (error != 0 && error != ENOENT && error != ENOTDIR)
      throw Failure(OCTAVO_NO_RESOURCE, kDomain, manifest_.path, ": names ", full.string(),
                    ": cannot be read: ", std::strerror(error), "; check the path");
    if (error != 0 || !is_regular_file(full.string()))
      throw Failure(
          OCTAVO_NO_RESOURCE, kDomain, manifest_.path, ": names ", full.string(),
          ", which does not exist or is not a regular file; install the library next to its "
          "manifest");
    manifest_.library = full.string();
  }

  Manifest manifest_;
  std::map<std::string, Field> fields_;
  ManifestOptions options_;
  std::vector<std::string> given_;
  int64_t version_ = 0;
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
    const bool library = f.status() == OCTAVO_NO_RESOURCE;
    verdicts.push_back({OCTAVO_LEVEL_MANIFEST, OCTAVO_DECLINE,
                        library ? static_cast<uint32_t>(OCTAVO_REASON_LIBRARY)
                                : static_cast<uint32_t>(OCTAVO_REASON_MANIFEST),
                        plain_text(f.text(), kMaxPluginText), path,
                        library ? "reinstall the plugin: its .so belongs next to the manifest"
                                : "correct the manifest or reinstall the plugin"});
  }
  return std::nullopt;
}

}  // namespace octavo
