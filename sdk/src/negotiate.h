// Negotiation: wanted x hardware x plugins x kernels -> one candidate that runs, or reasons.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "discovery.h"
#include "hardware.h"
#include "loader.h"
#include "options.h"

namespace octavo {

// The kernels of one device, opened; closed with the object.
class OpenDevice {
 public:
  // Throws Failure(OCTAVO_DEVICE) when the device cannot be opened.
  OpenDevice(octavo_device device, const octavo_kernels &kernels, const octavo_host *host);
  ~OpenDevice();
  OpenDevice(const OpenDevice &) = delete;
  OpenDevice &operator=(const OpenDevice &) = delete;

  octavo_device device() const { return device_; }
  const octavo_kernels &kernels() const { return kernels_; }
  const octavo_kernels_caps &caps() const { return caps_; }
  void *ctx() const { return ctx_; }

 private:
  octavo_device device_;
  octavo_kernels kernels_;  // complete
  octavo_kernels_caps caps_{};
  void *ctx_ = nullptr;
};

struct Candidate {
  std::string id;             // a backend's id, or "bf16", "fp16", "no"
  bool is_precision = false;  // plain mixed precision: the host's own linears
  bool is_fallback = false;
  std::string manifest;
  std::string origin;
  std::vector<Verdict> verdicts;
  const LoadedPlugin *plugin = nullptr;
  std::vector<EffectiveOption> options;
};

struct Negotiation {
  Config config;
  Discovery discovery;
  Hardware hardware;
  std::string device_text;  // "cpu (auto: no CUDA driver ...)"
  std::vector<Verdict> device_verdicts;
  std::unique_ptr<OpenDevice> device;
  std::vector<Candidate> candidates;  // those that were tried, in order
  std::optional<size_t> chosen;       // index into candidates

  const Candidate *choice() const { return chosen ? &candidates[*chosen] : nullptr; }
};

// Reads the configuration, the search path and the hardware; no plugin code runs.
// Throws Failure(OCTAVO_INVALID) when the configuration is wrong.
Negotiation prepare(const octavo_open_desc &desc);

// Fills device, candidates and chosen. When nothing can run, `chosen` is empty and the verdicts say
// why. Throws Failure(OCTAVO_INVALID) when the options of a candidate are wrong.
void negotiate(Negotiation &n, const octavo_open_desc &desc, const octavo_host *host);

// Loads every plugin that has a table in the configuration and checks its options, chosen or not.
void check_all_options(const Negotiation &n, const octavo_host *host);

// The refusal in words: every candidate with its declining verdicts.
std::string refusal(const Negotiation &n);

// The session description of a candidate; borrows from n, candidate and `options`.
octavo_session_desc describe_session(const Negotiation &n, const octavo_host *host,
                                     const std::vector<octavo_option_value> &options);

}  // namespace octavo
