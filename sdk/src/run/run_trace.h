// The tables of a run that write a trace: each verb of the backend, and inside of it each kernel.
#pragma once

#include <memory>
#include <string>

#include "octavo/hpp/kernels_tables.hpp"
#include "sdk/src/config/config.h"
#include "sdk/src/plugin/loader.h"
#include "sdk/src/run/trace_args.h"
#include "sdk/src/run/trace_file.h"

namespace octavo {

class RunTrace {
 public:
  // Null: the configuration asks for no trace, or the process is privileged, which is a warning:
  // files of another owner are not written where a user's configuration says. desc: of the session
  // that is to be opened; plugin, desc and host outlive this. Throws Failure(OCTAVO_INVALID) for a
  // directory that cannot be written.
  static std::unique_ptr<RunTrace> of(const Config &config, const LoadedPlugin &plugin,
                                      const octavo_session_desc &desc, const octavo_host *host,
                                      bool privileged);
  ~RunTrace();
  RunTrace(const RunTrace &) = delete;
  RunTrace &operator=(const RunTrace &) = delete;

  // With kernels that are traced.
  const octavo_session_desc &desc() const { return desc_; }
  // The plugin's tables, with verbs that are traced.
  const LoadedPlugin &tables() const { return tables_; }
  // Setup: the session that opened with desc(), and the names of what it accepted, by id.
  void attach(const octavo_session *session);
  void name_parameter(const std::string &name) { names_.parameters.push_back(json_quoted(name)); }
  void name_linear(const std::string &name) { names_.linears.push_back(json_quoted(name)); }

  TraceFile &file() { return file_; }
  const LoadedPlugin &real() const { return real_; }
  const octavo_session_desc &real_desc() const { return real_desc_; }
  const KernelsTables &real_kernels() const { return real_kernels_; }
  const DraftCopies &drafts() const { return drafts_; }
  const Names &names() const { return names_; }

 private:
  RunTrace(TraceWindow window, const LoadedPlugin &plugin, const octavo_session_desc &desc,
           const octavo_host *host);

  const LoadedPlugin &real_;
  const octavo_session_desc &real_desc_;
  TraceFile file_;
  LoadedPlugin tables_;
  KernelsTables real_kernels_;
  DraftCopies drafts_;
  octavo_kernels kernels_;
  octavo_session_desc desc_;
  const octavo_session *session_ = nullptr;
  Names names_;
};

}  // namespace octavo
