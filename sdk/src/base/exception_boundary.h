// The boundary between C++ and the C API: every failure becomes a diagnostic and a status.
#pragma once

#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/utf8.h"

namespace octavo {

// Tells the host of an error; where there is no memory for its words, without them.
template <typename Words>
octavo_status tell(const octavo_host *host, octavo_status status, const char *domain,
                   Words &&words) {
  try {
    diagnose(host, OCTAVO_SEVERITY_ERROR, status, domain, words());
  } catch (const std::bad_alloc &) {
    diagnose(host, OCTAVO_SEVERITY_ERROR, status, domain,
             "the message of this error was lost: out of memory");
  }
  return status;
}

// Runs body(), which returns an octavo_status, or nothing for OCTAVO_OK, and lets nothing else out.
// `host` may be null.
template <typename Body>
octavo_status guarded(const octavo_host *host, Body &&body) noexcept {
  try {
    if constexpr (!std::is_void_v<decltype(body())>) return body();
    body();
    return OCTAVO_OK;
  } catch (const Failure &f) {
    return tell(host, f.status(), f.domain(), [&] { return std::string_view(f.text()); });
  } catch (const ResourceUnavailable &s) {
    return tell(host, OCTAVO_NO_RESOURCE, "octavo.resource", [&] { return s.message(); });
  } catch (const std::bad_alloc &) {
    return tell(host, OCTAVO_NO_RESOURCE, "octavo", [] { return "out of memory"; });
  } catch (const std::exception &e) {
    return tell(host, OCTAVO_INTERNAL, "octavo", [&] { return take_words(e.what()); });
  } catch (...) {
    return tell(host, OCTAVO_INTERNAL, "octavo", [] {
      return "an exception of unknown type, which is a defect of the plugin that threw it";
    });
  }
}

// Calls into a plugin. An exception out of it, which the contract forbids, becomes OCTAVO_INTERNAL,
// or OCTAVO_NO_RESOURCE for std::bad_alloc, and `words`, which begin with a separator.
template <typename Call>
octavo_status call_plugin(std::string *words, Call &&call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc &) {
    *words = ", it threw std::bad_alloc";
    return OCTAVO_NO_RESOURCE;
  } catch (const std::exception &e) {
    *words = std::string(", it threw an exception: ") + take_words(e.what());
  } catch (...) {
    *words = ", it threw an exception of unknown type";
  }
  return OCTAVO_INTERNAL;
}

// Throws Failure(OCTAVO_INVALID) when `address` is null; `function` and `argument` as octavo.h
// names them. Call it inside guarded or on, which send the message to the host of the run or of the
// description.
template <typename T>
T *require_not_null(T *address, const char *function, const char *argument) {
  if (address == nullptr)
    throw Failure(OCTAVO_INVALID, "octavo.arguments", function, ": expected an address as \"",
                  argument, "\", found null; pass the argument that octavo/octavo.h describes");
  return address;
}

}  // namespace octavo
