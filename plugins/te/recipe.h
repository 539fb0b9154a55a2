// What a session computes: Transformer Engine's recipes as data, and the options that choose one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/kernels.h"

namespace octavo::te {

enum class Scaling { kDelayed, kCurrent, kBlock, kMx };

// On what one of the three products of a linear layer runs.
enum class Operands {
  kFp8,         // codes
  kPlain,       // the host's own tensors
  kDequantized  // the host's dy, and what the codes of the forward pass stand for
};

struct Recipe {
  Scaling scaling = Scaling::kDelayed;
  uint32_t rule = OCTAVO_RULE_QUOTIENT;              // delayed: of end_step; else of every cast
  uint32_t operand_granularity = OCTAVO_PER_TENSOR;  // x and dy
  uint32_t weight_granularity = OCTAVO_PER_TENSOR;
  uint32_t gradient_dtype = OCTAVO_E5M2;  // HYBRID; E4M3 uses one format throughout
  int32_t margin = 0;
  uint64_t amax_history_len = 1024;
  bool use_max = true;  // amax_compute_algo: "max", else "most_recent"
  bool reduce_amax = true;
  float eps = 0;
  Operands fprop = Operands::kFp8;
  Operands dgrad = Operands::kFp8;
  Operands wgrad = Operands::kFp8;
  bool evaluates_in_fp8 = false;
  bool telemetry = false;

  bool delayed() const { return scaling == Scaling::kDelayed; }
  bool blocks() const { return operand_granularity != OCTAVO_PER_TENSOR; }
  // Which codes of a weight a product reads, as [N, K] and as [K, N].
  bool reads_weight_rows() const {
    return fprop == Operands::kFp8 || dgrad == Operands::kDequantized;
  }
  // Nothing but fprop reads the codes [N, K], and per tensor: they may lie as a product likes best.
  bool may_pack_weight_rows() const {
    return fprop == Operands::kFp8 && dgrad != Operands::kDequantized && !blocks();
  }
  bool reads_weight_columns() const { return dgrad == Operands::kFp8; }
  bool casts_weight() const { return reads_weight_rows() || reads_weight_columns(); }
  bool casts_x() const { return fprop == Operands::kFp8 || wgrad == Operands::kFp8; }
  bool casts_dy() const { return dgrad == Operands::kFp8 || wgrad == Operands::kFp8; }
  // Whether a forward call runs on plain operands, or a backward call needs the plain weight.
  bool forward_reads_weight() const { return fprop == Operands::kPlain || !evaluates_in_fp8; }
  bool backward_reads_weight() const { return dgrad == Operands::kPlain; }
};

// Options that no session can have, or that contradict each other. `text` and `remedy` are static.
struct Refusal {
  uint32_t reason;  // OCTAVO_REASON_...
  octavo_str text;
  std::string evidence;
  octavo_str remedy;
};

// The recipe that the options name, and why it cannot run on these kernels; the recipe means
// something only when there is no refusal. Types, ranges and choices were checked by the SDK.
Recipe parse_recipe(const octavo_session_desc &desc, std::vector<Refusal> *refusals);

// "delayed scaling, HYBRID": for people; static.
octavo_str describe(const Recipe &r);

octavo_status list_options(const octavo_option_sink *sink);

}  // namespace octavo::te
