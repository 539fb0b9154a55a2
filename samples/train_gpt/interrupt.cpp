// A signal handler may do little more than set a flag.
#include "interrupt.h"

#include <csignal>

namespace gpt {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

extern "C" void on_interrupt(int) {
  g_interrupted = 1;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void catch_interrupts() {
  std::signal(SIGINT, on_interrupt);
}
bool interrupted() {
  return g_interrupted != 0;
}

}  // namespace gpt
