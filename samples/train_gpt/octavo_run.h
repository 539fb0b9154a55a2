// One opened Octavo run: configuration in, chosen backend, session, slots and workspace out.
//
// It must outlive every Linear that was added to it, and no call may be in flight when it ends.
#ifndef TRAIN_GPT_OCTAVO_RUN_H
#define TRAIN_GPT_OCTAVO_RUN_H

#include <octavo/octavo.h>

#include <map>
#include <string>

#include "buffer.h"
#include "octavo_host.h"
#include "run_spec.h"

namespace gpt {

inline octavo_str view(const std::string &s) {
  return {s.data(), s.size()};
}
inline std::string text(octavo_str s) {
  return s.size > 0 ? std::string(s.data, s.size) : std::string();
}
octavo_verdict empty_verdict();

class OctavoRun {
 public:
  // Negotiates. config_path may be empty: then defaults and the settings of `spec` alone decide.
  // Throws UserError with everything that Octavo said when nothing can run.
  OctavoRun(const RunSpec &spec, const std::string &config_path, OctavoHost &host);
  ~OctavoRun();
  OctavoRun(const OctavoRun &) = delete;
  OctavoRun &operator=(const OctavoRun &) = delete;

  // After every layer was added: fixes the slots and allocates them. Throws UserError when the
  // backend wants to own weights or gradients, since this program has its own AdamW.
  void seal();
  void set_native(uint32_t parameter, uint32_t role, void *data);
  void reserve_workspace(uint64_t bytes) { workspace_.grow(bytes); }
  // Once per step, after the optimizer: derives the next scales, clears the accumulators.
  void end_step();
  // Whether a gradient that was infinite or NaN went through a cast in this step. The store lies
  // in this program's own memory, so the program may look.
  bool saw_nonfinite() const;

  octavo_run *handle() { return run_; }
  octavo_store *store() { return store_; }
  const octavo_backend *table() const { return table_; }
  const octavo_session *session() const { return session_; }
  void *workspace() { return workspace_.data(); }

  std::string backend() const { return text(octavo_backend_id_of(run_)); }
  std::string precision() const { return text(octavo_precision_of(run_)); }
  // The value of one option of the session as text; empty when the backend has no such option.
  std::string option(const std::string &name) const;
  std::string report() const;
  // Bytes in slots, by role.
  std::map<std::string, uint64_t> bytes_by_role() const;

  // Throws when a verb failed, with the diagnostics that came with it.
  void check(octavo_status status, const char *verb, const std::string &object) const;

 private:
  OctavoHost &host_;
  octavo_run *run_ = nullptr;
  octavo_store *store_ = nullptr;
  const octavo_backend *table_ = nullptr;
  const octavo_session *session_ = nullptr;
  const float *nonfinite_ = nullptr;
  Buffer<unsigned char> workspace_;
};

}  // namespace gpt

#endif
