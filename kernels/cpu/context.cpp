/* Opening the CPU: the choice of a level, and the sizes of workspaces, which are the same on every
 * level.
 *
 * OCTAVO_FORCE_KERNELS=<level> is read here and nowhere else; a level that this CPU lacks is an
 * error, never a silent step down.
 */
#include "kernels/cpu/context.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/check/calls.h"

namespace octavo {
namespace {

constexpr char kForceVariable[] = "OCTAVO_FORCE_KERNELS";

bool is_this_cpu(octavo_device device) {
  return (device.type == OCTAVO_DEVICE_CPU || device.type == OCTAVO_DEVICE_AUTO) &&
         device.index == 0;
}

/* "avx512 (not on this CPU), avx2, baseline" */
void list_levels(char *text, size_t size) {
  size_t used = 0;
  for (int i = 0; i < kLevelCount && used < size; ++i) {
    const int written =
        snprintf(text + used, size - used, "%s%s%s", i == 0 ? "" : ", ", kLevels[i].name,
                 kLevels[i].level == nullptr ? " (not in this build)"
                 : kLevels[i].is_supported() ? ""
                                             : " (not on this CPU)");
    if (written < 0) return;
    used += static_cast<size_t>(written);
  }
}

octavo_status choose_level(const Caller &caller, const Level **out) {
  const char *forced = std::getenv(kForceVariable);
  const bool is_forced = forced != nullptr && forced[0] != '\0';
  for (int i = 0; i < kLevelCount; ++i) {
    if (is_forced && std::strcmp(forced, kLevels[i].name) != 0) continue;
    if (kLevels[i].level != nullptr && kLevels[i].is_supported()) {
      *out = kLevels[i].level;
      return OCTAVO_OK;
    }
    if (is_forced && kLevels[i].level == nullptr) {
      return report_error(caller, OCTAVO_UNSUPPORTED,
                          "open_device: %s=%s, but this build has no kernels for that instruction "
                          "set; unset the variable or name another level",
                          kForceVariable, forced);
    }
    if (is_forced) {
      return report_error(caller, OCTAVO_UNSUPPORTED,
                          "open_device: %s=%s, but this CPU lacks that instruction set; unset the "
                          "variable or name a level that the CPU has",
                          kForceVariable, forced);
    }
  }
  char levels[200] = "";
  list_levels(levels, sizeof(levels));
  return report_error(caller, OCTAVO_INVALID,
                      "open_device: %s=%.40s is not a level; expected one of: %s", kForceVariable,
                      forced == nullptr ? "" : forced, levels);
}

/* b as panels of tile_cols columns, then a as panels of tile_rows rows, all fp32 and k-major. The
 * size depends on M, N and K alone, and is linear in M, N (rounded up) and K. */
bool gemm_workspace(const void *, const octavo_gemm &c, uint64_t *bytes) {
  const GemmShape s = gemm_shape(c);
  int64_t size = 0;
  const int64_t cols = divide_up(s.n, kMaxTileCols) * kMaxTileCols;
  if (__builtin_add_overflow(cols, s.m, &size)) return false;
  if (__builtin_mul_overflow(size, s.k, &size)) return false;
  if (__builtin_mul_overflow(size, static_cast<int64_t>(sizeof(float)), &size)) return false;
  *bytes = static_cast<uint64_t>(size);
  return true;
}

/* All values between the two halves. */
uint64_t prologue_workspace(const void *, const octavo_prologue_call &c) {
  const octavo_tensor &in = *c.quantize->in;
  return static_cast<uint64_t>(in.rows) * static_cast<uint64_t>(in.cols) *
         static_cast<uint64_t>(dtype_bytes(in.dtype));
}

}  // namespace

DeviceLimits limits_of(const Context &context) {
  const int64_t pack_rows = context.level->dot == nullptr ? 0 : kDotCols;
  return {context.level->id, pack_rows, true, nullptr, gemm_workspace, prologue_workspace};
}

octavo_status probe_device(octavo_device device, const octavo_verdict_sink *sink) {
  if (sink == nullptr || sink->verdict == nullptr) return OCTAVO_INVALID;
  octavo_verdict v = {};
  v.size = sizeof(v);
  v.kind = OCTAVO_KIND_VERDICT;
  v.level = OCTAVO_LEVEL_DEVICE;
  if (is_this_cpu(device)) {
    v.decision = OCTAVO_ACCEPT_EMULATED;
    v.text = OCTAVO_STR("The CPU computes FP8 in fp32 arithmetic, bit-identical to the formats.");
    v.evidence = OCTAVO_STR("no CPU has FP8 units that give these numbers");
  } else {
    v.decision = OCTAVO_DECLINE;
    v.reason = OCTAVO_REASON_DEVICE;
    v.text = OCTAVO_STR("These kernels run on the CPU only.");
    v.evidence = device.type == OCTAVO_DEVICE_CPU
                     ? octavo_str OCTAVO_STR("a CPU with an index other than 0 was asked for")
                     : octavo_str OCTAVO_STR("a device of another type was asked for");
    v.remedy = OCTAVO_STR("Use device type CPU, index 0, or install kernels for that device.");
  }
  sink->verdict(sink->ctx, &v);
  return OCTAVO_OK;
}

octavo_status open_device(octavo_device device, const octavo_host *host, void **ctx) {
  if (host == nullptr || host->diagnose == nullptr || host->get_extension == nullptr) {
    return OCTAVO_INVALID; /* nobody to tell */
  }
  const Caller caller = {host, kDomain};
  if (ctx == nullptr) {
    return report_error(caller, OCTAVO_INVALID, "open_device: ctx is null; expected an address");
  }
  *ctx = nullptr;
  if (!is_this_cpu(device)) {
    return report_error(caller, OCTAVO_UNSUPPORTED,
                        "open_device: device type %u, index %d; expected type %d (CPU), index 0",
                        device.type, device.index, OCTAVO_DEVICE_CPU);
  }
  const Level *level = nullptr;
  const octavo_status status = choose_level(caller, &level);
  if (status != OCTAVO_OK) return status;
  const auto *parallel = static_cast<const octavo_parallel *>(
      host->get_extension(host->ctx, OCTAVO_STR(OCTAVO_PARALLEL_ID)));
  if (parallel != nullptr &&
      (!OCTAVO_HAS(parallel, octavo_parallel, parallel_for) || parallel->parallel_for == nullptr)) {
    return report_error(caller, OCTAVO_INVALID,
                        "open_device: the host's %s has no parallel_for (%u bytes); expected a "
                        "complete table, or null for no threads",
                        OCTAVO_PARALLEL_ID, parallel->size);
  }
  auto *context = new (std::nothrow) Context{host, parallel, level};
  if (context == nullptr) {
    return report_error(caller, OCTAVO_NO_RESOURCE, "open_device: out of memory for %zu bytes",
                        sizeof(Context));
  }
  *ctx = context;
  return OCTAVO_OK;
}

void close_device(void *ctx) {
  delete static_cast<Context *>(ctx);
}

octavo_status describe(void *ctx, octavo_kernels_caps *out) {
  const Context &context = context_of(ctx);
  const octavo_status status = begin_describe(context.caller(), context.level->id, out);
  if (status != OCTAVO_OK) return status;
  out->flags = OCTAVO_CAPS_EXACT_GEMM | OCTAVO_CAPS_DETERMINISTIC | OCTAVO_CAPS_EMULATED;
  out->alignment = 1;
  if (OCTAVO_HAS(out, octavo_kernels_caps, pack_rows)) {
    out->pack_rows = static_cast<uint32_t>(limits_of(context).pack_rows);
  }
  return OCTAVO_OK;
}

octavo_status ability(void *ctx, octavo_ability *question) {
  const Context &context = context_of(ctx);
  const octavo_status status = begin_ability(context.caller(), limits_of(context), question);
  if (status != OCTAVO_OK || question->decision == OCTAVO_DECLINE) return status;
  question->decision = OCTAVO_ACCEPT_EMULATED;
  question->evidence = OCTAVO_STR("no CPU has FP8 units that give these numbers");
  return OCTAVO_OK;
}

}  // namespace octavo
