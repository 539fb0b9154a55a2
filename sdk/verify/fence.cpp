// The fence's page protection and its SIGSEGV handler.
//
// A fault that is not the fence's own goes to whoever handled SIGSEGV before, so a real crash of a
// backend stays a crash, with the sanitizer's report when there is one.
#include "fence.h"

#include <sys/mman.h>

#include "report.h"

namespace octavo::conformance {
namespace {

std::atomic<Fence *> active{nullptr};
struct sigaction fallback;  // written before the handler is installed

void on_fault(int signal, siginfo_t *info, void *) {
  Fence *fence = active.load();
  if (fence != nullptr && fence->absorb(info->si_addr)) return;
  sigaction(signal, &fallback, nullptr);  // the faulting instruction runs again and crashes
}

}  // namespace

Fence::Fence(Arena &arena) : arena_(arena) {
  if (active.load() != nullptr) throw Failure("the suite made two fences at once");
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, nullptr, &fallback);
  active.store(this);
  if (sigaction(SIGSEGV, &action, &previous_) != 0) throw Failure("SIGSEGV cannot be handled");
}

Fence::~Fence() {
  protect(PROT_READ | PROT_WRITE);
  sigaction(SIGSEGV, &previous_, nullptr);
  active.store(nullptr);
}

void Fence::protect(int protection) {
  mprotect(arena_.base(), arena_.pages(), protection);
}

void Fence::arm() {
  const std::lock_guard<std::mutex> lock(mutex_);
  breached_.store(false);
  armed_ = true;
  protect(PROT_NONE);
}

std::optional<uint64_t> Fence::disarm() {
  const std::lock_guard<std::mutex> lock(mutex_);
  armed_ = false;
  protect(PROT_READ | PROT_WRITE);
  if (!breached_.load()) return std::nullopt;
  return first_.load();
}

void Fence::enter() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (depth_++ == 0 && armed_) protect(PROT_READ | PROT_WRITE);
}

void Fence::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--depth_ == 0 && armed_ && !breached_.load()) protect(PROT_NONE);
}

bool Fence::absorb(const void *address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto begin = reinterpret_cast<uintptr_t>(arena_.base());
  if (at < begin || at >= begin + arena_.pages()) return false;
  if (!breached_.load()) first_.store(at - begin);
  breached_.store(true);
  protect(PROT_READ | PROT_WRITE);
  return true;
}

}  // namespace octavo::conformance
