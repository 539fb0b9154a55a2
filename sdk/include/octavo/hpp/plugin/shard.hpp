// octavo/hpp/plugin/shard.hpp: octavo.shard/1 for a backend whose quantize_weight is one cast.
//
//   class Mine : public Backend<Mine, Options>, public Shards<Mine> {
//    public:
//     WeightCast weight_cast(const WeightCall &c) const { return {c[cache_], how, statistics}; }
//   };
//
// weight_cast() states what cast_weight() does; the rest follows. With one scale, and with square
// blocks, both directions of the cache have the same codes, so a packet has them once. With blocks
// of 1xC it has both.
#ifndef OCTAVO_HPP_PLUGIN_SHARD_HPP
#define OCTAVO_HPP_PLUGIN_SHARD_HPP

#include "octavo/hpp/plugin/calls.hpp"
#include "octavo/shard.h"

#pragma GCC visibility push(hidden)
namespace octavo {
namespace plugin {

// The cast of a weight, as cast_weight() makes it.
struct WeightCast {
  Codes cache;
  Cast how;
  Statistics statistics;
  const char *reads_weight = nullptr;  // why calls of training read the weight itself; null: none
};

// What one rank sends. Sizes follow `rows`, those of the first rank; shapes follow `own`.
class Packet {
 public:
  Packet(const Device &device, const Codes &cache, const Parameter &w, int64_t rows, int64_t own,
         const void *data)
      : data_(static_cast<char *>(const_cast<void *>(data))) {
    const uint32_t g = granularity_of(cache);
    const Block block = block_of(g);
    const bool per_tensor = g == OCTAVO_PER_TENSOR, shares = block.rows == block.cols;
    // Padding has scales of its own where there are blocks, and is added by place() where not.
    const int64_t k = per_tensor ? w.cols : device.aligned(w.cols);
    const int64_t most = per_tensor ? rows : device.aligned(rows);
    const int64_t n = per_tensor ? own : device.aligned(own);
    const uint32_t dtype = cache.has_rows() ? cache.rows.dtype : cache.columns.dtype;
    if (shares || cache.has_rows()) codes.rows = {take(most * k), n, k, k, dtype, 0};
    if (shares || cache.has_rows())
      codes.scale_inv = scale_of(g, k, take(scale_shape(g, most, k).bytes()));
    if (!shares && cache.has_columns()) codes.columns = {take(k * most), k, n, n, dtype, 0};
    if (!per_tensor && cache.has_columns())
      codes.columns_scale_inv = scale_of(g, n, take(scale_shape(g, k, most).bytes()));
  }

  static uint32_t granularity_of(const Codes &cache) {
    return cache.has_rows() ? cache.scale_inv.granularity
                            : cache.by_columns().scale_inv.granularity;
  }
  // Of a packet with blocks: its scales as matrices.
  octavo_tensor scales() const { return matrix(codes.scale_inv, codes.rows); }
  octavo_tensor columns_scales() const {
    const octavo_tensor turned{nullptr, codes.rows.cols, codes.rows.rows, 0, 0, 0};
    return matrix(codes.columns_scale_inv, codes.has_columns() ? codes.columns : turned);
  }
  uint64_t bytes() const { return bytes_; }

  Codes codes;  // columns where they are not those of rows

 private:
  static octavo_tensor matrix(const octavo_scale &scale, const octavo_tensor &of) {
    const ScaleShape s = scale_shape(scale.granularity, of.rows, of.cols);
    return {scale.data, s.rows, s.cols, s.cols, s.dtype, 0};
  }
  char *take(int64_t bytes) {
    char *at = data_ == nullptr ? nullptr : data_ + bytes_;
    bytes_ += static_cast<uint64_t>(round_up(bytes, OCTAVO_ALIGNMENT));
    return at;
  }

  char *data_;
  uint64_t bytes_ = 0;
};

template <typename Self>
class Shards {
 public:
  // ---- The verbs of octavo.shard/1. ----

  octavo_status shard_plan(octavo_shard_plan *plan) const {
    if (plan->reserved != 0)
      throw Error(OCTAVO_INVALID, "expected reserved 0, found " + std::to_string(plan->reserved));
    const Parameter &w = checked_weight(plan->parameter, plan->rows);
    const WeightCall call(w, nullptr, true);
    check_division(call, plan->rows);
    Pass cast(self().device(), true, 0, nullptr, nullptr, nullptr);
    const int64_t rows = std::min(plan->rows, w.rows);
    cast_rows(cast, call, {nullptr, rows, w.cols, w.cols, w.dtype, 0}, rows, nullptr, nullptr);
    Pass place(self().device(), true, 0, nullptr, nullptr, nullptr);
    place_all(place, call, rows, nullptr, nullptr);
    if (cast.status() != OCTAVO_OK) return cast.status();
    if (place.status() != OCTAVO_OK) return place.status();
    plan->packet_bytes =
        Packet(self().device(), self().self_of(w).weight_cast(call).cache, w, rows, rows, nullptr)
            .bytes();
    plan->cast_workspace = cast.workspace_bytes();
    plan->place_workspace = place.workspace_bytes();
    return OCTAVO_OK;
  }

  octavo_status shard_measure(const octavo_shard_call *c) const {
    checked_shard(*c);
    if (c->shard->rows == 0) return OCTAVO_OK;
    Pass p(self().device(), false, 0, c->stream, nullptr, nullptr);
    p.record_amax(*c->shard, c->amax, nullptr);
    return p.status();
  }

  octavo_status shard_cast(const octavo_shard_call *c) const {
    const Parameter &w = checked_shard(*c);
    const WeightCall call(w, c->slots, false);
    check_division(call, c->rows);
    if (c->shard->rows == 0) return OCTAVO_OK;
    if (c->packet == nullptr) throw Error(OCTAVO_INVALID, "expected a packet, found null");
    Pass p(self().device(), false, 0, c->stream, c->workspace, nullptr);
    p.watch(call[self().self_of(w).flag()]);  // of its own rows
    cast_rows(p, call, *c->shard, std::min(c->rows, w.rows), c->amax, c->packet);
    return p.status();
  }

  octavo_status shard_place(const octavo_gathered_call *c) const {
    const Parameter &w = checked_weight(c->parameter, c->rows);
    check_flags(c->flags);
    if (c->packets == nullptr || c->amax == nullptr)
      throw Error(OCTAVO_INVALID, "expected packets and amax, found null");
    if (divide_up(w.rows, std::min(c->rows, w.rows)) > int64_t{c->world})
      throw Error(OCTAVO_INVALID, about(w.name) + "expected packets for all of its " +
                                      std::to_string(w.rows) + " rows, found " +
                                      std::to_string(c->world) + " for " + std::to_string(c->rows) +
                                      " rows each");
    const WeightCall call(w, c->slots, false);
    check_division(call, c->rows);
    Pass p(self().device(), false, 0, c->stream, c->workspace, nullptr);
    place_all(p, call, std::min(c->rows, w.rows), c->packets, c->amax);
    if (p.status() == OCTAVO_OK) w.cast.set();
    return p.status();
  }

 protected:
  ~Shards() = default;

 private:
  const Self &self() const { return static_cast<const Self &>(*this); }

  const Parameter &checked_weight(uint32_t id, int64_t rows) const {
    const Objects &o = self().objects();
    if (id >= o.sealed_parameters || !o.parameters[id].is_linear_weight())
      throw Error(OCTAVO_INVALID, "expected a sealed parameter that is a linear's weight, found " +
                                      std::to_string(id));
    if (rows < 1)
      throw Error(OCTAVO_INVALID, about(o.parameters[id].name) +
                                      "expected shards of one row or more, found " +
                                      std::to_string(rows));
    return o.parameters[id];
  }
  static void check_flags(uint32_t flags) {
    if (flags != 0) throw Error(OCTAVO_INVALID, "expected flags 0, found " + std::to_string(flags));
  }
  const Parameter &checked_shard(const octavo_shard_call &c) const {
    const Parameter &w = checked_weight(c.parameter, c.rows);
    check_flags(c.flags);
    if (c.shard == nullptr || c.amax == nullptr)
      throw Error(OCTAVO_INVALID, about(w.name) + "expected a shard and amax, found null");
    if (c.shard->rows < 0 || c.shard->rows > std::min(c.rows, w.rows) || c.shard->cols != w.cols)
      throw Error(OCTAVO_INVALID, about(w.name) + "expected a shard of at most " +
                                      std::to_string(std::min(c.rows, w.rows)) + " rows and " +
                                      std::to_string(w.cols) + " columns, found [" +
                                      std::to_string(c.shard->rows) + ", " +
                                      std::to_string(c.shard->cols) + "]");
    return w;
  }

  // Refuses shards whose codes would not be those of the whole weight.
  void check_division(const WeightCall &c, int64_t rows) const {
    const Parameter &w = c.parameter;
    const auto refuse = [&](const std::string &text) {
      throw Error(OCTAVO_UNSUPPORTED,
                  about(w.name) + text + "; gather the values of this weight instead of its codes");
    };
    const Device &device = self().device();
    if (!device.executes(OCTAVO_KIND_COMPUTE_AMAX, OCTAVO_F32) ||
        !device.executes(OCTAVO_KIND_SCALE_FROM_AMAX))
      refuse("expected kernels with compute_amax and scale_from_amax, found none");
    const WeightCast cast = self().self_of(c.parameter).weight_cast(c);
    if (cast.reads_weight != nullptr) refuse(cast.reads_weight);
    if (!cast.cache.has_rows() && !cast.cache.has_columns())
      refuse("expected a weight with codes, found none");
    if (cast.statistics.wanted)
      refuse("expected a cast without telemetry, whose sums would follow the shards");
    const uint32_t g = Packet::granularity_of(cast.cache);
    const Block block = block_of(g);
    if (g == OCTAVO_PER_TENSOR) {
      if (cast.how.rule != OCTAVO_RULE_GIVEN && (cast.how.eps != 0 || cast.how.window > 1))
        refuse(
            "expected a scale that follows from amax alone, found a lower bound on amax or a "
            "warm-up of several steps");
      return;
    }
    if (has_second(g))
      refuse(std::string(describe_scales(g)) +
             " have a second level, which follows from the whole weight");
    if (block.rows == 0 || block.cols == 0)
      refuse(std::string("expected one scale or one for each block, found ") + describe_scales(g));
    const int64_t multiple = std::max(
        {block.rows, cast.cache.has_columns() ? block.cols : 1, self().device().alignment()});
    if (rows < w.rows && rows % multiple != 0)
      refuse("expected shards of a multiple of " + std::to_string(multiple) + " rows, so that " +
             describe_scales(g) + " each follow from one shard, found " + std::to_string(rows));
  }

  // The rank's rows to its packet. `rows`: those of the first rank.
  void cast_rows(Pass &p, const WeightCall &c, const octavo_tensor &shard, int64_t rows,
                 const float *amax, void *data) const {
    const WeightCast w = self().self_of(c.parameter).weight_cast(c);
    Codes codes = Packet(self().device(), w.cache, c.parameter, rows, shard.rows, data).codes;
    Cast how = w.how;
    how.amax = nullptr;  // recorded by place(), of all ranks
    const uint32_t g = Packet::granularity_of(w.cache);
    if (g == OCTAVO_PER_TENSOR && how.rule != OCTAVO_RULE_GIVEN) {
      auto *scale = static_cast<float *>(p.workspace().take(sizeof(float)));
      auto s = p.template call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
      s.amax = how.window > 0 ? without_record(p, how.counter, amax) : amax;
      s.scale = scale;
      s.kept = how.scale;
      s.n = 1;
      s.format_max = format_max(codes.rows.dtype, how.margin);
      s.divide_by = 1;
      s.rule = how.rule;
      p.run(&octavo_kernels::scale_from_amax, s);
      how.scale = scale;
      how.rule = OCTAVO_RULE_GIVEN;
    }
    // The scales of square blocks in the other direction come with codes that nobody reads.
    if (codes.columns_scale_inv.dtype != 0 && !codes.has_columns())
      codes.columns = p.workspace().tensor(codes.rows.cols, codes.rows.rows, codes.rows.dtype);
    p.cast(shard, codes, how);
  }

  // amax while the counter is 0, and else 0, which keeps the scale that there is: amax * factor.
  static const float *without_record(Pass &p, const float *counter, const float *amax) {
    auto *factor = static_cast<float *>(p.workspace().take(sizeof(float)));
    octavo_tensor out = p.workspace().tensor(1, 1, OCTAVO_F32);
    auto s = p.template call<octavo_scale_from_amax>(OCTAVO_KIND_SCALE_FROM_AMAX);
    s.amax = counter;  // an amax of 0 gives 1, and of 1 to 2^24 a quotient that rounds to 0
    s.scale = factor;
    s.n = 1;
    s.format_max = 0x1p-126F;
    s.divide_by = 0x1p-100F;
    s.rule = OCTAVO_RULE_QUOTIENT;
    p.run(&octavo_kernels::scale_from_amax, s);
    const octavo_tensor in{const_cast<float *>(amax), 1, 1, 1, OCTAVO_F32, 0};
    p.decode({in, OCTAVO_SCALE(factor, 0, OCTAVO_F32, OCTAVO_PER_TENSOR)}, out);
    return static_cast<const float *>(out.data);
  }

  // All packets into the cache, one after the other, and what else quantize_weight leaves.
  void place_all(Pass &p, const WeightCall &c, int64_t rows, const void *packets,
                 const float *amax) const {
    const WeightCast w = self().self_of(c.parameter).weight_cast(c);
    const int64_t n = c.parameter.rows;
    Codes cache = w.cache;
    const octavo_tensor packed = cache.rows;
    const bool packs = cache.layout == Layout::kPacked;
    if (packs)
      cache.rows = p.workspace().tensor(self().device().aligned(n), packed.cols, packed.dtype);
    const octavo_scale one = p.workspace().scale_inv();
    const auto *data = static_cast<const char *>(packets);
    const octavo_scale first_scale =
        Packet(self().device(), w.cache, c.parameter, rows, rows, packets).codes.scale_inv;
    for (int64_t first = 0; first < n; first += rows) {
      const Packet packet(self().device(), w.cache, c.parameter, rows, std::min(rows, n - first),
                          data);
      place_one(p, cache, packet, first, first + rows >= n, one);
      if (p.measuring()) break;
      data += packet.bytes();
    }
    if (packs) p.pack(cache.rows, packed);
    if (Packet::granularity_of(w.cache) == OCTAVO_PER_TENSOR)
      copy(p, cache.scale_inv.data, first_scale.data, sizeof(float));
    octavo_tensor combined{const_cast<float *>(amax), 1, 1, 1, OCTAVO_F32, 0};
    p.record_amax(combined, w.how.amax, nullptr);
  }

  // One packet to the rows from `first` on; the last one also to the padding behind them.
  static void place_one(Pass &p, const Codes &cache, const Packet &packet, int64_t first,
                        bool is_last, const octavo_scale &one) {
    octavo_tensor rows{}, columns{};
    const Codes &from = packet.codes;
    const int64_t own = from.has_rows() ? from.rows.rows : from.columns.cols;
    if (cache.has_rows()) {
      rows = cache.rows;
      rows.data = at(rows.data, first * rows.stride);
      rows.rows = is_last ? rows.rows - first : own;
    }
    if (cache.has_columns()) {
      columns = cache.columns;
      columns.data = at(columns.data, first);
      columns.cols = is_last ? columns.cols - first : own;
    }
    if (from.has_columns()) {
      if (cache.has_rows()) move(p, from.rows, rows, {}, one);
      if (cache.has_columns()) move(p, from.columns, columns, {}, one);
    } else {
      move(p, from.rows, rows, columns, one);
    }
    if (Packet::granularity_of(cache) == OCTAVO_PER_TENSOR) return;
    if (cache.has_rows()) {
      const octavo_tensor scales = packet.scales();
      const int64_t width = OCTAVO_DTYPE_BITS(scales.dtype) / 8;
      const Block block = block_of(cache.scale_inv.granularity);
      copy(p, at(cache.scale_inv.data, first / block.rows * cache.scale_inv.stride * width),
           scales.data, static_cast<uint64_t>(scales.rows * scales.cols * width));
    }
    if (cache.has_columns()) {
      octavo_tensor scales = packet.columns_scales(), to = scales;
      const int64_t width = OCTAVO_DTYPE_BITS(scales.dtype) / 8;
      const Block block = block_of(cache.columns_scale_inv.granularity);
      to.data = at(cache.columns_scale_inv.data, first / block.cols * width);
      to.stride = cache.columns_scale_inv.stride;
      if (scales.dtype == OCTAVO_F32) return p.add(scales, to, false);
      // Bytes: no scale is 0xFF, the one byte that need not stay as it is as float8_e4m3fn.
      scales.dtype = to.dtype = OCTAVO_E4M3FN;
      move(p, scales, to, {}, one);
    }
  }

  static void *at(void *data, int64_t bytes) {
    return data == nullptr ? nullptr : static_cast<char *>(data) + bytes;
  }
  // Codes to another place with other strides, and transposed: a cast to their own format with 1 as
  // scale. `one` is where it leaves that.
  static void move(Pass &p, const octavo_tensor &from, const octavo_tensor &rows,
                   const octavo_tensor &columns, const octavo_scale &one) {
    Codes to;
    to.rows = rows, to.columns = columns, to.scale_inv = one;
    Cast how;
    how.rule = OCTAVO_RULE_GIVEN;
    p.cast(from, to, how);
  }
  static void copy(Pass &p, void *out, const void *in, uint64_t bytes) {
    auto c = p.call<octavo_copy>(OCTAVO_KIND_COPY);
    c.out = out, c.in = in, c.bytes = bytes;
    p.run(&octavo_kernels::copy, c);
  }
};

}  // namespace plugin
}  // namespace octavo
#pragma GCC visibility pop

#endif
