// One opened Octavo run: configuration in; the chosen backend, its slots and its memory out.
//
// It outlives every layer that was placed in it, and no call is in flight when it ends.
#ifndef TRAIN_GPT_OCTAVO_RUN_H
#define TRAIN_GPT_OCTAVO_RUN_H

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../model/optimizer.h"
#include "host_adapters/standalone/team.h"

namespace gpt {

using octavo::text;

// Diagnostics and the pool of the kernels: one object, alive until the program ends.
struct OctavoHost : octavo::Host {
  explicit OctavoHost(const Threads &threads) { set_parallel(threads.parallel()); }
};

// --fused: who computes the norm or the GELU in front of a linear, and in which call.
enum class Fused {
  kNo,     // the program's own loops, then linear_forward
  kApply,  // prologue of the kernels, then linear_forward
  kYes     // octavo.fused/1: one linear_forward that computes both; the bits of kApply
};

// What the user calls a run: "fp32", "bf16", "config", or an FP8 backend with its settings.
struct RunSpec {
  enum class Kind { kFp32, kBf16, kConfig, kBackend };

  std::string name;  // as the user wrote it: "te:recipe=delayed"
  Kind kind = Kind::kBackend;
  std::string backend;                                        // kBackend: "te"
  std::vector<std::pair<std::string, std::string>> settings;  // kBackend: {"recipe", "delayed"}

  // By the configuration or by its name; the program's own linears are Octavo runs without FP8.
  bool uses_fp8() const { return kind == Kind::kConfig || kind == Kind::kBackend; }
};

// Throws UserError for a name that cannot be a run; whether the backend exists, octavo_open says.
RunSpec parse_run(const std::string &name);

// The roles of slots in which casts record how well they keep values.
constexpr bool is_cast_statistic(uint32_t role) {
  return role >= OCTAVO_ROLE_SATURATED && role <= OCTAVO_ROLE_NOISE;
}

class OctavoRun : public octavo::Run {
 public:
  // Negotiates. config_path may be empty: then defaults and the settings of `spec` alone decide.
  // device: as device.kind; empty: what the configuration says. Throws UserError with everything
  // that Octavo said when nothing can run.
  OctavoRun(const RunSpec &spec, const std::string &config_path, OctavoHost &host,
            Fused fused = Fused::kNo, const std::string &device = {},
            const RankSettings &rank = {});
  OctavoRun(const OctavoRun &) = delete;
  OctavoRun &operator=(const OctavoRun &) = delete;

  // Before the seal. p.id becomes its id, or OCTAVO_NONE when it is declined.
  octavo::Added add(Parameter &p, uint32_t flags);
  // After everything was added: fixes the slots and allocates those of this rank.
  void seal(const Communicator &communicator);
  // After the seal: hands in the tensors for the native slots of the parameter, which must not move
  // from then on.
  void lend(Parameter &p);
  // What this program wrote into a lent tensor goes to the run's device, or what a call wrote comes
  // back; nothing for a tensor that was not lent.
  void upload(const Parameter &p, uint32_t role);
  void download(const Parameter &p, uint32_t role);

  // Whether ranks share out states, and whether this one keeps and steps the parameter.
  bool sharded() const { return sharded_; }
  bool steps(uint32_t parameter) const {
    return !sharded_ || store_->owner(parameter) == communicator_.rank();
  }
  // What the calls of a list record: a null accumulator means "do not record".
  enum class Record { kAll, kNoCastStatistics, kNothing };
  // A copy of the object's pointer list for a verb, with null for every accumulator that must not
  // record. Valid as long as the store's own list.
  std::vector<void *> list(uint32_t verb, uint32_t owner_kind, uint32_t owner, Record record) const;
  // What calls of the training record from here on: all, or no statistics of casts.
  void sample_casts(bool on) { record_ = on ? Record::kAll : Record::kNoCastStatistics; }
  Record record() const { return record_; }
  // Once per step, after the optimizer: derives the next scales, clears the accumulators.
  void end_step();
  // Whether a gradient that was infinite or NaN went through a cast in this step.
  bool saw_nonfinite() const { return nonfinite_ != nullptr && memory_.read(nonfinite_) != 0.0f; }
  const float *nonfinite() const { return nonfinite_; }  // that flag's slot; null: none

  octavo::Store *store() const { return store_.get(); }  // null: no backend
  // Null: the backend has no octavo.fused/1, or the program was not asked to use it.
  const octavo_fused *fused() const { return fused_ == Fused::kNo ? nullptr : Run::fused(); }
  bool fuses() const { return fused_ == Fused::kYes; }
  const octavo::Memory &memory() const { return memory_; }
  octavo::Staging &staging() { return staging_; }
  octavo::DeviceBuffer &workspace() { return workspace_; }  // of all calls, one after the other
  // After the seal; the second for functions of liboctavo, null when alone.
  const Communicator &communicator() const { return communicator_; }
  const octavo_collective *collective() const {
    const bool is_direct = communicator_.on_device() != nullptr && !memory_.is_host();
    return is_direct ? communicator_.on_device() : collective_->table();
  }

 private:
  const Fused fused_;
  const octavo::Memory memory_{*this};
  std::unique_ptr<octavo::Store> store_;
  const float *nonfinite_ = nullptr;
  bool sharded_ = false;
  Record record_ = Record::kNoCastStatistics;
  Communicator communicator_;
  octavo::DeviceBuffer workspace_{memory_};
  octavo::Staging staging_{memory_};
  std::optional<octavo::DeviceCollective> collective_;
  std::map<std::pair<uint32_t, uint32_t>, octavo::Twin> lent_;  // by parameter and role
};

// The optimizer of the backend: steps every parameter of the model, in the backend's own formats.
// After attach. Writes the weights of this rank that the backend owns, and frees the program's own
// copies of what the backend owns. A step clears the gradients that the backend owns: they are
// accumulated. Over several ranks each steps the parameters whose states it keeps and sends their
// new weights to the others.
std::unique_ptr<Optimizer> make_backend_optimizer(OctavoRun &run,
                                                  std::vector<Parameter *> parameters);

// What every rank calls after its backward: gives it the average of all ranks' gradients, with
// equal bits on each. After the optimizer was built, which decides whose gradients are whose.
// Throws UserError when the backend keeps gradients and cannot reduce them.
std::function<void()> make_gradient_average(const std::vector<Parameter *> &parameters,
                                            OctavoRun &run);

}  // namespace gpt

#endif
