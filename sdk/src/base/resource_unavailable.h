// ResourceUnavailable: a check that could not be made. It says nothing about what was to be
// checked, so it is no verdict: it ends the call with OCTAVO_NO_RESOURCE, nothing falls back,
// nothing is remembered. An error of the system is one unless is_verdict lists it.
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
class ResourceUnavailable : public std::exception {
 public:
  // `text`: what could not be done and why.
  ResourceUnavailable(std::string text, Remedy remedy, Stage stage = Stage::kNone)
      : verdict_{0,
                 OCTAVO_DECLINE,
                 OCTAVO_REASON_RESOURCE,
                 std::move(text),
                 std::string(kWhy),
                 std::move(remedy),
                 stage} {}
  // `call` of the system failed with `error`.
  ResourceUnavailable(const std::string &what, const char *call, int error,
                      Stage stage = Stage::kNone);

  const char *what() const noexcept override { return verdict_.text.c_str(); }
  // For reports. Its stage is that of the first caller of `at`, if its maker knew none.
  const Verdict &verdict() const { return verdict_; }
  void at(Stage stage) {
    if (verdict_.stage == Stage::kNone) verdict_.stage = stage;
  }
  // For the host: text and remedy.
  std::string message() const;

 private:
  static constexpr std::string_view kWhy = "no fallback was selected and the result was not cached";
  Verdict verdict_;
};

// What helps against an error; `otherwise` where that is not known.
const char *remedy_of(int error, const char *otherwise);

// Whether the error of a call that was given a path says something about this path: nothing is
// there, or this user may not use it. All other errors say nothing about it, and neither does any
// error of a call that was given a descriptor.
bool is_verdict(int error);

// The same of the words of dlopen, which gives no number: what it says about the file's content, or
// the words of an error that is a verdict.
bool names_verdict(std::string_view words);

// What helps where the words of dlopen are no verdict.
inline constexpr const char *kMakeRoom =
    "free memory and close files, or raise the limits on them (ulimit -v, ulimit -n)";

// Throws a ResourceUnavailable when a function of a plugin answered OCTAVO_NO_RESOURCE; returns
// otherwise. `who` names plugin and function.
void pass_resource(octavo_status status, const std::string &who, Stage stage);

// Returns when `error` is a verdict; throws a ResourceUnavailable otherwise.
void pass_shortage(const std::string &what, const char *call, int error);

// A file of the system, for its lines; not open where there is none. Throws a ResourceUnavailable
// when that could not be found out. Reading throws, too: memory that is short must not look like
// the end of the file.
std::ifstream open_lines(const std::string &path);

}  // namespace octavo
