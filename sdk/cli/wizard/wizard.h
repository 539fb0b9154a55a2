// The answers so far, each of them checked by the negotiation of this machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sdk/cli/common.h"
#include "sdk/cli/toml_writer.h"
#include "sdk/cli/wizard/questions.h"

namespace octavo::cli::wizard {

struct Verdict {
  bool runs = false;
  std::string reason;  // why not, and what to do
};

class Wizard {
 public:
  // given: answers by flag. yes: what was not given has its default; else it is asked.
  Wizard(const Request &request, std::string output, std::map<std::string, std::string> given,
         bool yes);

  // Throws Failure: a given answer that this machine refuses, a flag that the other answers leave
  // no place for, the end of standard input.
  void ask_all();

  // octavo.toml, with comments.
  std::string toml() const { return toml_of(lines_); }
  // The keys and values of it.
  const std::vector<TomlLine> &lines() const { return lines_; }
  // What octavo check begins with.
  std::string short_form() const;

 private:
  std::string toml_of(const std::vector<TomlLine> &lines) const;
  Verdict verdict(const std::vector<TomlLine> &lines) const;
  // With this answer added. A device may run with any backend.
  Verdict verdict_with(const Question &q, const TomlValue &value) const;
  void add(const Question &q, const TomlValue &value);
  bool applies(const Question &q) const;
  std::string answered(const std::string &key) const;

  void answer(Question q);
  TomlValue default_of(const Question &q) const;
  TomlValue ask(const Question &q) const;

  const Request &request_;
  const std::string output_;
  const std::map<std::string, std::string> given_;
  const bool yes_;
  std::vector<Choice> backends_;  // installed ones
  std::vector<TomlLine> lines_;
};

}  // namespace octavo::cli::wizard
