// Opens msamp, gives every rank a store and an FP8 gradient, and counts what its collectives send.
#include "octavo/draft/reduction.h"
#include "tests/bench/reduction.h"

#include "tests/bench/bench.h"
#include "tests/support/model.h"

namespace octavo::bench {
namespace {

constexpr int64_t kCols = 4096;

// A rank's collective that adds what it sends to a count.
struct Counted {
  const octavo_collective *inner;
  uint64_t sent = 0;
};

octavo_status run_counted(void *ctx, uint32_t collective, uint32_t dtype, const void *send,
                          uint64_t send_count, void *recv, uint64_t recv_count, void *stream) {
  auto &c = *static_cast<Counted *>(ctx);
  const uint64_t world = c.inner->world;
  const uint64_t bytes = send_count * (OCTAVO_DTYPE_BITS(dtype) / 8);
  switch (collective) {
    case OCTAVO_COLLECTIVE_ALL_TO_ALL: c.sent += bytes / world * (world - 1); break;
    case OCTAVO_COLLECTIVE_ALL_GATHER: c.sent += bytes * (world - 1); break;
    default: c.sent += 2 * (world - 1) * bytes / world; break;  // an all-reduce
  }
  return c.inner->run(c.inner->ctx, collective, dtype, send, send_count, recv, recv_count, stream);
}

}  // namespace

MsampReduction::MsampReduction(uint32_t world, int64_t elements)
    : world_(world), elements_(elements), ranks_(world) {
  bool opened = open_run();
  for (uint32_t rank = 0; rank < world && opened; ++rank) opened = open_rank(rank);
}

bool MsampReduction::good(octavo_status status, const char *what) {
  if (status == OCTAVO_OK) return true;
  error_ = std::string(what) + ": " + request_.host.error();
  return false;
}

bool MsampReduction::open_run() {
  request_.set("plugins.trust", "dev").set("fp8.backend", "msamp");
  request_.plugins(OCTAVO_BENCH_PLUGINS);
  if (!good(request_.open(run_), "octavo_open")) return false;
  const auto parameter = test::add_weight(run_.get(), "weight", elements_ / kCols, kCols);
  if (!good(parameter.status, "octavo_add_parameter")) return false;
  parameter_ = parameter.id;
  if (!good(test::add_linear(run_.get(), "linear", parameter_).status, "octavo_add_linear") ||
      !good(octavo_seal(run_.get()), "octavo_seal")) {
    return false;
  }
  return good(
      octavo_reduction_bytes(run_.get(), &parameter_, 1, world_, &buffer_bytes_, &state_bytes_),
      "octavo_reduction_bytes");
}

bool MsampReduction::open_rank(uint32_t rank) {
  Rank &r = ranks_[rank];
  octavo_store *raw = nullptr;
  if (!good(octavo_store_open(run_.get(), &raw), "octavo_store_open")) return false;
  r.store.reset(raw);
  const std::string name = "reduction.rank" + std::to_string(rank);
  r.send = memory(name + ".send", buffer_bytes_);
  r.recv = memory(name + ".recv", buffer_bytes_);
  r.state = memory(name + ".state", state_bytes_ + 1);
  r.item.parameter = parameter_;
  r.item.slots = octavo_store_slots(raw, OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, parameter_);

  octavo_tensor plain =
      tensor(normals("reduction.gradient", elements_), elements_ / kCols, kCols, OCTAVO_F32);
  const octavo_optimizer *optimizer = static_cast<const octavo_optimizer *>(
      octavo_run_interface(run_.get(), OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  octavo_session *session = octavo_run_session(run_.get());
  uint64_t bytes = 0;
  if (!good(optimizer->workspace_bytes(session, &parameter_, 1, &bytes), "workspace_bytes")) {
    return false;
  }
  auto c = make_call<octavo_parameter_call>(OCTAVO_KIND_PARAMETER_CALL);
  c.parameter = parameter_;
  c.role = OCTAVO_ROLE_GRADIENT;
  c.plain = &plain;
  c.slots = octavo_store_slots(raw, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, parameter_);
  c.workspace = memory("reduction.workspace", bytes + 1);
  return good(optimizer->write_parameter(session, &c), "write_parameter");
}

octavo_status MsampReduction::reduce(uint32_t rank, const octavo_collective &c) {
  const Rank &r = ranks_[rank];
  Counted counted{&c};
  octavo_collective table = c;
  table.ctx = &counted;
  table.run = run_counted;
  const octavo_status status =
      octavo_reduce_gradients(run_.get(), &r.item, 1, &table, r.send, r.recv, r.state, nullptr);
  if (rank == 0) {
    sent_ += counted.sent;
    ++rounds_;
  }
  return status;
}

double MsampReduction::wire_bytes() const {
  return static_cast<double>(sent_) / static_cast<double>(rounds_) / static_cast<double>(elements_);
}

}  // namespace octavo::bench
