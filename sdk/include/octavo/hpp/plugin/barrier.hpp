// octavo/hpp/plugin/barrier.hpp: no exception leaves a plugin; it becomes a diagnostic and a
// status.
//
// What must not go wrong: everything here is hidden, so that two plugins built from this header
// share nothing, not even the host that each was queried with.
#ifndef OCTAVO_HPP_PLUGIN_BARRIER_HPP
#define OCTAVO_HPP_PLUGIN_BARRIER_HPP

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "octavo/host.h"
#include "octavo/hpp/text.hpp"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// What a verb throws to fail with this status. The text says what was expected and what was
// found; the verb's name is put in front, with a colon unless the text begins with the name of an
// object, as about() writes it.
class Error : public std::exception {
 public:
  Error(octavo_status status, std::string text) : status_(status), text_(std::move(text)) {}
  octavo_status status() const noexcept { return status_; }
  const char *what() const noexcept override { return text_.c_str(); }

 private:
  octavo_status status_;
  std::string text_;
};

// The beginning of a text about one object: "\"name\": ".
inline std::string about(std::string_view name) {
  return "\"" + std::string(name) + "\": ";
}

// What the plugin knows of itself and of the host that queried it last.
struct Module {
  std::atomic<const octavo_host *> host{nullptr};
  std::atomic<const char *> id{""};
};
inline Module this_plugin;

// Sends one message; allocates nothing.
inline void diagnose(const octavo_host *host, octavo_status status, uint32_t severity,
                     std::string_view text) noexcept {
  if (host == nullptr) return;
  auto d = make<octavo_diagnostic>(OCTAVO_KIND_DIAGNOSTIC);
  d.code = status;
  d.severity = severity;
  d.domain = borrow(this_plugin.id.load());
  d.text = borrow(text);
  host->diagnose(host->ctx, &d);
}

inline octavo_status fail(const octavo_host *host, octavo_status status, const char *verb,
                          const char *text) noexcept {
  char line[1024];  // a longer text is cut
  const char *separator = text[0] == '"' ? " " : ": ";
  const int length = std::snprintf(line, sizeof line, "%s%s%s", verb, separator, text);
  if (length > 0)
    diagnose(host, status, OCTAVO_SEVERITY_ERROR,
             {line, std::min(static_cast<size_t>(length), sizeof line - 1)});
  return status;
}

// Runs the body of a verb, which answers with a status or throws.
template <typename Body>
octavo_status guarded(const octavo_host *host, const char *verb, Body &&body) noexcept {
  try {
    return body();
  } catch (const Error &error) {
    return fail(host, error.status(), verb, error.what());
  } catch (const std::bad_alloc &) {
    return fail(host, OCTAVO_NO_RESOURCE, verb, "out of memory");
  } catch (const std::exception &error) {
    return fail(host, OCTAVO_INTERNAL, verb, error.what());
  } catch (...) {
    return fail(host, OCTAVO_INTERNAL, verb, "an exception of unknown type");
  }
}

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
