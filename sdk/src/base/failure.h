// Failure: the one exception of liboctavo. It is thrown anywhere below the C API and becomes a
// diagnostic and a status at the boundary (c_api.cpp); it never leaves liboctavo.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "octavo/host.h"
#include "sdk/src/base/text.h"

namespace octavo {

// The edit of the configuration that removes a failure, for the remedy in `octavo check`;
// remedy.cpp words it. Empty members mean nothing.
struct Fix {
  std::string key = {};      // dotted
  std::string origin = {};   // of its value, as in Setting
  std::string value = {};    // it should have, as TOML
  std::string rename = {};   // the key that was meant
  std::string command = {};  // instead of an edit: to run in a shell
  uint32_t line = 0;  // instead of a key: the line that cannot be read; value: as it was meant
  std::string question = {};  // instead of an edit: what only the user can decide
};

// What to do: the words, and the edit or command that they mean, if it is one.
struct Remedy {
  Remedy() = default;
  Remedy(const char *words) : text(words) {}
  Remedy(std::string words, Fix edit = {}) : text(std::move(words)), fix(std::move(edit)) {}
  // For a configuration that is refused.
  explicit Remedy(Fix edit)
      : text(edit.question.empty() ? "correct the configuration" : edit.question),
        fix(std::move(edit)) {}
  bool empty() const { return text.empty(); }

  std::string text;
  Fix fix;
};
// "set KEY = VALUE<more>"; the value in TOML.
inline Remedy set_key(const std::string &key, const std::string &value,
                      const std::string &more = {}) {
  return {"set " + key + " = " + value + more, {.key = key, .value = value}};
}
// "run `COMMAND`<more>".
inline Remedy run_command(const std::string &command, const std::string &more = {}) {
  return {"run `" + command + "`" + more, {.command = command}};
}

class Failure : public std::exception {
 public:
  // domain: "octavo.config", ...; parts: what was expected, what was found, where, what to do.
  template <typename... Part>
  Failure(octavo_status status, const char *domain, const Part &...parts)
      : status_(status), domain_(domain), text_(concat(parts...)) {}
  const char *what() const noexcept override { return text_.c_str(); }
  octavo_status status() const { return status_; }
  const char *domain() const { return domain_; }
  const std::string &text() const { return text_; }
  Failure &with_fix(Fix fix) {
    fix_ = std::move(fix);
    return *this;
  }
  const Fix &fix() const { return fix_; }

 private:
  octavo_status status_;
  const char *domain_;
  std::string text_;
  Fix fix_;
};

// The `diagnose` of a table that plugins get; its ctx is the host that messages are for, or null.
// Their texts are taken in on the way; keys and values, which name what is in the text, are not.
void relay_diagnostic(void *ctx, const octavo_diagnostic *d);

// Sends one message to the host; host may be null. The one way of words out of liboctavo: what
// would command a terminal goes as an escape, and a line that is longer than a screen holds is cut.
// Throws std::bad_alloc, for such a text alone.
void diagnose(const octavo_host *host, uint32_t severity, octavo_status code, const char *domain,
              std::string_view text);
template <typename... Part>
void warn(const octavo_host *host, const char *domain, const Part &...parts) {
  diagnose(host, OCTAVO_SEVERITY_WARNING, OCTAVO_OK, domain, concat(parts...));
}

}  // namespace octavo
