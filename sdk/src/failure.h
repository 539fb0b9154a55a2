// Failure: the one exception of liboctavo. It is thrown anywhere below the C API and becomes a
// diagnostic and a status at the wall (c_api.cpp); it never crosses the border.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "octavo/host.h"

namespace octavo {

class Failure : public std::exception {
 public:
  // domain: "octavo.config", ...; text: what was expected, what was found, where, what to do.
  Failure(octavo_status status, const char *domain, std::string text)
      : status_(status), domain_(domain), text_(std::move(text)) {}
  const char *what() const noexcept override { return text_.c_str(); }
  octavo_status status() const { return status_; }
  const char *domain() const { return domain_; }
  const std::string &text() const { return text_; }

 private:
  octavo_status status_;
  const char *domain_;
  std::string text_;
};

// Sends one message to the host; host may be null.
void diagnose(const octavo_host *host, uint32_t severity, octavo_status code, const char *domain,
              const std::string &text);

}  // namespace octavo
