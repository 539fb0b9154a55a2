// Refusing and answering, and declaring options.
#pragma once

#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend.h"

namespace octavo::plugin {

inline std::string_view view(octavo_str s) {
  return {s.data, s.size};
}

// Sends an error to the host and returns its status. `domain` is the backend's id. Allocates
// nothing, so hot verbs may use it with a static text.
octavo_status refuse(const octavo_host *host, std::string_view domain, octavo_status status,
                     std::string_view text);

inline void answer(octavo_verdict *v, uint32_t level, uint32_t decision, uint32_t reason,
                   octavo_str text) {
  v->level = level;
  v->decision = decision;
  v->reason = reason;
  v->text = text;
}

octavo_verdict make_verdict();

// Whether the kernels have both FP8 formats, and whether they emulate them: one verdict.
octavo_verdict check_formats(const octavo_session_desc &desc);

inline bool is_plain_dtype(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

// A function of a table that lets no exception cross: Guard<seal>::call.
template <auto function>
struct Guard;
template <typename... Arguments, octavo_status (*function)(Arguments...)>
struct Guard<function> {
  static octavo_status call(Arguments... arguments) noexcept {
    try {
      return function(arguments...);
    } catch (const std::bad_alloc &) {
      return OCTAVO_RESOURCE;
    } catch (...) {
      return OCTAVO_INTERNAL;
    }
  }
};

octavo_value text_value(const char *s);
octavo_value integer_value(int64_t i);
octavo_value bool_value(bool b);
octavo_value real_value(double r);
octavo_option option(const char *name, octavo_value initial, const char *help);
octavo_option with_range(octavo_option o, int64_t low, int64_t high);
octavo_option with_real_range(octavo_option o, double low, double high);
template <size_t N>
octavo_option with_choices(octavo_option o, const octavo_str (&choices)[N]) {
  o.choices = choices;
  o.choice_count = N;
  return o;
}
octavo_status list_all(const octavo_option_sink *sink, const octavo_option *options, size_t count);

}  // namespace octavo::plugin
