// Ranks as threads over the fake libnccl: scripted, counted, and with what the library told.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "host_adapters/ranks/nccl/nccl_types.h"
#include "host_adapters/ranks/nccl/octavo_nccl.h"
#include "tests/host_adapters/ranks/listener.h"
#include "tests/support/cuda_on_cpu/events.h"
#include "tests/support/cuda_on_cpu/streams.h"
#include "tests/support/fake_nccl/fake_nccl.h"

namespace octavo::test {

inline octavo_str text_view(const std::string &s) {
  return {s.data(), s.size()};
}

// A function of the fake library, for tests that act as a host with NCCL of its own.
template <typename Function>
Function fake_function(const char *name) {
  static void *library = dlopen(OCTAVO_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(dlsym(library, name));
}

inline fake_nccl::Control &fake() {
  static auto *control = fake_function<fake_nccl::Control *(*)()>("fake_nccl_control")();
  return *control;
}

// The script and the counts as they are at the start.
inline void reset_fake() {
  fake_nccl::Control &c = fake();
  c.~Control();
  new (&c) fake_nccl::Control;
  c.hold = [](void *s) { cuda_on_cpu::hold_stream(static_cast<cudaStream_t>(s)); };
  c.release = [](void *s) { cuda_on_cpu::release_stream(static_cast<cudaStream_t>(s)); };
  c.settle = [](void *s) { cuda_on_cpu::settle_stream(static_cast<cudaStream_t>(s)); };
}

class NcclWorld {
 public:
  explicit NcclWorld(uint32_t world) : world_(world), handles_(world), listeners_(world) {
    reset_fake();
    for (auto &l : listeners_) l = std::make_unique<Listener>();
  }
  ~NcclWorld() { close(); }
  NcclWorld(const NcclWorld &) = delete;
  NcclWorld &operator=(const NcclWorld &) = delete;

  octavo_nccl_desc desc(uint32_t rank) {
    octavo_nccl_desc d = {};
    d.size = sizeof(d);
    d.world = world_;
    d.rank = rank;
    d.id = &id;
    d.host = listeners_[rank]->host();
    d.library = OCTAVO_STR(OCTAVO_FAKE_NCCL);
    d.scratch_bytes = 65536;
    d.deadline_ms = deadline_ms;
    return d;
  }
  std::vector<octavo_status> open() {
    new_id();
    return each([&](uint32_t rank) {
      const octavo_nccl_desc d = desc(rank);
      return octavo_nccl_open(&d, &handles_[rank]);
    });
  }
  void new_id() {
    ASSERT_EQ(octavo_nccl_get_id(listeners_[0]->host(), OCTAVO_STR(OCTAVO_FAKE_NCCL), &id),
              OCTAVO_OK)
        << listeners_[0]->last();
  }
  void close() {
    each([&](uint32_t rank) -> octavo_status {
      if (handles_[rank] != nullptr) octavo_nccl_close(handles_[rank]);
      handles_[rank] = nullptr;
      return OCTAVO_OK;
    });
  }

  std::vector<octavo_status> each(const std::function<octavo_status(uint32_t)> &body) {
    std::vector<octavo_status> answers(world_, OCTAVO_INTERNAL);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < world_; ++rank)
      threads.emplace_back([&, rank] { answers[rank] = body(rank); });
    for (std::thread &t : threads) t.join();
    cuda_on_cpu::settle();  // tests look at memory of the host's own
    return answers;
  }
  using Body = std::function<octavo_status(uint32_t rank, const octavo_collective &c)>;
  std::vector<octavo_status> run(const Body &body) {
    return each([&](uint32_t rank) { return body(rank, *collective(rank)); });
  }

  uint32_t world() const { return world_; }
  octavo_nccl *get(uint32_t rank) { return handles_[rank]; }
  const octavo_collective *collective(uint32_t rank) {
    return octavo_nccl_collective(handles_[rank]);
  }
  Listener &listener(uint32_t rank) { return *listeners_[rank]; }

  octavo_nccl_id id = {};
  uint32_t deadline_ms = 60000;

 private:
  uint32_t world_;
  std::vector<octavo_nccl *> handles_;
  std::vector<std::unique_ptr<Listener>> listeners_;
};

}  // namespace octavo::test
