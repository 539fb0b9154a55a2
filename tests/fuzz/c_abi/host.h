// The host of every call: it judges what it is told, and what each call answers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/octavo.h"

namespace octavo::fuzz {

class Host {
 public:
  Host();
  Host(const Host &) = delete;
  Host &operator=(const Host &) = delete;

  const octavo_host *table() const { return &table_; }

  // Makes one call and returns its status. A failure must have been explained before it returned:
  // by a diagnostic of the same status or, for reports, by lines. `explains`: whether anybody
  // could.
  template <typename Call>
  octavo_status judge(const char *name, bool explains, Call &&call) {
    errors_ = lines_ = 0;
    last_code_ = OCTAVO_OK;
    const octavo_status status = call();
    check(name, status, explains);
    return status;
  }

  // What a scripted plugin answers may be any number.
  void allow_any_status(bool allowed) { any_status_ = allowed; }
  // Receives the lines of reports; `ctx` is a Host.
  static void line(void *ctx, octavo_str text);

 private:
  void check(const char *name, octavo_status status, bool explains) const;
  void take(const octavo_diagnostic &d);

  octavo_host table_{};
  octavo_parallel parallel_{};
  uint64_t errors_ = 0;
  uint64_t lines_ = 0;
  octavo_status last_code_ = OCTAVO_OK;
  bool any_status_ = false;
  std::string last_text_;
};

inline std::string_view view(octavo_str s) {
  return s.data == nullptr ? std::string_view() : std::string_view(s.data, s.size);
}
inline octavo_str str(std::string_view s) {
  return {s.data(), s.size()};
}

}  // namespace octavo::fuzz
