// The result as liboctavo reads it: a backend knows its own ranges.
#include "octavo/hpp/host/settings.hpp"
#include "sdk/cli/imports/import.h"
#include "sdk/cli/toml_writer.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli::imports {
namespace {

// "octavo.toml:6:1: " in front of a message, and the line in it; 0: it is not of this file.
size_t line_in(std::string &message, const std::string &name) {
  if (!message.starts_with(name + ":")) return 0;
  const size_t line = message.find_first_not_of("0123456789", name.size() + 1);
  const size_t column = message.find(": ", line);
  if (line == std::string::npos || column == std::string::npos) return 0;
  const size_t number = std::stoul(message.substr(name.size() + 1, line - name.size() - 1));
  message.erase(0, column + 2);
  return number;
}

}  // namespace

std::string checked_toml(const Import &import, const std::string &output) {
  std::vector<TomlLine> lines = {{"schema", int64_t{1}, ""}};
  for (const Assignment &a : import.settings) lines.push_back({a.key, a.value, a.comment});
  std::string head =
      "Made by octavo init from " + import.file + ". Page import has what became of each key.";
  for (const KeyResult &result : import.results)
    if (result.outcome == Outcome::kRejected)
      head +=
          "\nRefused: " + take_words((result.found.key + " = " + result.found.shown()).c_str()) +
          ": " + result.words + ".";
  std::vector<size_t> places;
  const std::string toml = toml_text(head, lines, &places);
  const octavo::Answer answer = octavo::check_config(octavo::Settings().path(output).text(toml));
  if (answer.status == OCTAVO_OK) return toml;
  std::string message = "no message";
  for (const octavo::Diagnostic &d : answer.diagnostics)
    if (d.severity >= OCTAVO_SEVERITY_ERROR) message = d.text;
  const size_t line = line_in(message, output);
  for (size_t i = 1; i < places.size(); ++i) {
    const Found &from = import.settings[i - 1].from;
    if (places[i] == line && line != 0 && !from.key.empty())
      throw Failure(OCTAVO_INVALID, kImportDomain, place(import.file, from), ": ", from.key,
                    " becomes ", message);
  }
  throw Failure(answer.status, kImportDomain, "octavo config show refuses the result: ", message);
}

}  // namespace octavo::cli::imports
