// What this library offers to liboctavo and plugins: a place for diagnostics, and torch's threads.
#pragma once

#include <octavo/octavo.h>

#include <mutex>
#include <vector>

#include "octavo/torch/error.h"

namespace octavo::torch {

// Not movable: plugins keep the address of its table. One per run.
class Host {
 public:
  Host();
  Host(const Host &) = delete;
  Host &operator=(const Host &) = delete;

  const octavo_host *table() const { return &table_; }
  // Everything said since the last call, of any thread.
  std::vector<Diagnostic> take();
  // Throws Error with what was said unless the status is OCTAVO_OK.
  void check(octavo_status status, const char *verb, const std::string &object);

 private:
  static void diagnose(void *ctx, const octavo_diagnostic *d);
  static const void *get_extension(void *ctx, octavo_str id);

  octavo_host table_;
  std::mutex mutex_;
  std::vector<Diagnostic> said_;
};

}  // namespace octavo::torch
