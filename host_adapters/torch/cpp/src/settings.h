// What a Config says, as liboctavo reads it.
#pragma once

#include <octavo/hpp/host/settings.hpp>

#include <chrono>
#include <string>

#include "octavo/torch/config.h"

namespace octavo::torch {

Settings settings_of(const Config &config, const octavo_device &device);

// For messages: the file, or "the configuration".
std::string name_of(const Config &config);

// Throws with what was said unless the status is OCTAVO_OK.
void check(octavo_status status, const std::string &call, const std::string &object);

// The lines that a function of liboctavo passes on.
template <class Fn>
std::string lines_of(const std::string &call, const std::string &object, Fn fn) {
  Lines lines;
  check(fn(Lines::line, &lines), call, object);
  return lines.take();
}

// Throws Error for a distributed.engine other than "threads": the ranks of this library are
// processes over torch's own backends.
void check_engine(const std::string &engine, const std::string &origin);
// distributed.timeout_s, after check_engine; its default where the configuration is wrong.
std::chrono::seconds timeout_of(const Config &config);

}  // namespace octavo::torch
