// Ranks of a gradient reduction: each a host with a session of its own, the same model, other data.
//
// Stages run rank after rank and the collectives are plain code, so neither threads nor a
// communication library can hide what a stage does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "host.h"

namespace octavo::conformance {

struct Rank {
  std::unique_ptr<Session> session;
  std::unique_ptr<Host> host;
  uint8_t *send = nullptr;
  uint8_t *recv = nullptr;
  uint8_t *state = nullptr;
  std::vector<std::vector<void *>> lists;
  std::vector<octavo_parameter_item> items;
};

// What plan_reduction answers.
struct ReductionPlan {
  std::vector<octavo_gradient_stage> stages;
  uint64_t state_bytes = 0;
};

// Whether a verb changes a slot with this access.
inline bool writes(uint8_t access) {
  return access == OCTAVO_ACCESS_WRITE || access == OCTAVO_ACCESS_UPDATE;
}

// Those whose gradient slot a reduction writes, and of which this suite has a gradient.
std::vector<uint32_t> reducible(const Session &s);
ReductionPlan plan_of(const Session &s, const std::vector<uint32_t> &parameters, uint32_t world);
void expect_same_plan(const ReductionPlan &a, const ReductionPlan &b, uint32_t world);
// Fails when the counts do not fit the collective.
void check_stage(const octavo_gradient_stage &s, const std::string &what, uint64_t world);
// The collective behind a stage, from every send to every recv.
void communicate(const octavo_gradient_stage &s, std::vector<Rank> &ranks);

// One bucket of every gradient.
class Reduction {
 public:
  // Throws Skip when there is nothing to reduce.
  Reduction(const Context &context, uint32_t world);

  void compute_gradients();
  // Asks every rank for its stages, twice, and allocates what they state.
  void plan();
  // Runs all stages and collectives.
  void run();
  void check_ranks_agree() const;
  // As values, by rank and parameter of the bucket.
  std::vector<std::vector<std::vector<double>>> gradients();
  // Of a parameter of the bucket.
  const std::string &name(size_t i) const;

 private:
  std::vector<Entry> written(uint32_t rank, uint32_t parameter) const;
  octavo_status call(const Rank &rank, uint32_t stage) const;
  void run_stage(uint32_t r, uint32_t stage);
  void expect_stated_changes(uint32_t r, const Snapshot &before, const std::string &what) const;

  const Context &context_;
  uint32_t world_;
  std::vector<Rank> ranks_;
  std::vector<uint32_t> parameters_;
  ReductionPlan plan_;
  uint64_t longest_ = 0;  // bytes of send and recv
};

}  // namespace octavo::conformance
