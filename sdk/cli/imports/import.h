// The tables of keys, and what becomes of each key that a file or the arguments have.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sdk/cli/imports/found.h"
#include "sdk/src/config/toml.h"

namespace octavo::cli::imports {

// Where a key may stand; the bits of KeyRow::where.
enum Where : unsigned {
  kAccelerate = 1,  // config.yaml
  kFp8Config = 2,   // fp8_config of config.yaml, its flat form fp8_*, "fp8" of DeepSpeed
  kDeepSpeed = 4,
  kTeKwargs = 8,
  kMsampKwargs = 16,
  kAoKwargs = 32,
  kFp8Kwargs = 64,
};

enum class Outcome { kCopied, kTranslated, kIgnored, kRejected };

struct Answer {
  Outcome outcome;
  std::string words;
};

// One key of the source and what became of it.
struct KeyResult {
  Found found;
  Outcome outcome;
  std::string words;
  std::string setting = {};  // "fp8.te.margin = 0"; empty: none
};

struct Assignment {
  std::string key;
  TomlValue value;
  Found from;
  std::string comment;
};

// One translation: what was read, and the settings and results so far.
struct Import {
  std::string file;    // as messages name it
  unsigned where = 0;  // what the source is: kAccelerate, kDeepSpeed or one of the Kwargs
  std::vector<Assignment> settings;
  std::vector<KeyResult> results;
  std::string backend;      // te, msamp; empty: not said
  bool is_torchao = false;  // the backend was AO
  bool is_mx = false;

  void set(const std::string &key, TomlValue value, const Found &from);
  const Assignment *find(const std::string &key) const;
  void drop(const std::string &key);
  // The value of mixed_precision, which translate always sets.
  const std::string &precision() const;
};

struct KeyRow {
  const char *key;
  unsigned where;
  const char *becomes;  // a key of octavo.toml; empty: none
  const char *note;     // what --list-keys says, and the words for what is not just taken over
  Answer (*rule)(Import &, const KeyRow &, const Found &);
  const char *is_misspelt = nullptr;  // the key that was meant
};

// The rule of opt_level, which both tables have.
Answer take_level(Import &import, const KeyRow &row, const Found &found);
const std::vector<KeyRow> &recipe_keys();
const std::vector<KeyRow> &host_keys();
// Why some of a key's values are refused, from its note.
std::string reason_of(const KeyRow &row);
// "fp8_config, TERecipeKwargs".
std::string words_of(unsigned where);
// One of the Kwargs by its name; 0: there is none.
unsigned handler_of(const std::string &name);
const char *word_of(Outcome outcome);

// Values in the type that a key expects. Throw Failure(OCTAVO_INVALID, "FILE:line:column: ...").
int64_t integer_of(const Import &import, const Found &found);
bool boolean_of(const Import &import, const Found &found);
std::string choice_of(const Import &import, const Found &found, const std::string &value,
                      const std::vector<std::string> &choices);
std::string upper(std::string text);
std::string lower(std::string text);

// After all keys: mixed_precision, the backend and its recipe, and what they make void. Throws
// Failure for a source without any setting of a precision.
void settle(Import &import);

// Throws Failure for a key that no table has, a value out of range, and a source without any
// setting of a precision.
Import translate(std::vector<Found> found, const std::string &file, unsigned where);

// What accelerate launch exports to this process. origins: of each key that is set, the variables
// that set it. Throws Failure(OCTAVO_INVALID) for what has no counterpart, and without variables.
Import read_launcher(std::map<std::string, std::string> &origins);

// Whether it is a file of Accelerate or of DeepSpeed. Throws Failure where it is neither.
unsigned kind_of_file(const std::vector<Found> &found, const std::string &file, bool is_json);

// octavo.toml as text. Throws Failure for a value that a backend installed here does not accept;
// the message names the place in the source.
std::string checked_toml(const Import &import, const std::string &output);

}  // namespace octavo::cli::imports
