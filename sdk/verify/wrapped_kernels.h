// A kernels table that forwards to the real one and watches: it opens the fence around each kernel,
// claims an alignment of its own, and records which formats are used, which GEMMs break a rule and
// which calls are not on the verb's stream. The real table gets the null stream.
//
// It looks at call structs only, never at the data behind their pointers. A kernel must have all of
// the workspace that it asks for, whether it uses that on this machine or not.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "arena.h"
#include "conformance.h"
#include "fence.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "turns.h"

namespace octavo::conformance {

// Signed integers of 8 bits by DLPack: codes of layers (octavo/draft/layer.h).
constexpr uint32_t kInt8 = 0x0800;

// A bit for each dtype that a cast writes; 0 for others.
constexpr uint64_t dtype_bit(uint32_t dtype) {
  constexpr uint32_t kDtypes[] = {OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_BF16,
                                  OCTAVO_F16,    OCTAVO_E2M1, kInt8};
  for (uint64_t i = 0; i < 6; ++i)
    if (kDtypes[i] == dtype) return uint64_t{1} << i;
  return 0;
}

// Codes were rounded at random: an error of up to a step, where it is half a one to nearest.
constexpr uint64_t kStochasticBit = uint64_t{1} << 6;

// The stream of a verb: an address that nobody can read, which each kernel of the verb has to get.
inline void *const kStream = reinterpret_cast<void *>(uintptr_t{16});

// While one lives, kernels that its thread calls are those of a verb on kStream; of a verb on the
// null stream otherwise.
class OnStream {
 public:
  OnStream();
  ~OnStream();
  OnStream(const OnStream &) = delete;
  OnStream &operator=(const OnStream &) = delete;
};

class WrappedKernels {
 public:
  // `desc` names the real kernels; what it points to must outlive this.
  WrappedKernels(const octavo_session_desc &desc, uint64_t alignment, Lacking lacking = {});
  WrappedKernels(const WrappedKernels &) = delete;
  WrappedKernels &operator=(const WrappedKernels &) = delete;

  // The description of a session that runs on this table.
  octavo_session_desc desc() const;
  const octavo_kernels_caps &caps() const { return caps_; }

  void set_fence(Fence *fence) { fence_.store(fence); }
  void set_turns(Turns *turns) { turns_.store(turns); }
  // Where the buffers of the verb under way are; null: no look at workspaces.
  void set_arena(const Arena *arena) { arena_.store(arena); }
  // What sees every output of every kernel before it runs; null: nobody.
  using Outputs = std::function<void(const uint8_t *address, uint64_t bytes)>;
  void set_outputs(const Outputs *outputs) { outputs_.store(outputs); }
  // The n-th call from now on answers OCTAVO_NO_RESOURCE and does nothing.
  void fail_call(int64_t n) { until_failure_.store(n); }
  // The n-th question for a workspace from now on answers OCTAVO_NO_RESOURCE.
  void fail_size(int64_t n) { until_no_size_.store(n); }
  // Questions for workspaces so far.
  uint64_t sizes() const { return sizes_.load(); }
  // The questions about each call so far.
  using Made = std::set<Lacking>;
  Made made();
  // Calls of kernels so far.
  uint64_t calls() const { return calls_.load(); }
  // Which verb the host runs: OCTAVO_VERB_..., the index under which formats are recorded.
  void set_verb(uint32_t verb) { verb_.store(verb); }
  // Whether `dtype` can be read, as a plain tensor or as codes with one scale.
  bool reads(uint32_t dtype) const { return executes(OCTAVO_KIND_DEQUANTIZE, dtype); }
  bool executes(uint32_t call, uint32_t dtype) const;
  // OR of dtype_bit() of everything that was cast in this verb, and kStochasticBit. A cast by a
  // call that the suite does not know shows in the products that read its codes; where the product
  // is such a call, too, the format may be the coarsest.
  uint64_t quantized(uint32_t verb) const;
  // The largest margin of a delayed scale so far.
  int32_t margin() const { return margin_.load(); }
  // The first broken rule since the last call, or "".
  std::string take_violation();
  // Fails if a setup verb, which began after `before` calls of kernels, called one that it must
  // not.
  void expect_setup(const std::string &what, uint64_t before);
  void report(const std::string &violation);

 private:
  // The function of a table of ours that forwards to `member` of the real one.
  template <auto member, typename Table, typename Call>
  static octavo_status run(void *ctx, const Call *call);
  template <auto member, typename Table, typename Call>
  static auto forwarding(octavo_status (*Table::*)(void *, const Call *)) {
    return run<member, Table, Call>;
  }
  template <typename CallOfTable>
  static auto forwarding(CallOfTable) {
    return forwarding<CallOfTable::member>(CallOfTable::member);
  }
  // A table of calls of a vendor or of a later minor version: all take ctx and one call.
  using ForeignCall = octavo_status (*)(void *ctx, const void *call);
  static constexpr uint32_t kForeignTables = 4, kForeignCalls = 32;
  struct ForeignTable {
    const void *real = nullptr;
    uint32_t size = 0, kind = 0;
    ForeignCall calls[kForeignCalls] = {};
    ForeignCall real_calls[kForeignCalls] = {};
  };
  template <size_t at>
  static octavo_status run_foreign(void *ctx, const void *call);
  template <size_t... at>
  static const ForeignCall *foreign_calls(std::index_sequence<at...>);
  const void *foreign_table(octavo_str id);
  static const void *get_extension(void *ctx, octavo_str id);
  static octavo_status ability(void *ctx, octavo_ability *question);
  static octavo_status workspace_bytes(void *ctx, const void *call, uint64_t *bytes);

  void observe(const octavo_quantize &call);
  void observe(const octavo_gemm &call);
  void observe(const octavo_quantize_stats &call);
  void observe(const octavo_delayed_scale_update &call);
  void observe(const octavo_quantize_fp4 &call) { observe(*call.quantize); }
  void observe(const octavo_round_codes &) { quantized_[verb_.load()] |= kStochasticBit; }
  template <typename Call>
  void observe(const Call &) {}
  void observe_workspace(const void *call, const void *workspace);
  void observe_stream(const void *stream);
  // Notes the call. False, with a violation, where `lacking` has it.
  bool may_make(const Lacking &call);
  bool fails_now();

  octavo_session_desc real_;
  Lacking lacking_;
  KernelsTables real_tables_;
  DraftCopies drafts_;
  octavo_kernels table_{};
  octavo_kernels_caps caps_{};
  std::atomic<Fence *> fence_{nullptr};
  std::atomic<Turns *> turns_{nullptr};
  std::atomic<const Arena *> arena_{nullptr};
  std::atomic<const Outputs *> outputs_{nullptr};
  std::atomic<int64_t> until_failure_{-1};
  std::atomic<int64_t> until_no_size_{-1};
  std::atomic<uint64_t> calls_{0}, sizes_{0};
  std::atomic<uint32_t> verb_{0};
  std::atomic<int32_t> margin_{0};
  std::atomic<uint64_t> quantized_[6]{}, multiplied_[6]{};  // multiplied: codes that products read
  std::atomic<bool> is_foreign_[6]{};
  ForeignTable foreign_[kForeignTables];
  std::mutex mutex_;
  Made made_;
  std::string violation_;
};

}  // namespace octavo::conformance
