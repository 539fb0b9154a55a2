// One message and one exit code for each kind of end.
#include "host_adapters/standalone/ending.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <octavo/octavo.hpp>
#include <system_error>
#include <thread>

#include "host_adapters/standalone/error.h"

namespace octavo::standalone {
namespace {

constexpr char kMore[] =
    "expected: enough memory, threads and descriptors\n"
    "  remedy:   free some, or choose a smaller model or batch, and start again; --resume goes on "
    "from the last checkpoint";

// In one write, since ranks as processes share standard error.
int complain(const char *program, const char *kind, const char *what, int code) {
  std::fprintf(stderr, "%s: %s%s\n", program, kind, what);
  return code;
}

bool is_shortage(const std::error_code &code) {
  return code == std::errc::not_enough_memory ||
         code == std::errc::resource_unavailable_try_again;  // of std::thread
}

const char *running = "";

// A signal handler may do little more than set a flag; any thread may run it, another one looks.
std::atomic<int> g_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not lock");

extern "C" void on_interrupt(int signal) {
  int none = 0;
  g_signal.compare_exchange_strong(none, signal);
  std::signal(signal, SIG_DFL);
}

}  // namespace

void expect_written_output() {
  expect(static_cast<bool>(std::cout.flush()) || interrupted(), "standard output",
         "a place that can be written", "that a write failed",
         "free space, or write to another file");
}

void catch_interrupts() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, on_interrupt) == SIG_IGN) std::signal(signal, SIG_IGN);
}
bool interrupted() {
  return g_signal != 0;
}
int interrupt_signal() {
  return g_signal;
}
void interrupt(int signal) {
  int none = 0;
  g_signal.compare_exchange_strong(none, signal);
}
int exit_code() {
  return interrupted() ? 128 + g_signal : 0;
}

int ended_by_shortage(const char *program, const char *what) noexcept {
  std::fprintf(stderr, "%s: %s\n  %s\n", program, what, kMore);
  return kExitShort;
}

void end_without_memory(const char *program) {
  running = program;
  std::set_new_handler([] { std::_Exit(ended_by_shortage(running, "out of memory")); });
}

int ended_by_exception(const char *program) noexcept {
  try {
    throw;
  } catch (const SaidByAnotherRank &) {
    return kExitUser;
  } catch (const LostRank &e) {
    complain(program, "", e.what(), kExitLost);
    // A launcher ends all when the first one ends; by then the others have said what they know.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return kExitLost;
  } catch (const UserError &e) {
    return complain(program, "", e.what(), kExitUser);
  } catch (const octavo::Error &e) {
    if (e.status() == OCTAVO_NO_RESOURCE) return ended_by_shortage(program, e.what());
    return complain(program, "internal error: ", e.what(), kExitInternal);
  } catch (const std::bad_alloc &) {
    return ended_by_shortage(program, "out of memory");
  } catch (const std::system_error &e) {
    if (is_shortage(e.code())) return ended_by_shortage(program, e.what());
    return complain(program, "internal error: ", e.what(), kExitInternal);
  } catch (const std::exception &e) {
    return complain(program, "internal error: ", e.what(), kExitInternal);
  } catch (...) {
    return complain(program, "internal error: ", "an exception of unknown type", kExitInternal);
  }
}

}  // namespace octavo::standalone
