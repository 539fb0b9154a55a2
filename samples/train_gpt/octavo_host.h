// What Octavo may ask of this program: a place for diagnostics, and the thread pool.
//
// One object for the whole program, alive until its end: plugins may keep the pointer.
#ifndef TRAIN_GPT_OCTAVO_HOST_H
#define TRAIN_GPT_OCTAVO_HOST_H

#include <mutex>
#include <string>
#include <vector>

#include "threads.h"

namespace gpt {

class OctavoHost {
 public:
  explicit OctavoHost(const Threads &threads);
  OctavoHost(const OctavoHost &) = delete;
  OctavoHost &operator=(const OctavoHost &) = delete;

  const octavo_host *table() const { return &host_; }
  // The messages since the last call, warnings and errors, one line each; forgets them.
  std::string take_diagnostics();
  // Throws when a call of Octavo failed, with the messages that came with it.
  void check(octavo_status status, const char *verb, const std::string &object);

 private:
  static void diagnose(void *ctx, const octavo_diagnostic *d);
  static const void *get_extension(void *ctx, octavo_str id);

  const octavo_parallel *parallel_;
  octavo_host host_ = {};
  std::mutex mutex_;  // diagnostics may come from any thread
  std::vector<std::string> messages_;
};

}  // namespace gpt

#endif
