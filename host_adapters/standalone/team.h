// The ranks of a training: all of them as threads of this program, or this process as one of them.
#pragma once

#include <octavo/octavo.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace octavo::standalone {

// "\nerror: te: ..." for each warning and error.
std::string said(const std::vector<octavo::Diagnostic> &diagnostics);

// One rank's side, for values in CPU memory, and a collective for tensors on the rank's GPU. null:
// those go through CPU memory, too.
class Communicator : public octavo::Collective {
 public:
  Communicator() = default;
  Communicator(const octavo::Collective &values, const octavo_collective *on_device = nullptr)
      : octavo::Collective(values), on_device_(on_device) {}
  const octavo_collective *on_device() const { return on_device_; }

 private:
  const octavo_collective *on_device_ = nullptr;
};

// What a rank as a process opens its runs with.
struct RankSettings {
  std::string run_id;     // of its checkpoints; empty: that of the configuration
  int device_index = -1;  // of its GPU; -1: the first
};

// [distributed] of octavo.toml: what carries the bytes between the ranks of this program.
struct Distributed {
  std::string engine = "threads";
  std::string origin = "default";  // of the engine: "octavo.toml:12:1"
  int64_t timeout_s = 600;         // of one operation
  std::string run_id;              // of checkpoints; empty: to be drawn
  bool on_cuda = false;            // device.kind is "cuda"
};

// Of this file; empty: the defaults. Throws UserError with everything that Octavo said.
Distributed read_distributed(const std::string &config_path);

// This process's rank, on a library that carries the bytes. The destructor leaves the others.
class ProcessRank {
 public:
  virtual ~ProcessRank() = default;
  virtual Communicator communicator() const = 0;
  // Whether another rank was lost, or the library failed; its words are in host().
  virtual bool has_failed() = 0;
  virtual void abort() noexcept = 0;               // the others need not wait for this one
  virtual int device_index() const { return -1; }  // the GPU of this rank; -1: any

  octavo::Host &host() { return host_; }

 private:
  octavo::Host host_;
};
std::unique_ptr<ProcessRank> open_mpi(const Distributed &distributed);
std::unique_ptr<ProcessRank> open_nccl(const Distributed &distributed);

class Team {
 public:
  // ranks: of the command line; 0: one, or as many as the launcher started. Throws UserError.
  Team(const Distributed &distributed, uint32_t ranks);

  uint32_t world() const { return world_; }
  // The ranks of this process: count() from first() on. Of all ranks, one process has the root.
  uint32_t first() const { return communicator_.rank(); }
  uint32_t count() const { return process_ == nullptr ? world_ : 1; }
  bool has_root() const { return first() == 0; }
  // Ranks that share this machine's cores.
  uint32_t near() const { return near_; }
  Communicator member(uint32_t rank) const {
    return process_ == nullptr ? Communicator(threads_->member(rank)) : communicator_;
  }
  // What the runs of this process are opened with.
  const RankSettings &settings() const { return settings_; }

  // Calls body(rank) for each rank of this process, at once.
  void run(const std::function<void(uint32_t)> &body);
  // What ranks as processes do alike: whatever one of them throws, the others leave, too, and one
  // process prints an error that all of them have. Without communication in it.
  void together(const std::function<void()> &body);
  // The same, with communication in it: the others are woken from it.
  void guarded(const std::function<void()> &body);
  // The text of each process, in their order.
  std::vector<std::string> gather(const std::string &mine) const {
    return process_ == nullptr ? std::vector<std::string>{mine} : communicator_.gather_texts(mine);
  }

 private:
  void count_near();
  void share_run_id(const Distributed &distributed);

  std::optional<octavo::Ranks> threads_;
  std::unique_ptr<ProcessRank> process_;
  Communicator communicator_;  // of the process; alone where ranks are threads
  uint32_t world_ = 1, near_ = 1;
  RankSettings settings_;
};

// The share of one rank when `ranks` of a machine share `threads` (0: one per core); at least 1.
uint32_t threads_per_rank(uint32_t threads, uint32_t ranks);

}  // namespace octavo::standalone
