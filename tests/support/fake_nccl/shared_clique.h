// Ranks of one communicator of the fake as processes of this machine: their rounds in shared
// memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/fake_nccl/clique.h"

namespace fake_nccl {

// One rank's view; the members of Clique, of which fake_nccl.cpp uses these. A rank copies what it
// gets when it asks whether its round has ended, so the round ends when all have asked.
class SharedClique {
 public:
  // The file of this id. A lock of the file lets one process at a time in, and goes with it.
  SharedClique(const std::string &id, int world);
  ~SharedClique();
  SharedClique(const SharedClique &) = delete;
  SharedClique &operator=(const SharedClique &) = delete;

  const char *join(int rank);
  bool is_complete() const;
  uint64_t enter(int rank, Request request, const char **error);
  bool has_ended(uint64_t round);
  void lose_a_rank();
  bool is_broken() const;
  size_t world() const;

  class Mutex {
   public:
    void lock();
    void unlock();

   private:
    friend class SharedClique;
    std::mutex threads_;
    int file_ = -1;
  } mutex;
  // Asks again and again: no process wakes another one.
  struct {
    template <typename Lock, typename Ready>
    void wait(Lock &lock, Ready ready) {
      while (!ready()) {
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        lock.lock();
      }
    }
    void notify_all() {}
  } changed;

 private:
  struct Shared;
  void copy_in();

  const std::string path_;
  Shared *shared_ = nullptr;
  int rank_ = 0;
  Request own_;  // whose receiving ends are in this process
};

}  // namespace fake_nccl
