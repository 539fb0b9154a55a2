// Faults of a device with streams, graphs and a current device, each in one call of many.
#include <memory>
#include <vector>

#include "late_device.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "octavo/hpp/text.hpp"

namespace octavo::test {
namespace {

// A function of the device that runs its work late, of a call that `kChange` has changed.
template <auto kVerb, typename Call, void (*kChange)(Call &)>
void plant(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.*kVerb = [](void *ctx, const Call *c) {
    Call own = *c;
    kChange(own);
    return (late::kernels().*kVerb)(ctx, &own);
  };
}
template <typename Call>
void on_default_stream(Call &c) {
  c.stream = nullptr;
}
template <typename Call>
void makes_current(Call &) {
  late::set_current_device(0);
}

// The same, and `kDo` before it.
template <auto kVerb, typename Call, octavo_status (*kDo)(void *ctx, const Call &c)>
void plant_before(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.*kVerb = [](void *ctx, const Call *c) {
    const octavo_status status = kDo(ctx, *c);
    return status == OCTAVO_OK ? (late::kernels().*kVerb)(ctx, c) : status;
  };
}
octavo_status waits_for_stream(void *ctx, const octavo_compute_amax &c) {
  return late::is_capturing(c.stream) ? octavo_status{OCTAVO_OK}
                                      : late::streams().wait(ctx, c.stream);
}
octavo_status waits_for_device(void *ctx, const octavo_scale_from_amax &c) {
  if (!late::is_capturing(c.stream)) late::flush();
  return ctx != nullptr ? OCTAVO_OK : OCTAVO_INTERNAL;
}
octavo_status allocates(void *ctx, const octavo_gemm &) {
  void *scratch = nullptr;
  late::memory().allocate(ctx, 256, &scratch);
  late::memory().release(ctx, scratch);
  return OCTAVO_OK;
}
octavo_status synchronizes(void *ctx, const octavo_sum &c) {
  if (late::is_capturing(c.stream)) late::memory().synchronize(ctx);
  return OCTAVO_OK;
}
octavo_status refuses_capture(void *, const octavo_dequantize &c) {
  return late::is_capturing(c.stream) ? OCTAVO_UNSUPPORTED : OCTAVO_OK;
}
octavo_status needs_current(void *, const octavo_dequantize &) {
  return late::current_device() == 0 ? OCTAVO_OK : OCTAVO_FAILED_DEVICE;
}

// out_t on a stream of its own, which nothing orders behind that of the call.
void turns_on_another_stream(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.quantize = [](void *ctx, const octavo_quantize *c) {
    if (c->out == nullptr || c->out_t == nullptr || late::is_capturing(c->stream))
      return late::kernels().quantize(ctx, c);
    static void *side = nullptr;
    if (side == nullptr) late::streams().make_stream(ctx, &side);
    octavo_quantize turned = *c, straight = *c;
    straight.out_t = nullptr;
    turned.out = nullptr;
    turned.stream = c->stream == nullptr ? nullptr : side;
    const octavo_status status = late::kernels().quantize(ctx, &straight);
    return status == OCTAVO_OK ? late::kernels().quantize(ctx, &turned) : status;
  };
}
// Structs of a prologue are the caller's.
void reads_structs_late(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.prologue = [](void *ctx, const octavo_prologue_call *c) {
    if (c->stream == nullptr) return late::kernels().prologue(ctx, c);
    late::push(c->stream, [=, own = *c] { sound().prologue(ctx, &own); });
    return octavo_status{OCTAVO_OK};
  };
}
void keeps_structs_of_capture(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.quantize_stats = [](void *ctx, const octavo_quantize_stats *c) {
    if (!late::is_capturing(c->stream)) return late::kernels().quantize_stats(ctx, c);
    late::push(c->stream, [=] { sound().quantize_stats(ctx, c); });
    return octavo_status{OCTAVO_OK};
  };
}
// The amax that a graph derives scales from is the one of its capture.
void keeps_values_of_capture(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.scale_from_amax = [](void *ctx, const octavo_scale_from_amax *c) {
    if (!late::is_capturing(c->stream)) return late::kernels().scale_from_amax(ctx, c);
    const auto kept = std::make_shared<std::vector<float>>(c->amax, c->amax + c->n);
    late::push(c->stream, [=, own = *c]() mutable {
      own.amax = kept->data();
      sound().scale_from_amax(ctx, &own);
    });
    return octavo_status{OCTAVO_OK};
  };
}
void runs_while_captured(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.copy = [](void *ctx, const octavo_copy *c) {
    if (late::is_capturing(c->stream)) sound().copy(ctx, c);
    return late::kernels().copy(ctx, c);
  };
}
void orders_nothing(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  late::offered_streams().order = [](void *, void *, void *) { return octavo_status{OCTAVO_OK}; };
}
// A call of octavo/draft.
void adam_on_default_stream(octavo_kernels &kernels, octavo_memory &memory) {
  queue_work(kernels, memory);
  kernels.get_extension = [](void *ctx, octavo_str id) -> const void * {
    const void *given = late::kernels().get_extension(ctx, id);
    if (given == nullptr || view(id) != OCTAVO_ADAM_KERNELS_ID) return given;
    static octavo_adam_kernels real, table;
    real = table = *static_cast<const octavo_adam_kernels *>(given);
    table.adam_step = [](void *on, const octavo_adam_step *c) {
      octavo_adam_step own = *c;
      own.stream = nullptr;
      return real.adam_step(on, &own);
    };
    return &table;
  };
}

}  // namespace

std::span<const Fault> faults_of_streams() {
  using K = octavo_kernels;
  static constexpr Fault kFaults[] = {
      {"stream_ignored_by_quantize",
       plant<&K::quantize, octavo_quantize, on_default_stream<octavo_quantize>>},
      {"stream_ignored_by_gemm", plant<&K::gemm, octavo_gemm, on_default_stream<octavo_gemm>>},
      {"stream_ignored_by_adam", adam_on_default_stream},
      {"stream_of_out_t_is_another", turns_on_another_stream},
      {"stream_waited_for", plant_before<&K::compute_amax, octavo_compute_amax, waits_for_stream>},
      {"stream_device_waited_for",
       plant_before<&K::scale_from_amax, octavo_scale_from_amax, waits_for_device>},
      {"stream_structs_read_late", reads_structs_late},
      {"stream_order_ignored", orders_nothing},
      {"capture_keeps_structs", keeps_structs_of_capture},
      {"capture_keeps_values", keeps_values_of_capture},
      {"capture_allocates", plant_before<&K::gemm, octavo_gemm, allocates>},
      {"capture_synchronizes", plant_before<&K::sum_rows, octavo_sum, synchronizes>},
      {"capture_runs_at_once", runs_while_captured},
      {"capture_refused", plant_before<&K::dequantize, octavo_dequantize, refuses_capture>},
      {"current_device_changed",
       plant<&K::compute_amax, octavo_compute_amax, makes_current<octavo_compute_amax>>},
      {"current_device_used", plant_before<&K::dequantize, octavo_dequantize, needs_current>},
  };
  return kFaults;
}

}  // namespace octavo::test
