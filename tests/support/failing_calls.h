// Makes one function of the C library fail where liboctavo calls it: faults that no file and no
// directory of a test can have.
//
// For programs that link octavo_internal and failing_calls.cpp with its list of wrapped functions
// (octavo_wrap_calls in tests/sdk/CMakeLists.txt). Counts calls of the thread that made the object.
#pragma once

#include <string>

namespace octavo::test {

class FailingCall {
 public:
  // From the `first`-th call of `function` on, `count` calls return `returned` with this errno
  // instead of doing anything.
  FailingCall(const char *function, int error, int first = 1, int count = 1, long returned = -1);
  ~FailingCall();
  FailingCall(const FailingCall &) = delete;
  FailingCall &operator=(const FailingCall &) = delete;

  // Calls since this object was made, those that failed included.
  int calls() const { return calls_; }

  // For the wrappers: whether this call fails, and with what.
  bool meets(const std::string &function, long *returned);
  FailingCall *outer() const { return outer_; }

 private:
  std::string function_;
  int error_;
  int first_;
  int count_;
  long returned_;
  int calls_ = 0;
  FailingCall *outer_;
};

}  // namespace octavo::test
