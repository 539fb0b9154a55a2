// Gradients and accumulators of all processes, before a step.
#pragma once

#include <memory>
#include <vector>

#include "octavo/torch/accelerator.h"
#include "prepared.h"
#include "process_group.h"

namespace octavo::torch {

class GradientFlight;

// The mean over the processes, in buckets of torch's own gradients of one dtype and of gradients in
// slots. A bucket begins when its last gradient of the backward pass is there, while the pass goes
// on; the first pass only counts how often each gradient comes. On every rank buckets begin in one
// order, and a bucket's next collective when a later bucket begins, or at the end.
//
// A parameter that only some processes used counts as 0 in the others.
class GradientAverage {
 public:
  GradientAverage(Prepared::Impl &prepared, ProcessGroup &group, const Averaging &how);
  ~GradientAverage();
  GradientAverage(const GradientAverage &) = delete;
  GradientAverage &operator=(const GradientAverage &) = delete;

  // Before and after the backward pass whose gradients are averaged. Every rank calls both.
  void begin();
  void finish();
  // Instead of finish(), after a backward pass that threw.
  void abandon();

 private:
  struct Item;
  class Hook;
  struct Bucket {
    std::vector<size_t> items;
    bool in_slots = false;
    int64_t bytes = 0;
  };

  bool is_current() const;
  void watch();
  void unwatch();
  void cut();
  void produced(size_t item);
  bool is_ready(const Bucket &bucket) const;
  void begin_next();
  void advance();
  void fill(Item &item);
  void drop_unused();

  Prepared::Impl &prepared_;
  ProcessGroup &group_;
  Averaging how_;
  std::vector<std::unique_ptr<Item>> items_;
  std::vector<Bucket> buckets_;
  std::vector<std::unique_ptr<GradientFlight>> flights_;
  size_t begun_ = 0;
  bool collecting_ = false;
  bool counted_ = false;  // how often each gradient comes is known
};

// Every slot with OCTAVO_SLOT_REDUCE, by its own rule.
void combine_slots(Run &run, ProcessGroup &group);

}  // namespace octavo::torch
