// Options of a backend: declared by the backend, checked here, handed to its session complete.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend.h"
#include "sdk/src/config/config.h"
#include "sdk/src/config/declared.h"

namespace octavo {

struct EffectiveOption {
  std::string name;
  std::string help;
  Setting setting;
};

// Every declared option with its value. Throws Failure(OCTAVO_INVALID, "octavo.config", ...) for an
// unknown option (nearest name), a wrong type, a value out of range or no choice. `rule`: the key
// of the rule that `given` stands in; empty: it is what the whole session has.
std::vector<EffectiveOption> effective_options(const std::vector<DeclaredOption> &declared,
                                               const std::string &id,
                                               const std::map<std::string, Setting> &given,
                                               const std::string &rule = {});

// Those of `rule` that are given there and differ from the session's.
std::vector<EffectiveOption> differing_options(const std::vector<DeclaredOption> &declared,
                                               const std::string &id, const LayerRule &rule,
                                               const std::vector<EffectiveOption> &session);

// The array that crosses the C boundary; borrows the texts of `options`.
std::vector<octavo_option_value> lend_options(const std::vector<EffectiveOption> &options);

// Settings as they cross the C boundary, at addresses that stay.
class LentSettings {
 public:
  struct Entry {
    std::string name;
    Setting setting;
    std::vector<octavo_str> texts;  // of a list
    octavo_setting lent;
  };
  // Takes the place of the setting of this name, if there is one.
  void put(std::string name, Setting setting);
  const std::deque<Entry> &entries() const { return entries_; }
  // Null: there is none.
  const octavo_setting *at(size_t index) const;
  const octavo_setting *find(std::string_view name) const;

 private:
  std::deque<Entry> entries_;
};

// A dotted key as the name of a variable: OCTAVO_ in front, upper case, everything but letters and
// digits as '_'.
std::string as_variable(const std::string &key);
// What to do about variable `name` where `near` was meant; without a command if that is empty.
Fix rename_variable(const std::string &name, const std::string &near);

// The variable of one option, above the file and below the program's overrides: fp8.te.margin is
// OCTAVO_FP8_TE_MARGIN.
std::string variable_of(const std::string &id, const std::string &option);

// `given` with the values of the environment on top, except where there is an override. An empty
// variable counts as unset. Throws Failure(OCTAVO_INVALID, "octavo.config", ...) for a variable of
// this backend that names no option, and for a value that is not of the option's type.
std::map<std::string, Setting> with_environment(const std::vector<DeclaredOption> &declared,
                                                const std::string &id,
                                                std::map<std::string, Setting> given);

}  // namespace octavo
