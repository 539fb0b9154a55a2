// One opened Octavo run: configuration in, chosen backend, session, slots and workspace out.
//
// It must outlive every Linear that was added to it, and no call may be in flight when it ends.
#ifndef TRAIN_GPT_OCTAVO_RUN_H
#define TRAIN_GPT_OCTAVO_RUN_H

#include <octavo/octavo.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "communicator.h"
#include "device.h"
#include "device_collective.h"
#include "fused.h"
#include "octavo_host.h"
#include "parameter.h"
#include "run_spec.h"
#include "staging.h"

namespace gpt {

inline octavo_str view(const std::string &s) {
  return {s.data(), s.size()};
}
inline std::string text(octavo_str s) {
  return s.size > 0 ? std::string(s.data, s.size) : std::string();
}
octavo_verdict empty_verdict();

// Roles of the statistics of casts, which are sampled.
bool is_cast_statistic(uint32_t role);

class OctavoRun {
 public:
  // Negotiates. config_path may be empty: then defaults and the settings of `spec` alone decide.
  // device: "cpu" or "cuda"; empty: what the configuration says. Throws UserError with everything
  // that Octavo said when nothing can run.
  OctavoRun(const RunSpec &spec, const std::string &config_path, OctavoHost &host,
            Fused fused = Fused::kNo, const std::string &device = {});
  ~OctavoRun();
  OctavoRun(const OctavoRun &) = delete;
  OctavoRun &operator=(const OctavoRun &) = delete;

  // Before the seal: describes a parameter. p.id becomes its id, or OCTAVO_NONE when it is
  // declined.
  octavo_verdict add(Parameter &p, uint32_t flags);
  // After everything was added: fixes the slots and allocates those of this rank. Throws UserError
  // for a backend that keeps weights or gradients in formats of its own without stepping them.
  void seal(const Communicator &communicator);
  // After the seal: hands in the tensors for the native slots of the parameter, which must not move
  // from then on.
  void lend(Parameter &p);
  // What this program wrote into a lent tensor goes to the run's device, or what a call wrote comes
  // back; nothing for a tensor that was not lent.
  void upload(const Parameter &p, uint32_t role);
  void download(const Parameter &p, uint32_t role);
  // The slot of this role in the parameter's list; null: none.
  const octavo_slot *slot_of(uint32_t parameter, uint32_t role) const;
  // Whether ranks share out states, and whether this one keeps and steps the parameter.
  bool sharded() const { return sharded_; }
  bool owns(uint32_t parameter) const;
  // What the calls of a list record: a null accumulator means "do not record".
  enum class Record { kAll, kNoCastStatistics, kNothing };
  // A copy of the object's pointer list for a verb, with null for every accumulator that must not
  // record. Valid as long as the store's own list.
  std::vector<void *> list(uint32_t verb, uint32_t owner_kind, uint32_t owner, Record record) const;
  // Whether calls from here on record the statistics of their casts.
  void sample_casts(bool on) { samples_casts_ = on; }
  bool samples_casts() const { return samples_casts_; }
  void reserve_workspace(uint64_t bytes) { workspace_->grow(bytes); }
  // Once per step, after the optimizer: derives the next scales, clears the accumulators.
  void end_step();
  // Whether a gradient that was infinite or NaN went through a cast in this step.
  bool saw_nonfinite() const;
  const float *nonfinite() const { return nonfinite_; }  // that flag's slot; null: none

  octavo_run *handle() const { return run_; }
  octavo_store *store() const { return store_; }
  const octavo_backend *table() const { return table_; }
  const octavo_session *session() const { return session_; }
  // Null: weights, gradients and states are this program's own.
  const octavo_optimizer *optimizer() const { return octavo_optimizer_of(run_); }
  // Null: the backend has no octavo.fused/1, or the program was not asked to use it.
  const octavo_fused *fused() const {
    return fused_ == Fused::kNo ? nullptr : octavo_fused_of(run_);
  }
  bool fuses() const { return fused_ == Fused::kYes; }
  void *workspace() { return workspace_->data(); }
  const Device &device() const { return *device_; }
  Staging &staging() { return *staging_; }
  // For functions of liboctavo; null when alone. After the seal.
  const octavo_collective *collective() const { return collective_->table(); }

  std::string backend() const { return text(octavo_backend_id_of(run_)); }
  std::string precision() const { return text(octavo_precision_of(run_)); }
  // The value of one option of the session as text; empty when the backend has no such option.
  std::string option(const std::string &name) const;
  std::string report() const;

  // As OctavoHost::check.
  void check(octavo_status status, const char *verb, const std::string &object) const {
    host_.check(status, verb, object);
  }

 private:
  OctavoHost &host_;
  const Fused fused_;
  octavo_run *run_ = nullptr;
  octavo_store *store_ = nullptr;
  const octavo_backend *table_ = nullptr;
  const octavo_session *session_ = nullptr;
  const float *nonfinite_ = nullptr;
  bool sharded_ = false;
  bool samples_casts_ = false;
  uint32_t rank_ = 0;
  std::unique_ptr<Device> device_;
  std::unique_ptr<DeviceBuffer> workspace_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<DeviceCollective> collective_;
  std::map<std::pair<uint32_t, uint32_t>, Twin> lent_;  // by parameter and role
};

}  // namespace gpt

#endif
