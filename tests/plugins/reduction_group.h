// Ranks of a gradient reduction in one process: one sealed run, a store of slots for each rank.
//
// by_hand() runs the stages rank after rank with collectives in plain code, so nothing depends on
// threads; a bucket's memory is the caller's, so several may be in flight.
#pragma once

#include <cstdio>

#include "octavo/draft/gradients.h"
#include "tests/plugins/layer.h"

namespace octavo::test {

class ReductionGroup {
 public:
  // One bucket in flight: what a host keeps for it, of every rank.
  struct Bucket {
    std::vector<octavo_gradient_stage> stages;
    std::vector<std::vector<octavo_parameter_item>> items;
    std::vector<std::unique_ptr<AlignedBytes>> send, recv, state;
  };

  ReductionGroup(Request &request, uint32_t world) : request_(request), world_(world) {
    request.set("plugins.trust", "dev").set("fp8.backend", "msamp");
    EXPECT_EQ(request.open(run_), OCTAVO_OK) << request.host.error();
  }

  // Tensors of these shapes, as weights of linears.
  void open(const std::vector<std::pair<int64_t, int64_t>> &shapes) {
    for (const auto &[rows, cols] : shapes) {
      const std::string name = "w" + std::to_string(shapes_.size());
      const uint32_t id = add_weight(run_.get(), name, rows, cols).id;
      ASSERT_EQ(add_linear(run_.get(), name, id).status, OCTAVO_OK) << request_.host.error();
      shapes_.push_back({rows, cols});
      all_.push_back(id);
    }
    ASSERT_EQ(octavo_seal(run_.get()), OCTAVO_OK) << request_.host.error();
    for (uint32_t rank = 0; rank < world_; ++rank) {
      octavo_store *raw = nullptr;
      ASSERT_EQ(octavo_store_open(run_.get(), &raw), OCTAVO_OK) << request_.host.error();
      stores_.emplace_back(raw);
    }
  }

  // Reduces these parameters of every rank.
  octavo_status by_hand(const std::vector<uint32_t> &parameters) {
    Bucket bucket;
    octavo_status status = start(parameters, bucket);
    for (uint32_t stage = 0; status == OCTAVO_OK && stage < bucket.stages.size(); ++stage) {
      status = run_stage(bucket, stage);
      if (status == OCTAVO_OK) communicate(bucket, stage);
    }
    return status;
  }
  octavo_status by_hand() { return by_hand(all_); }

  octavo_status start(const std::vector<uint32_t> &parameters, Bucket &bucket) {
    octavo_gradient_plan plan{};
    plan.size = sizeof(plan);
    plan.kind = OCTAVO_KIND_GRADIENT_PLAN;
    plan.world = world_;
    plan.parameters = parameters.data();
    plan.count = parameters.size();
    plan.ctx = &bucket.stages;
    plan.stage = [](void *ctx, const octavo_gradient_stage *s) -> octavo_status {
      static_cast<std::vector<octavo_gradient_stage> *>(ctx)->push_back(*s);
      return OCTAVO_OK;
    };
    const octavo_status status = gradients()->plan_reduction(session(), &plan);
    if (status != OCTAVO_OK) return status;
    uint64_t bytes = 0;
    for (const octavo_gradient_stage &s : bucket.stages)
      bytes = std::max(bytes, std::max(s.send_count, s.recv_count) * width_of(s.dtype));
    for (uint32_t rank = 0; rank < world_; ++rank) {
      bucket.items.push_back(items(rank, parameters));
      bucket.send.push_back(std::make_unique<AlignedBytes>(bytes));
      bucket.recv.push_back(std::make_unique<AlignedBytes>(bytes));
      bucket.state.push_back(std::make_unique<AlignedBytes>(plan.state_bytes));
    }
    return OCTAVO_OK;
  }

  octavo_status run_stage(const Bucket &bucket, uint32_t stage) {
    octavo_status status = OCTAVO_OK;
    for (uint32_t rank = 0; rank < world_ && status == OCTAVO_OK; ++rank) {
      octavo_gradient_call c{};
      c.size = sizeof(c);
      c.kind = OCTAVO_KIND_GRADIENT_CALL;
      c.stage = stage;
      c.world = world_;
      c.items = bucket.items[rank].data();
      c.count = bucket.items[rank].size();
      c.send = bucket.send[rank]->get();
      c.recv = bucket.recv[rank]->get();
      c.state = bucket.state[rank]->get();
      status = gradients()->run_stage(session(), &c);
    }
    return status;
  }

  // The collective behind a stage.
  void communicate(const Bucket &bucket, uint32_t stage) {
    const octavo_gradient_stage &s = bucket.stages[stage];
    const uint64_t width = width_of(s.dtype);
    const auto send = [&](uint32_t rank) { return static_cast<char *>(bucket.send[rank]->get()); };
    const auto recv = [&](uint32_t rank) { return static_cast<char *>(bucket.recv[rank]->get()); };
    for (uint32_t to = 0; to < world_; ++to) {
      for (uint32_t from = 0; from < world_; ++from) {
        switch (s.collective) {
          case OCTAVO_COLLECTIVE_NONE: break;
          case OCTAVO_COLLECTIVE_ALL_REDUCE_MAX:
            ASSERT_EQ(s.dtype, OCTAVO_F32);
            for (uint64_t i = 0; i < s.send_count; ++i) {
              auto &out = reinterpret_cast<float *>(recv(to))[i];
              const float in = reinterpret_cast<const float *>(send(from))[i];
              out = from == 0 || !(in <= out) ? in : out;
            }
            break;
          case OCTAVO_COLLECTIVE_ALL_TO_ALL: {
            const uint64_t part = s.send_count / world_ * width;
            std::memcpy(recv(to) + from * part, send(from) + to * part, part);
            break;
          }
          case OCTAVO_COLLECTIVE_ALL_GATHER:
            std::memcpy(recv(to) + from * s.send_count * width, send(from), s.send_count * width);
            break;
          default: FAIL() << "collective " << s.collective << " is not one that msamp uses";
        }
      }
    }
  }

  // octavo_store_reduce in plain code: slots with REDUCE, combined over the ranks.
  void reduce_slots() {
    for (uint32_t id = 0; id < octavo_run_slot_count(run()); ++id) {
      const octavo_slot &s = *octavo_run_slot(run(), id);
      if ((s.flags & OCTAVO_SLOT_REDUCE) == 0) continue;
      ASSERT_EQ(s.dtype, OCTAVO_F32);
      for (int64_t i = 0; i < s.rows * s.cols; ++i) {
        float all = 0;
        for (const StorePtr &store : stores_) {
          const float one = static_cast<float *>(octavo_store_address(store.get(), id))[i];
          all = s.combine == OCTAVO_COMBINE_SUM ? all + one : std::max(all, one);
        }
        for (const StorePtr &store : stores_)
          static_cast<float *>(octavo_store_address(store.get(), id))[i] = all;
      }
    }
  }
  void end_step() {
    for (const StorePtr &store : stores_) {
      octavo_step_call c{};
      c.size = sizeof(c);
      c.kind = OCTAVO_KIND_STEP_CALL;
      c.slots = octavo_store_slots(store.get(), OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
      ASSERT_EQ(octavo_run_backend(run())->end_step(session(), &c), OCTAVO_OK);
    }
  }

  // Gradients as plain values; written with a scale of their own where the slot is FP8.
  void write(uint32_t rank, uint32_t parameter, Matrix values) {
    ASSERT_EQ(copy(static_cast<const octavo_optimizer *>(
                       octavo_run_interface(run(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)))
                       ->write_parameter,
                   rank, parameter, values),
              OCTAVO_OK)
        << request_.host.error();
  }
  Matrix read(uint32_t rank, uint32_t parameter) {
    Matrix values(shapes_[parameter].first, shapes_[parameter].second, -1.0f);
    EXPECT_EQ(copy(static_cast<const octavo_optimizer *>(
                       octavo_run_interface(run(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)))
                       ->read_parameter,
                   rank, parameter, values),
              OCTAVO_OK)
        << request_.host.error();
    return values;
  }

  // What lies in the slot of this name on this rank, the nth in order of emission; null without it.
  const octavo_slot *slot(const std::string &name, int nth = 0) {
    for (uint32_t id = 0; id < octavo_run_slot_count(run()); ++id)
      if (text_of(octavo_run_slot(run(), id)->name) == name && nth-- == 0)
        return octavo_run_slot(run(), id);
    return nullptr;
  }
  float *floats(uint32_t rank, const std::string &name, int nth = 0) {
    const octavo_slot *s = slot(name, nth);
    return s == nullptr ? nullptr
                        : static_cast<float *>(octavo_store_address(stores_[rank].get(), s->id));
  }
  // The bytes of every gradient slot that is not native, and of its scale_inv, on this rank.
  std::vector<uint8_t> gradient_bytes(uint32_t rank) {
    std::vector<uint8_t> bytes;
    for (uint32_t id = 0; id < octavo_run_slot_count(run()); ++id) {
      const octavo_slot &s = *octavo_run_slot(run(), id);
      if (s.role != OCTAVO_ROLE_GRADIENT || (s.flags & OCTAVO_SLOT_NATIVE) != 0) continue;
      for (const uint32_t one : {id, s.scale_slot}) {
        if (one == OCTAVO_NONE) continue;
        const octavo_slot &part = *octavo_run_slot(run(), one);
        const auto *begin =
            static_cast<const uint8_t *>(octavo_store_address(stores_[rank].get(), one));
        bytes.insert(bytes.end(), begin,
                     begin + static_cast<uint64_t>(part.rows * part.cols) * width_of(part.dtype));
      }
    }
    return bytes;
  }

  std::vector<octavo_parameter_item> items(uint32_t rank, const std::vector<uint32_t> &parameters) {
    std::vector<octavo_parameter_item> all;
    for (const uint32_t p : parameters)
      all.push_back(
          {p, 0,
           octavo_store_slots(stores_[rank].get(), OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, p),
           nullptr});
    return all;
  }

  uint32_t world() const { return world_; }
  const std::vector<uint32_t> &all() const { return all_; }
  octavo_run *run() { return run_.get(); }
  octavo_store *store(uint32_t rank) { return stores_[rank].get(); }
  const octavo_session *session() { return octavo_run_session(run_.get()); }
  const octavo_gradients *gradients() {
    return static_cast<const octavo_gradients *>(
        octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_GRADIENTS_ID)));
  }
  static uint64_t width_of(uint32_t dtype) { return OCTAVO_DTYPE_BITS(dtype) / 8; }

 private:
  octavo_status copy(octavo_status (*verb)(const octavo_session *, const octavo_parameter_call *),
                     uint32_t rank, uint32_t parameter, Matrix &values) {
    uint64_t bytes = 0;
    octavo_status status = static_cast<const octavo_optimizer *>(
                               octavo_run_interface(run(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)))
                               ->workspace_bytes(session(), &parameter, 1, &bytes);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes workspace(bytes);
    octavo_tensor plain = tensor_of(values);
    octavo_parameter_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_PARAMETER_CALL;
    c.parameter = parameter;
    c.role = OCTAVO_ROLE_GRADIENT;
    c.plain = &plain;
    c.slots = octavo_store_slots(stores_[rank].get(), OCTAVO_VERB_OPTIMIZER_STEP,
                                 OCTAVO_OWNER_PARAMETER, parameter);
    c.workspace = workspace.get();
    return verb(session(), &c);
  }

  Request &request_;
  uint32_t world_;
  RunPtr run_;
  std::vector<StorePtr> stores_;
  std::vector<std::pair<int64_t, int64_t>> shapes_;
  std::vector<uint32_t> all_;
};

}  // namespace octavo::test
