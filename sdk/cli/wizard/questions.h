// What octavo init asks: each question sets one key.
#pragma once

#include <string>
#include <vector>

#include "sdk/src/config/toml.h"

namespace octavo::cli::wizard {

inline constexpr const char *kInitDomain = "octavo.init";

struct Choice {
  std::string value;
  std::string what;
};

struct Question {
  const char *flag;
  const char *key;
  const char *text;
  const char *comment;  // above the key in the file
  const char *backend;  // asked with this one only; null: with any
  const char *recipe;   // likewise
  TomlValue initial;
  std::vector<Choice> choices = {};  // of a text; backends are filled in from what is installed
  bool is_asked = true;              // otherwise it stands in the file where its flag is given
};

// In the order in which they are asked. Two with one flag have different backends.
const std::vector<Question> &questions();

// The value of an answer. Throws Failure(OCTAVO_INVALID) with what was expected.
TomlValue value_of_answer(const Question &q, const std::string &answer);

}  // namespace octavo::cli::wizard
