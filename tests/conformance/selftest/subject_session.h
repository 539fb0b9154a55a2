// What a session of the subject knows after seal: shapes, list positions and plans.
//
// The atomic members exist for the faults alone; a session without a fault is immutable.
#ifndef OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_SESSION_H
#define OCTAVO_CONFORMANCE_SELFTEST_SUBJECT_SESSION_H

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <string>
#include <vector>

#include "octavo/hpp/kernels_tables.hpp"
#include "subject.h"
#include "subject_kernels.h"

namespace octavo::selftest {

// Positions in the list of a linear.
enum { kXScale, kXAmax, kDyScale, kDyAmax, kNonfinite, kCache, kCacheT, kCacheInv };
// Positions in the list of a parameter. A vector has the five of the optimizer only.
enum {
  kWeight,
  kGradient,
  kExpAvg,
  kExpAvgSq,
  kStep,
  kOwnCache,
  kOwnCacheT,
  kOwnCacheInv,
  kWScale,
  kWAmax,
  kOwnNonfinite
};
inline constexpr int64_t kHistory = 4;
inline constexpr float kE4m3Max = 448;
inline constexpr float kE5m2Max = 57344;

struct SubjectParameter {
  std::string name;
  octavo_parameter_desc desc;
  uint32_t cache_slot = 0;  // slots kOwnCache, kOwnCacheT, kOwnCacheInv follow each other
};
struct SubjectLinear {
  std::string name;
  uint32_t weight;
  octavo_str given{};  // kKeepsNames
  bool has_bias = true;
};
// One pool per seal and kind; its amax, history and scale follow each other in the session's list.
struct SubjectPool {
  size_t position;
  uint64_t columns;
  float format_max;
};

inline int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace octavo::selftest

struct octavo_session {
  const octavo_host *host;
  const octavo_kernels *kernels;
  octavo::KernelsTables tables;
  const octavo::selftest::SubjectCasts *casts;  // of kOwnCasts
  void *ctx;
  int64_t alignment;
  int64_t fault;
  bool has_bias = true;  // the option `bias`
  std::vector<octavo::selftest::SubjectParameter> parameters;
  std::vector<octavo::selftest::SubjectLinear> linears;
  std::vector<octavo::selftest::SubjectPool> pools;
  size_t sealed_parameters = 0;
  size_t sealed_linears = 0;
  uint32_t slots = 0;
  size_t session_positions = 0;
  uint32_t nonfinite_slot = OCTAVO_NONE;
  size_t nonfinite_position = 0;
  uint32_t ghosts = 0;  // kDeclineEmits
  uint32_t seals = 0;
  mutable std::atomic<int> calls{0};
  mutable std::atomic<int> steps{0};
  mutable std::atomic<uint32_t> current{0};
  mutable std::atomic<const void *> remembered{nullptr};
  mutable std::atomic<int64_t> last_rows{0};
  mutable std::vector<const void *> cast_weights;
  mutable std::vector<uint8_t> cast_codes, codes_of_forward;  // of the first weight, [K, N]
};

namespace octavo::selftest {

// Whether these have values and no codes, or are null.
inline bool are_plain(const octavo_session *s,
                      std::initializer_list<const octavo_tensor *> tensors) {
  return s->fault == kTakesCodesAsValues ||
         std::all_of(tensors.begin(), tensors.end(), [s](const octavo_tensor *t) {
           return t == nullptr ||
                  ((t->dtype == OCTAVO_F32 || t->dtype == OCTAVO_BF16 || t->dtype == OCTAVO_F16) &&
                   (t->reserved == 0 || s->fault == kIgnoresReserved));
         });
}

// Whether it has this shape, or is null.
inline bool is_of(const octavo_session *s, const octavo_tensor *t, int64_t rows, int64_t cols) {
  return s->fault == kTakesOtherShapes || t == nullptr ||
         ((t->rows == rows || (rows == 1 && t->rows > 1 && s->fault == kTakesMoreRows)) &&
          t->cols == cols);
}

void subject_report(const octavo_host *host, octavo_status code);
// Tell the host; INVALID, UNSUPPORTED.
octavo_status subject_refuse(const octavo_session *s);
octavo_status subject_decline(const octavo_session *s);
// Faults of forward that show in its bias.
bool subject_loses_bias(const octavo_session *s, const octavo_forward_call &c);
octavo_status subject_seal(octavo_session *s, const octavo_slot_sink *sink);
octavo_status subject_plan(const octavo_session *s, uint32_t linear, octavo_linear_plan *out);
octavo_status subject_quantize_weight(const octavo_session *s, const octavo_weight_call *c);
octavo_status subject_forward(const octavo_session *s, const octavo_forward_call *c);
octavo_status subject_backward(const octavo_session *s, const octavo_backward_call *c);
octavo_status subject_end_step(const octavo_session *s, const octavo_step_call *c);

}  // namespace octavo::selftest

#endif
