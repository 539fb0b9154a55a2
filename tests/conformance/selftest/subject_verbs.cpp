// Step and hot verbs of the subject: what runs on the kernels, and where the faults are.
//
// Operands are padded to the alignment of the kernels in the codes; a padded result goes through
// the workspace and is copied row by row.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "subject_process.h"
#include "subject_session.h"

namespace octavo::selftest {
namespace {

thread_local void *stream_of_verb = nullptr;
thread_local octavo_status status_of_verb = OCTAVO_OK;

// As a plugin the subject gets kernels that refuse its products; it goes on without them.
void note(octavo_status status) {
  if (status == OCTAVO_NO_RESOURCE) status_of_verb = status;
}
void note(const octavo_session *s, octavo_status status) {
  note(status);
  if (status == OCTAVO_NO_RESOURCE && s->fault == kReportsKernels) subject_report(s->host, status);
}

octavo_tensor codes(void *data, int64_t rows, int64_t cols, uint32_t dtype) {
  return {data, rows, cols, cols, dtype, 0};
}
octavo_scale scale_of(const void *data) {
  return OCTAVO_SCALE(const_cast<void *>(data), 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
}
uint64_t width_of(const octavo_tensor &t) {
  return OCTAVO_DTYPE_BITS(t.dtype) / 8;
}

void copy_rows(const octavo_session *s, const octavo_tensor &to, const octavo_tensor &from) {
  const int64_t rows = to.rows < from.rows ? to.rows : from.rows;
  const int64_t cols = to.cols < from.cols ? to.cols : from.cols;
  for (int64_t row = 0; row < rows; ++row) {
    octavo_copy c{};
    c.size = sizeof c;
    c.kind = OCTAVO_KIND_COPY;
    c.stream = stream_of_verb;
    c.out = static_cast<uint8_t *>(to.data) + static_cast<uint64_t>(row * to.stride) * width_of(to);
    c.in = static_cast<uint8_t *>(from.data) +
           static_cast<uint64_t>(row * from.stride) * width_of(from);
    c.bytes = static_cast<uint64_t>(cols) * width_of(to);
    note(s->kernels->copy(s->ctx, &c));
  }
}

void copy_bytes(const octavo_session *s, void *out, const void *in, uint64_t bytes) {
  if (bytes == 0) return;
  octavo_copy c{};
  c.size = sizeof c;
  c.kind = OCTAVO_KIND_COPY;
  c.stream = stream_of_verb;
  c.out = out;
  c.in = in;
  c.bytes = bytes;
  note(s->kernels->copy(s->ctx, &c));
}

void clear(const octavo_session *s, void *out, uint64_t bytes) {
  copy_bytes(s, out, nullptr, bytes);
}

void scale_values(const octavo_session *s, void *values, uint64_t n, float factor) {
  octavo_scale_values v{};
  v.size = sizeof v;
  v.kind = OCTAVO_KIND_SCALE_VALUES;
  v.stream = stream_of_verb;
  v.out = static_cast<float *>(values);
  v.in = v.out;
  v.n = n;
  v.factor = factor;
  note(s->tables.get<octavo_msamp_kernels>()->scale_values(s->ctx, &v));
}

struct Cast {
  const octavo_tensor *in;
  octavo_tensor *out;
  octavo_tensor *out_t;
  const void *scale;
  void *scale_inv;
  void *amax;
  void *nonfinite;
  float format_max;
};

void cast(const octavo_session *s, const Cast &what, bool current = false) {
  if (s->fault == kAmaxOverwrites && what.amax != nullptr) clear(s, what.amax, sizeof(float));
  const octavo_scale scale_inv = scale_of(what.scale_inv);
  octavo_quantize q{};
  q.size = sizeof q;
  q.kind = OCTAVO_KIND_QUANTIZE;
  q.stream = stream_of_verb;
  q.in = what.in;
  q.out = what.out;
  q.out_t = what.out_t;
  q.out_scale_inv = &scale_inv;
  q.scale = static_cast<const float *>(what.scale);
  q.amax = static_cast<float *>(what.amax);
  q.nonfinite = static_cast<float *>(what.nonfinite);
  q.format_max = what.format_max;
  q.rule = current ? OCTAVO_RULE_QUOTIENT : OCTAVO_RULE_GIVEN;
  if (s->casts == nullptr || what.format_max > kE4m3Max) {
    note(s->kernels->quantize(s->ctx, &q));
    return;
  }
  note(s->casts->cast(s->ctx, &q));
  if (s->fault == kOwnCastsHalve) scale_values(s, what.scale_inv, 1, 0.5F);
}

// d = a b^T, through `padded` when the shapes of the codes are larger than d.
void multiply(const octavo_session *s, const octavo_tensor &a, const void *a_inv,
              const octavo_tensor &b, const void *b_inv, const octavo_tensor &d,
              const octavo_tensor *bias, bool accumulate, void *padded) {
  const octavo_scale sa = scale_of(a_inv);
  const octavo_scale sb = scale_of(b_inv);
  octavo_tensor out = d;
  const bool pads = a.rows != d.rows || b.rows != d.cols;
  if (pads) {
    out = codes(padded, a.rows, b.rows, d.dtype);
    if (accumulate) {
      clear(s, padded, static_cast<uint64_t>(a.rows * b.rows) * width_of(d));
      copy_rows(s, out, d);
    }
  }
  octavo_gemm g{};
  g.size = sizeof g;
  g.kind = OCTAVO_KIND_GEMM;
  g.stream = stream_of_verb;
  g.a = &a;
  g.b = &b;
  g.d = &out;
  g.bias = pads && s->fault == kPaddingShows ? nullptr : bias;
  g.a_scale_inv = &sa;
  g.b_scale_inv = &sb;
  g.accumulate = accumulate ? 1 : 0;
  const octavo_status status = s->kernels->gemm(s->ctx, &g);
  if (s->fault != kLosesGemmFailure) note(s, status);
  if (pads) copy_rows(s, d, out);
}

octavo_tensor rows_of(const octavo_tensor &t, int64_t first, int64_t rows) {
  octavo_tensor part = t;
  part.data =
      static_cast<uint8_t *>(t.data) + static_cast<uint64_t>(first * t.stride) * width_of(t);
  part.rows = rows;
  return part;
}

// The rounded x, in memory that the plan of these faults has behind all else.
octavo_tensor rounded(const octavo_session *s, const octavo_tensor &x, uint8_t *memory) {
  octavo_tensor out = codes(memory, x.rows, x.cols, OCTAVO_BF16);
  octavo_dequantize copy{};
  copy.size = sizeof copy;
  copy.kind = OCTAVO_KIND_DEQUANTIZE;
  copy.stream = stream_of_verb;
  copy.in = &x;
  copy.out = &out;
  note(s->kernels->dequantize(s->ctx, &copy));
  return out;
}

// A verb on this stream.
class OnStream {
 public:
  explicit OnStream(void *stream) {
    stream_of_verb = stream;
    status_of_verb = OCTAVO_OK;
  }
  ~OnStream() { stream_of_verb = nullptr; }
  OnStream(const OnStream &) = delete;
  OnStream &operator=(const OnStream &) = delete;
};

octavo_status unknown_id(const octavo_session *s) {
  return s->fault == kUnknownIdsDoNothing ? OCTAVO_OK : subject_refuse(s);
}

}  // namespace

octavo_status subject_quantize_weight(const octavo_session *s, const octavo_weight_call *c) {
  if (c->parameter >= s->sealed_parameters) return unknown_id(s);
  const OnStream on(c->stream);
  const octavo_parameter_desc &d = s->parameters[c->parameter].desc;
  if (s->fault == kWeightNeedsAmax && c->slots[kWAmax] == nullptr) return subject_refuse(s);
  if (s->fault == kCachesWeight) {
    std::vector<const void *> &seen = s->cast_weights;
    if (std::find(seen.begin(), seen.end(), c->slots[kOwnCache]) != seen.end()) return OCTAVO_OK;
    seen.push_back(c->slots[kOwnCache]);
  }
  const int64_t n = round_up(d.rows, s->alignment);
  const int64_t k = round_up(d.cols, s->alignment);
  const octavo_tensor w = {c->slots[kWeight], d.rows, d.cols, d.cols, d.dtype, 0};
  octavo_tensor out = codes(c->slots[kOwnCache], n, k, OCTAVO_E4M3FN);
  if (s->fault == kKeepsAddress && c->parameter == 0) s->remembered.store(c->slots[kOwnCache]);
  octavo_tensor out_t = codes(c->slots[kOwnCacheT], k, n, OCTAVO_E4M3FN);
  void *nonfinite = s->fault == kNoNonfiniteOfW ? nullptr : c->slots[kOwnNonfinite];
  cast(s, {&w, &out, &out_t, c->slots[kWScale], c->slots[kOwnCacheInv], c->slots[kWAmax], nonfinite,
           kE4m3Max});
  if (s->fault == kWeightOfForward && c->parameter == 0) {
    s->cast_codes.resize(static_cast<size_t>(n * k));
    copy_bytes(s, s->cast_codes.data(), out_t.data, s->cast_codes.size());
  }
  return status_of_verb;
}

octavo_status subject_forward(const octavo_session *s, const octavo_forward_call *c) {
  if (s->fault == kForwardUnsealed && c->linear < s->linears.size() &&
      c->linear >= s->sealed_linears)
    return OCTAVO_OK;
  if (c->linear >= s->sealed_linears) return unknown_id(s);
  const OnStream on(c->stream);
  if (s->fault == kAsksInForward) {
    octavo_ability q{};
    q.size = sizeof q;
    q.kind = OCTAVO_KIND_ABILITY;
    q.call = OCTAVO_KIND_COPY;
    s->kernels->ability(s->ctx, &q);
  }
  if (!are_plain(s, {c->x, c->y, c->bias})) return subject_decline(s);
  const octavo_parameter_desc &d = s->parameters[s->linears[c->linear].weight].desc;
  if (!is_of(s, c->x, c->x->rows, d.cols) || !is_of(s, c->y, c->x->rows, d.rows) ||
      !is_of(s, c->bias, 1, d.rows)) {
    if (s->fault == kRecordsBeforeRefusal)
      copy_bytes(s, c->slots[kXAmax], c->x->data, sizeof(float));
    return s->fault == kRefusesInSilence ? OCTAVO_INVALID : subject_refuse(s);
  }
  if (s->fault == kDeclinesLate && c->x->dtype == OCTAVO_F16) return OCTAVO_UNSUPPORTED;
  if (s->fault < kDeclinesPadding) misbehave(s->fault);
  if (s->fault == kRefusesInOpen && s->linears.size() > s->sealed_linears)
    return OCTAVO_WRONG_STATE;
  if (s->fault == kNeedsAlignment && reinterpret_cast<uintptr_t>(c->y->data) % 16 != 0)
    return OCTAVO_INVALID;
  if (s->fault == kForwardNothing) return OCTAVO_OK;
  if (s->fault == kRefusesLongerCalls && c->size > sizeof *c) return OCTAVO_INVALID;
  if (s->fault == kLooksAtUnknownFlags && (c->flags & ~uint32_t{OCTAVO_FORWARD_EVALUATION}) != 0)
    return OCTAVO_INVALID;
  if (s->fault == kReadsPast) {
    void *const volatile beyond = c->slots[kCacheInv + 1];
    static_cast<void>(beyond);
  }
  if (s->fault == kAllocates) {
    void *volatile memory = std::malloc(100);
    std::free(memory);
  }
  if (s->fault == kEmptyFails && c->x->rows == 0) return OCTAVO_INVALID;
  const int64_t m = round_up(c->x->rows, s->alignment);
  const int64_t n = round_up(d.rows, s->alignment);
  const int64_t k = round_up(d.cols, s->alignment);
  auto *work = static_cast<uint8_t *>(c->workspace);
  auto *saved = static_cast<uint8_t *>(c->saved);
  auto *x_inv = saved == nullptr ? work : saved + m * k;
  const void *scale = c->slots[kXScale];
  if (s->fault == kRemembersScale) {
    const void *first = nullptr;
    s->remembered.compare_exchange_strong(first, scale);
    if (first != nullptr && c->linear == 0) scale = first;
  }
  if (s->fault == kReadsScaleOnHost) {
    float value = 0;
    std::memcpy(&value, scale, sizeof value);
    s->current.store(value > 1 ? 1 : 0);
  }
  if (s->fault == kClearsSavedOnHost && saved != nullptr) std::memset(saved, 0, sizeof(float));
  uint8_t *padded = work + 16;
  octavo_tensor x =
      codes(padded + m * n * static_cast<int64_t>(sizeof(float)), m, k, OCTAVO_E4M3FN);
  octavo_tensor x_t = codes(saved, k, m, OCTAVO_E4M3FN);
  const bool current =
      s->fault == kCurrentScaling || (s->fault == kNullChangesScale && c->slots[kXAmax] == nullptr);
  void *amax = c->slots[s->fault == kAmaxInScale ? kXScale : kXAmax];
  if (s->fault == kAmaxOfXLost) amax = nullptr;
  const bool flags =
      s->fault != kNoNonfiniteOfX && (s->fault != kFlagNeedsSaved || saved != nullptr);
  void *nonfinite = flags ? c->slots[kNonfinite] : nullptr;
  octavo_tensor in = *c->x;
  uint8_t *behind = padded + m * n * static_cast<int64_t>(sizeof(float)) + m * k;
  if (s->fault == kAmaxOfFirstRows && in.rows > 64) {
    const octavo_tensor first = rows_of(in, 0, 64);
    cast(s, {&first, &x, nullptr, scale, x_inv, amax, nullptr, kE4m3Max});
    amax = nullptr;
  }
  if (s->fault == kRoundsX) in = rounded(s, in, behind);
  cast(s, {&in, &x, saved == nullptr ? nullptr : &x_t, scale, x_inv, amax, nonfinite, kE4m3Max},
       current);
  if (s->fault == kTransposedRounds && saved != nullptr) {
    in = rounded(s, in, behind);
    cast(s, {&in, nullptr, &x_t, scale, x_inv, nullptr, nullptr, kE4m3Max});
  }
  if (s->fault == kScaleInvNext) scale_values(s, x_inv, 1, 1 + 0x1p-23F);
  if (s->fault == kScaleInvOff) scale_values(s, x_inv, 1, 1.002F);
  if (s->fault == kEndStepAgain) s->calls.store(1);
  if (s->fault == kWeightOfForward && c->linear == 0) s->codes_of_forward = s->cast_codes;
  if (s->fault == kBackwardNeedsOrder) s->remembered.store(x_inv);
  if (s->fault == kSavedByAddress && saved != nullptr) s->remembered.store(saved);
  s->last_rows.store(m);
  void *cache = c->slots[kCache];
  if (s->fault == kKeepsAddress && s->linears[c->linear].weight == 0)
    cache = const_cast<void *>(s->remembered.load());
  if (s->fault == kDeclinesLate && c->y->dtype == OCTAVO_F16) return OCTAVO_UNSUPPORTED;
  const octavo_tensor w = codes(cache, n, k, OCTAVO_E4M3FN);
  octavo_tensor as_y = c->bias == nullptr ? octavo_tensor{} : *c->bias;
  as_y.dtype = c->y->dtype;
  const octavo_tensor *bias = subject_loses_bias(s, *c) ? nullptr : c->bias;
  if (s->fault == kEvaluationNoBias && (c->flags & OCTAVO_FORWARD_EVALUATION) != 0) bias = nullptr;
  if (s->fault == kBiasAsY && bias != nullptr) bias = &as_y;
  multiply(s, x, x_inv, w, c->slots[kCacheInv], *c->y, bias, s->fault == kAccumulatesY, padded);
  if (s->fault == kWritesReadSlot) scale_values(s, c->slots[kXScale], 1, 1.5F);
  if (s->fault == kOneRowOff && c->y->rows == 1 && c->y->dtype == OCTAVO_F32)
    scale_values(s, c->y->data, static_cast<uint64_t>(c->y->cols), 0.99F);
  if (s->fault == kTailRows && m > 64 && m % 8 != 0) {
    const int64_t first = m / 8 * 8;
    multiply(s, rows_of(x, first, m - first), x_inv, w, c->slots[kCacheInv],
             rows_of(*c->y, first, m - first), nullptr, false, padded);
  }
  if (s->fault == kWritesGap && c->y->stride > c->y->cols && c->y->rows > 1) {
    clear(s,
          static_cast<uint8_t *>(c->y->data) + static_cast<uint64_t>(c->y->cols) * width_of(*c->y),
          width_of(*c->y));
  }
  if (s->fault == kWorkspaceOverrun) {
    clear(s, work + 16 + m * (n * static_cast<int64_t>(sizeof(float)) + k), 1);
  }
  if (s->fault == kRenamesFailure && status_of_verb != OCTAVO_OK) return OCTAVO_INTERNAL;
  return status_of_verb;
}

octavo_status subject_backward(const octavo_session *s, const octavo_backward_call *c) {
  if (c->linear >= s->sealed_linears) return unknown_id(s);
  const OnStream on(s->fault == kNullStreamInBackward ? nullptr : c->stream);
  if (s->fault == kBackwardNothing) return OCTAVO_OK;
  if (!are_plain(s, {c->dy, c->dx, c->dw, c->db})) return subject_decline(s);
  const octavo_parameter_desc &d = s->parameters[s->linears[c->linear].weight].desc;
  const int64_t rows = c->dy->rows;
  if (s->fault == kReadsOddX && !are_plain(s, {c->x})) return subject_refuse(s);
  const bool skips_dw = (c->flags & OCTAVO_BACKWARD_SKIP_WEIGHT) != 0;
  if (!is_of(s, c->dy, rows, d.rows) || !is_of(s, c->dx, rows, d.cols) ||
      !is_of(s, c->db, 1, d.rows) || !is_of(s, skips_dw ? nullptr : c->dw, d.rows, d.cols))
    return subject_refuse(s);
  if (s->fault == kDeclinesLate &&
      (c->dy->dtype == OCTAVO_F16 || (c->dx != nullptr && c->dx->dtype == OCTAVO_F16)))
    return OCTAVO_UNSUPPORTED;
  const int64_t m = round_up(rows, s->alignment);
  const int64_t n = round_up(d.rows, s->alignment);
  const int64_t k = round_up(d.cols, s->alignment);
  const auto word = static_cast<int64_t>(sizeof(float));
  auto *work = static_cast<uint8_t *>(c->workspace);
  auto *saved = static_cast<uint8_t *>(const_cast<void *>(c->saved));
  if (s->fault == kSavedByAddress && c->linear == 0)
    saved = static_cast<uint8_t *>(const_cast<void *>(s->remembered.load()));
  const void *x_inv = saved + (s->fault == kBackwardUsesLastM ? s->last_rows.load() : m) * k;
  if (s->fault == kBackwardNeedsOrder && s->remembered.load() != nullptr)
    x_inv = s->remembered.load();
  if (s->fault == kRewritesReadSlot) {
    copy_bytes(s, work, c->slots[kDyScale], sizeof(float));
    copy_bytes(s, c->slots[kDyScale], work, sizeof(float));
  }
  // A frozen weight has none, whatever the call gives.
  octavo_tensor *const dw = (d.flags & OCTAVO_PARAMETER_FROZEN) != 0 ? nullptr : c->dw;
  if (dw == nullptr && c->dw != nullptr) {
    if (s->fault == kFrozenDwRefused) return subject_refuse(s);
    if (s->fault == kFrozenDwWritten) clear(s, c->dw->data, width_of(*c->dw));
  }
  octavo_tensor sums = codes(work + 16, 1, d.rows, OCTAVO_F32);
  uint8_t *padded_dw = work + 16 + n * word;
  uint8_t *padded_dx = padded_dw + n * k * word;
  octavo_tensor dy = codes(padded_dx + m * k * word, m, n, OCTAVO_E5M2);
  octavo_tensor dy_t = codes(padded_dx + m * k * word + m * n, n, m, OCTAVO_E5M2);
  void *nonfinite = c->slots[kNonfinite];
  if (s->fault == kNoNonfinite || (s->fault == kNonfiniteNeedsDx && c->dx == nullptr))
    nonfinite = nullptr;
  if (s->fault == kNonfiniteOfFirstRows && rows > 1) {
    const octavo_tensor first = rows_of(*c->dy, 0, rows / 2);
    cast(s, {&first, &dy, nullptr, c->slots[kDyScale], work, nullptr, nonfinite, kE5m2Max});
    nonfinite = nullptr;
  }
  const bool is_for_db = c->dx == nullptr && skips_dw;
  const bool records =
      !(s->fault == kRecordsByOutputs && is_for_db) &&
      !(s->fault == kRecordsForOutputs && is_for_db && c->db == nullptr) &&
      !(s->fault == kRecordsNotForDw && !skips_dw && c->dx == nullptr && c->db == nullptr);
  cast(s, {c->dy, &dy, &dy_t, c->slots[kDyScale], work, records ? c->slots[kDyAmax] : nullptr,
           nonfinite, kE5m2Max});
  if (c->dx != nullptr) {
    void *const cached = s->fault == kWeightOfForward && c->linear == 0 ? s->codes_of_forward.data()
                                                                        : c->slots[kCacheT];
    const octavo_tensor w_t = codes(cached, k, n, OCTAVO_E4M3FN);
    const void *w_inv = s->fault == kWrongScaleInv ? work : c->slots[kCacheInv];
    multiply(s, dy, work, w_t, w_inv, *c->dx, nullptr, false, padded_dx);
    if (s->fault == kNanIsCleared && rows > 0) {
      clear(s, c->dx->data,
            static_cast<uint64_t>((rows - 1) * c->dx->stride + c->dx->cols) * width_of(*c->dx));
    }
  }
  const bool skips = skips_dw && s->fault != kSkipWeightIgnored;
  if (skips && s->fault == kSkipWeightLosesDb) return OCTAVO_OK;
  const bool overwrite =
      (c->flags & OCTAVO_BACKWARD_OVERWRITE) != 0 && s->fault != kOverwriteIgnored;
  if (s->fault == kClearsSkippedDw && skips && overwrite && dw != nullptr)
    clear(s, dw->data, width_of(*dw));
  const std::vector<SubjectLinear> &linears = s->linears;
  const bool second = std::any_of(linears.begin(), linears.begin() + c->linear, [&](const auto &l) {
    return l.weight == linears[c->linear].weight;
  });
  const bool keeps_dw = (s->fault == kEmptyKeepsDw && rows == 0) ||
                        (s->fault == kDwOfF32 && dw != nullptr && dw->dtype != OCTAVO_F32);
  const bool is_narrow = s->fault == kNarrowDwOverwrites && dw != nullptr && width_of(*dw) == 2;
  const bool adds = !overwrite && s->fault != kDwOverwrites && !is_narrow &&
                    !(s->fault == kTiedOverwrites && second);
  if (dw != nullptr && !keeps_dw && !skips) {
    const octavo_tensor x_t = codes(saved, k, m, OCTAVO_E4M3FN);
    multiply(s, dy_t, work, x_t, x_inv, *dw, nullptr, adds, padded_dw);
  }
  const bool keeps_db =
      rows == 0 && (s->fault == kEmptyKeepsDb || (s->fault == kEmptyKeepsOnlyDb && is_for_db));
  if (c->db != nullptr && !keeps_db && !(s->fault == kDbOfF32 && c->db->dtype != OCTAVO_F32)) {
    // Sums are f32; a db of another dtype gets them rounded.
    const bool direct = c->db->dtype == OCTAVO_F32;
    octavo_sum sum{};
    sum.size = sizeof sum;
    sum.kind = OCTAVO_KIND_SUM;
    sum.stream = stream_of_verb;
    sum.in = c->dy;
    sum.out = direct ? c->db->data : sums.data;
    sum.accumulate = direct && !overwrite ? 1 : 0;
    for (int i = 0; i < (s->fault == kDbTwice && rows > 100 ? 2 : 1); ++i) {
      note(s->kernels->sum_rows(s->ctx, &sum));
      sum.accumulate = 1;
    }
    octavo_dequantize store{};
    store.size = sizeof store;
    store.kind = OCTAVO_KIND_DEQUANTIZE;
    store.stream = stream_of_verb;
    store.in = &sums;
    store.out = c->db;
    store.accumulate = overwrite || s->fault == kNarrowDbOverwrites ? 0 : 1;
    if (!direct) note(s->kernels->dequantize(s->ctx, &store));
  }
  return status_of_verb;
}

octavo_status subject_end_step(const octavo_session *s, const octavo_step_call *c) {
  const OnStream on(c->stream);
  const int steps = s->steps++;
  for (const SubjectPool &pool : s->pools) {
    octavo_delayed_scale_update u{};
    u.size = sizeof u;
    u.kind = OCTAVO_KIND_DELAYED_SCALE_UPDATE;
    u.stream = stream_of_verb;
    u.amax = static_cast<float *>(c->slots[pool.position]);
    u.history = static_cast<float *>(c->slots[pool.position + 1]);
    u.scale = static_cast<float *>(c->slots[pool.position + 2]);
    u.n = pool.columns;
    u.length = static_cast<uint64_t>(s->fault == kHalfHistory ? kHistory / 2 : kHistory);
    u.format_max = pool.format_max;
    if (s->fault == kMarginTooLarge) u.format_max /= 65536;
    if (s->fault == kScaleSixteenth) u.format_max /= 16;
    if (s->fault == kStepCounter && steps % 2 == 1) u.format_max /= 2;
    u.use_max = 1;
    u.rule = OCTAVO_RULE_QUOTIENT;
    u.history_flags = OCTAVO_HISTORY_TE;
    const auto index = static_cast<size_t>(&pool - s->pools.data());
    if (s->fault == kStaticScales) {
      clear(s, u.amax, pool.columns * sizeof(float));
      continue;
    }
    if (s->fault == kSecondSealStands && index >= 3) continue;
    if (s->fault == kManySteps && steps >= 60) continue;
    if (s->fault == kEndStepAgain && s->calls.load() == 0)
      clear(s, u.scale, pool.columns * sizeof(float));
    std::vector<float> amax(s->fault == kHistoryTwice ? pool.columns : 0);
    copy_bytes(s, amax.data(), u.amax, amax.size() * sizeof(float));
    note(s->kernels->delayed_scale_update(s->ctx, &u));
    if (s->fault != kHistoryTwice) continue;
    copy_bytes(s, u.amax, amax.data(), amax.size() * sizeof(float));
    note(s->kernels->delayed_scale_update(s->ctx, &u));
  }
  if (s->fault == kEndStepAgain) s->calls.store(0);
  if (s->fault != kNonfiniteStays) clear(s, c->slots[s->nonfinite_position], sizeof(float));
  return status_of_verb;
}

}  // namespace octavo::selftest
