// Shortage: a check that could not be made. It says nothing about what was to be checked, so it is
// no verdict: it ends the call with OCTAVO_RESOURCE, nothing falls back, nothing is remembered.
#pragma once

#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/verdict.h"

namespace octavo {

// Not a Failure: whoever turns a Failure into a refusal must not catch this with it.
class Shortage : public std::exception {
 public:
  // `text`: what could not be done and why.
  Shortage(std::string text, Remedy remedy, Stage stage = Stage::kNone)
      : verdict_{0,
                 OCTAVO_DECLINE,
                 OCTAVO_REASON_RESOURCE,
                 std::move(text),
                 std::string(kWhy),
                 std::move(remedy),
                 stage} {}
  // A call of the system that failed with `error`.
  Shortage(const std::string &what, int error, Stage stage = Stage::kNone);

  const char *what() const noexcept override { return verdict_.text.c_str(); }
  // For reports. Its stage is that of the first caller of `at`, if its maker knew none.
  const Verdict &verdict() const { return verdict_; }
  void at(Stage stage) {
    if (verdict_.stage == Stage::kNone) verdict_.stage = stage;
  }
  // For the host: text and remedy.
  std::string message() const;

 private:
  static constexpr std::string_view kWhy =
      "nothing was chosen in its place, and nothing is remembered";
  Verdict verdict_;
};

// What helps against an error; `otherwise` where that is not known.
const char *remedy_of(int error, const char *otherwise);

// Whether a call of the system failed for want of something that has nothing to do with what it was
// asked: descriptors, memory, processes, time, a disk that reads, a filter that permits the call.
bool is_shortage(int error);

// The same of the words of dlopen, which gives no number: they hold those of errno, or say that a
// segment was not mapped, for which a file whose headers are in order leaves memory as the cause.
bool names_shortage(std::string_view words);

// Throws a Shortage when a function of a plugin answered OCTAVO_RESOURCE; returns otherwise. `who`
// names plugin and function.
void pass_resource(octavo_status status, const std::string &who, Stage stage);

// Throws a Shortage when `error` is one; returns otherwise.
void pass_shortage(const std::string &what, int error);

// A file of the system, for its lines; not open where there is none. Throws a Shortage when that
// could not be found out. Reading throws, too: memory that is short must not look like the end of
// the file.
std::ifstream open_lines(const std::string &path);

}  // namespace octavo
