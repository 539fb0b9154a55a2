// Failure: the one exception of liboctavo. It is thrown anywhere below the C API and becomes a
// diagnostic and a status at the wall (c_api.cpp); it never crosses the border.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "octavo/host.h"

namespace octavo {

// The edit of the configuration that mends a failure, for the remedy in `octavo explain`; the words
// are made in remedy.cpp. Empty members say nothing.
struct Mend {
  std::string key = {};      // dotted
  std::string origin = {};   // of its value, as in Setting
  std::string value = {};    // it should have, as TOML
  std::string rename = {};   // the key that was meant
  std::string command = {};  // instead of an edit: to run in a shell
  uint32_t line = 0;         // instead of a key: the line that cannot be read
};

class Failure : public std::exception {
 public:
  // domain: "octavo.config", ...; text: what was expected, what was found, where, what to do.
  Failure(octavo_status status, const char *domain, std::string text)
      : status_(status), domain_(domain), text_(std::move(text)) {}
  const char *what() const noexcept override { return text_.c_str(); }
  octavo_status status() const { return status_; }
  const char *domain() const { return domain_; }
  const std::string &text() const { return text_; }
  Failure &mended_by(Mend mend) {
    mend_ = std::move(mend);
    return *this;
  }
  const Mend &mend() const { return mend_; }

 private:
  octavo_status status_;
  const char *domain_;
  std::string text_;
  Mend mend_;
};

// Sends one message to the host; host may be null.
void diagnose(const octavo_host *host, uint32_t severity, octavo_status code, const char *domain,
              const std::string &text);

}  // namespace octavo
