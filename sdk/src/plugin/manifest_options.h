// [options] of a manifest: the options that the plugin's own table has, for whoever may not run the
// plugin. At an open its own table counts.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sdk/src/config/declared.h"
#include "sdk/src/config/toml.h"

namespace octavo {

// Takes the entries of all options, in any order, then checks each option as a whole.
class ManifestOptions {
 public:
  ManifestOptions(const std::string &path, const char *domain) : path_(path), domain_(domain) {}
  // One entry of [options]; false: its key is not known. Throws Failure(OCTAVO_INVALID).
  bool accept(const TomlEntry &entry);
  // The names of the keys of the option that `entry` stands in, for a near one.
  static std::vector<std::string> keys_like(const TomlEntry &entry);
  // The options in the order of the file; nothing: the manifest states none, nor that there are
  // none. Throws Failure(OCTAVO_INVALID).
  std::optional<std::vector<DeclaredOption>> take() const;

 private:
  template <typename... Part>
  [[noreturn]] void fail_at(const TomlEntry &entry, const Part &...text) const;
  void check_text(const TomlEntry &entry, const std::string &text) const;
  DeclaredOption option_of(const std::map<std::string, TomlEntry> &keys) const;

  std::string path_;
  const char *domain_;
  bool stated_ = false;
  std::map<std::string, std::map<std::string, TomlEntry>> keys_by_option_;
};

}  // namespace octavo
