// A signal handler may do little more than set a flag; any thread may run it, another one looks.
#include "interrupt.h"

#include <atomic>
#include <csignal>

namespace gpt {
namespace {

std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not lock");

extern "C" void on_interrupt(int) {
  g_interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
}
bool interrupted() {
  return g_interrupted;
}

}  // namespace gpt
