// The wall between C++ and the C API: every failure becomes a diagnostic and a status.
#pragma once

#include <new>
#include <string>
#include <utility>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/utf8.h"

namespace octavo {

// Runs body(), which returns an octavo_status, or nothing for OCTAVO_OK, and lets nothing else out.
// `host` may be null.
template <typename Body>
octavo_status guarded(const octavo_host *host, Body &&body) noexcept {
  try {
    if constexpr (!std::is_void_v<decltype(body())>) return body();
    body();
    return OCTAVO_OK;
  } catch (const Failure &f) {
    diagnose(host, OCTAVO_SEVERITY_ERROR, f.status(), f.domain(), f.text());
    return f.status();
  } catch (const std::bad_alloc &) {
    diagnose(host, OCTAVO_SEVERITY_ERROR, OCTAVO_RESOURCE, "octavo", "out of memory");
    return OCTAVO_RESOURCE;
  } catch (const std::exception &e) {
    diagnose(host, OCTAVO_SEVERITY_ERROR, OCTAVO_INTERNAL, "octavo", take_words(e.what()));
    return OCTAVO_INTERNAL;
  } catch (...) {
    diagnose(host, OCTAVO_SEVERITY_ERROR, OCTAVO_INTERNAL, "octavo",
             "an exception of unknown type, which is a defect of the plugin that threw it");
    return OCTAVO_INTERNAL;
  }
}

// Calls into a plugin. An exception out of it, which the contract forbids, becomes OCTAVO_INTERNAL
// and `words`, which begin with a separator.
template <typename Call>
octavo_status call_plugin(std::string *words, Call &&call) {
  try {
    return std::forward<Call>(call)();
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
T *given(T *address, const char *function, const char *argument) {
  if (address == nullptr)
    throw Failure(OCTAVO_INVALID, "octavo.arguments", function, ": expected an address as \"",
                  argument, "\", found null; pass what octavo/octavo.h asks for there");
  return address;
}

}  // namespace octavo
