// Waits until this process may fork without a lock of its runtime held by another thread.
//
// fork copies every lock as it is at that moment. An allocator under a sanitizer (gcc 12) takes its
// locks while a thread starts and does not hold them over fork, so a child that ends with the
// search for leaks would wait for a thread that it does not have.
#pragma once

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace octavo::test {

// True if every thread but the calling one sleeps at this moment: field 3 of proc_pid_stat(5).
inline bool others_sleep() {
  const std::string own = std::to_string(gettid());
  std::error_code gone;
  for (const auto &task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    if (task.path().filename() == own) continue;
    std::ifstream file(task.path() / "stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    const size_t name_end = stat.rfind(')');
    if (name_end != std::string::npos && stat.compare(name_end, 3, ") S") != 0) return false;
  }
  return !gone;
}

// True once all others slept three times in a row, a millisecond apart; false after ten seconds.
inline bool wait_for_sleeping_threads() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int in_a_row = 0; std::chrono::steady_clock::now() < end;) {
    in_a_row = others_sleep() ? in_a_row + 1 : 0;
    if (in_a_row == 3) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace octavo::test
