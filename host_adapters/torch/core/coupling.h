// How a run's codes and scales follow torch's weights and steps: by what the data says, whoever
// wrote it.
//
// Weights. A forward compares its weight's memory and version with those of the codes, and
// quantizes first when they differ. The codes' memory is held until then, so that no other tensor
// can have its address. It also quantizes when evaluation begins or ends.
// Writes through `.data` and through memory shared with other libraries move no version. A forward
// in training that would use codes again therefore compares a checksum of the weight with that of
// the codes, on the CPU. On other devices, where comparing would wait for the device, it quantizes
// again. The first forward after a boundary quantizes anyway, so a step without micro-batches
// compares nothing, and after one that compared nothing no checksum is taken: the next forward that
// misses it quantizes again.
// A backward multiplies by the weight of its forward. Where another forward of the step has written
// the codes since (another set of weights, by functional_call), it quantizes its own weight again.
// Steps. A boundary derives the next scales. The host requests one after an optimizer's step;
// otherwise the first recording forward that finds a weight moved since a backward is one, if a
// forward of this step used that weight before: an expert's first use in a step shows no new step.
//
// Gathered weights. FSDP fills a weight's memory anew in each pass, which moves no version, and the
// host releases the codes with it. What kGathered marks is therefore compared with nothing: the
// host sets kCodes with each gather, and kMoved when the shards changed. A backward quantizes, too.
// What kPacked marks was gathered as codes: packets take the place of the weight, and are placed
// when a weight would be quantized. They are those of one scale, so none outlives a boundary.
//
// Graphs. What a CUDA graph holds runs without this code. A captured forward therefore quantizes
// its weight in the graph. From then on no codes are taken for those of a weight, every step of an
// optimizer is a boundary, and a gradient slot that the graph adds to always counts as one that
// was.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "octavo/tensor.h"
#include "view.h"

namespace octavo::core {

struct Entry;
struct LinearShape;
struct List;

// Bytes that host and ops share: the host allocates them, both write them.
struct SharedFlags {
  uint8_t *gradients = nullptr;  // by parameter: Added, once a compiled graph added to its slot
  uint8_t *weights = nullptr;    // by parameter: Stale
  uint8_t *since = nullptr;      // by Since: what happened since the last boundary
};

enum Stale : uint8_t {
  kCodes = 1,  // the codes are not those of the weight or of the scale
  kHost = 2,   // the host wants to see the weight first: Callbacks::settle
  kMoved = 4,  // the host changed the weight
};
enum Added : uint8_t {
  kAdded = 1,   // since the slot was cleared
  kReplays = 2  // stays: a CUDA graph adds in each replay, which nobody announces
};
enum Since : uint8_t {
  kForward,
  kBackward,
  kMarked,
  kCaptured,      // stays: a CUDA graph holds a forward, whose replays nobody announces
  kSawHalf,       // stays: a backward had a dy in f16, of which GradScaler inspects gradients
  kTelemetryOff,  // the host's word: casts record nothing for telemetry
  kTraced,        // the host's word: every write to a weight moves its version or memory
  kSinceCount
};

// Functions of the host; each may be null. They run before the op changes anything and without a
// lock, so they may call ops of the run, also from a signal handler. An answer is kAnswer + a
// status; a status other than OCTAVO_OK ends the call with the diagnostics of the thread, and so
// does anything that is no answer, as when an exception came before the function's first line.
constexpr int32_t kAnswer = 256;

struct Callbacks {
  // Combines the slots over the ranks, before a boundary.
  int32_t (*combine)(void *host) = nullptr;
  // kHost: settles a copy that may be written to.
  int32_t (*settle)(void *host, uint32_t parameter) = nullptr;
  void *host = nullptr;
};

class Coupling {
 public:
  void open(uint32_t parameters, SharedFlags flags, Callbacks callbacks);

  // Before a forward of a linear: a boundary where one is due, and codes that belong to `weight`.
  // weight: the native weight or none; version: its aten::_version, kAskTorch, kNoVersion,
  // kGathered or kPacked. Throws.
  struct Forward {
    bool records;    // casts record
    bool evaluates;  // outside of training
    bool asked;      // the host did what its functions do, before the op
  };
  static constexpr int64_t kAskTorch = -1, kNoVersion = -2, kGathered = -4, kPacked = -5;
  void settle(const Entry &e, const LinearShape &shape, View weight, int64_t version,
              Forward forward);

  // Before a backward of a linear that reads codes: those of `weight`, its forward's. Throws.
  void settle_backward(const Entry &e, uint32_t parameter, View weight);

  // Before a backward of a linear whose weight was gathered: codes that belong to it. weight: none
  // for packets. Throws.
  void settle_gathered(const Entry &e, uint32_t parameter, View weight);

  // The host gathered these packets of octavo.shard/1 in place of the weight; none: what it
  // gathered is no longer right.
  void gathered(uint32_t parameter, Owned packets, Owned amax);

  // Whether a recording forward of `weight` would be a boundary: a host that combines the slots
  // and ends the step itself first is not called back.
  bool is_due(uint32_t parameter, const void *data, int64_t version);

  // Whether a forward or a backward ran since the last boundary, or may have.
  bool has_run() const {
    return get(flags_.since[kForward]) || get(flags_.since[kBackward]) ||
           get(flags_.since[kCaptured]);
  }
  // Whether casts record what telemetry asks for.
  bool samples() const { return get(flags_.since[kTelemetryOff]) == 0; }
  // Codes and records are those of another time: nothing ran since, and every weight is quantized
  // when a forward needs it.
  void forget();
  // The host wrote the weight.
  void moved(uint32_t parameter) {
    std::atomic_ref<uint8_t>(flags_.weights[parameter]).fetch_or(kCodes | kMoved);
  }
  void ran_backward(uint32_t dtype_of_dy) {
    put(flags_.since[kBackward], 1);
    if (dtype_of_dy == OCTAVO_F16) put(flags_.since[kSawHalf], 1);
  }
  void added_to_gradient(const Entry &e, uint32_t parameter);

  // Derives the next scales; every weight is quantized again when a forward needs it.
  void boundary(const Entry &e) {
    const std::lock_guard lock(mutex_);
    end(e);
  }

 private:
  struct Codes {
    std::atomic<const void *> data = nullptr;
    std::atomic<int64_t> version = kNever;
    std::atomic<uint64_t> sum = 0;        // of the weight; 0: none was taken
    std::atomic<bool> evaluated = false;  // by a forward outside of training
    std::atomic<bool> used = false;       // by a forward since the last boundary
    std::atomic<bool> again = false;  // written for other values than a forward of this step used
    Owned held;
    Owned packets, amax;  // of gathered(); none after a boundary
  };
  static constexpr int64_t kNever = -3;

  // Whether more than memory and version is compared.
  bool looks(int64_t version, bool evaluates) const {
    return !evaluates && version >= 0 && !get(flags_.since[kTraced]);
  }
  static uint8_t get(const uint8_t &flag);
  static void put(uint8_t &flag, uint8_t value);
  void end(const Entry &e);
  void write_codes(const Entry &e, uint32_t parameter, View weight, int64_t version, bool records);
  // The same, and notes whose codes they are. evaluates: for a forward outside of training.
  void take(const Entry &e, uint32_t parameter, View weight, int64_t version, bool evaluates);
  void refresh(const Entry &e, const LinearShape &shape, View weight, const void *data,
               int64_t version, Forward forward);
  bool has_moved(uint32_t parameter, const void *data, int64_t version) const;

  SharedFlags flags_;
  Callbacks callbacks_;
  uint32_t parameters_ = 0;
  std::unique_ptr<Codes[]> codes_;
  std::atomic<bool> sums_ = true;     // whether checksums are taken
  std::atomic<bool> looked_ = false;  // whether a forward wanted one since the last boundary
  std::mutex mutex_;                  // of what is slow; no function of the host runs under it
};

// Throws where the memory of codes was released and did not come back. list: of quantize_weight.
void check_held(const Entry &e, uint32_t parameter, const List &list);

}  // namespace octavo::core
