// octavo/hpp/kernels_tables.hpp: the tables of a device by their types: octavo_kernels, and those
// of octavo/draft that its get_extension has.
//
// A table is looked up by name, so once for each device and never in a call.
#ifndef OCTAVO_HPP_KERNELS_TABLES_HPP
#define OCTAVO_HPP_KERNELS_TABLES_HPP

#include <tuple>

#include "octavo/draft/fp4.h"
#include "octavo/draft/msamp.h"
#include "octavo/draft/one_pass.h"
#include "octavo/draft/rounding.h"

#pragma GCC visibility push(hidden)
namespace octavo {

// The id of a table, and the calls that kernels execute: all functions of a table of octavo/draft;
// of octavo_kernels the functions that neither ask nor open anything.
template <typename Table>
struct KernelsTableId;
#define OCTAVO_KERNELS_TABLE(table, NAME)                          \
  using Table = table;                                             \
  static constexpr octavo_str id = OCTAVO_STR(OCTAVO_##NAME##_ID); \
  static constexpr uint32_t kind = OCTAVO_KIND_##NAME
#define OCTAVO_KERNELS_CALL(function)                \
  struct function {                                  \
    static constexpr auto member = &Table::function; \
    static constexpr const char name[] = #function;  \
  }
template <>
struct KernelsTableId<octavo_kernels> {
  OCTAVO_KERNELS_TABLE(octavo_kernels, KERNELS);
  OCTAVO_KERNELS_CALL(quantize);
  OCTAVO_KERNELS_CALL(dequantize);
  OCTAVO_KERNELS_CALL(compute_amax);
  OCTAVO_KERNELS_CALL(scale_from_amax);
  OCTAVO_KERNELS_CALL(delayed_scale_update);
  OCTAVO_KERNELS_CALL(gemm);
  OCTAVO_KERNELS_CALL(sum_rows);
  OCTAVO_KERNELS_CALL(copy);
  OCTAVO_KERNELS_CALL(quantize_stats);
  OCTAVO_KERNELS_CALL(prologue);
  OCTAVO_KERNELS_CALL(prologue_quantize);
  OCTAVO_KERNELS_CALL(pack);
  using Calls =
      std::tuple<quantize, dequantize, compute_amax, scale_from_amax, delayed_scale_update, gemm,
                 sum_rows, copy, quantize_stats, prologue, prologue_quantize, pack>;
  static constexpr size_t kOthers = 7;  // from probe_device to workspace_bytes, and get_extension
};
template <>
struct KernelsTableId<octavo_adam_kernels> {
  OCTAVO_KERNELS_TABLE(octavo_adam_kernels, ADAM_KERNELS);
  OCTAVO_KERNELS_CALL(adam_step);
  OCTAVO_KERNELS_CALL(gradient_scale);
  OCTAVO_KERNELS_CALL(sum_of_squares);
  using Calls = std::tuple<adam_step, gradient_scale, sum_of_squares>;
  static constexpr size_t kOthers = 0;
};
template <>
struct KernelsTableId<octavo_msamp_kernels> {
  OCTAVO_KERNELS_TABLE(octavo_msamp_kernels, MSAMP_KERNELS);
  OCTAVO_KERNELS_CALL(sum_quantized);
  OCTAVO_KERNELS_CALL(scale_values);
  OCTAVO_KERNELS_CALL(prescale_update);
  using Calls = std::tuple<sum_quantized, scale_values, prescale_update>;
  static constexpr size_t kOthers = 0;
};
template <>
struct KernelsTableId<octavo_rounding_kernels> {
  OCTAVO_KERNELS_TABLE(octavo_rounding_kernels, ROUNDING_KERNELS);
  OCTAVO_KERNELS_CALL(adam_rounded);
  OCTAVO_KERNELS_CALL(round_codes);
  OCTAVO_KERNELS_CALL(count);
  using Calls = std::tuple<adam_rounded, round_codes, count>;
  static constexpr size_t kOthers = 0;
};
template <>
struct KernelsTableId<octavo_one_pass_kernels> {
  OCTAVO_KERNELS_TABLE(octavo_one_pass_kernels, ONE_PASS_KERNELS);
  OCTAVO_KERNELS_CALL(adam_one_pass);
  using Calls = std::tuple<adam_one_pass>;
  static constexpr size_t kOthers = 0;
};
template <>
struct KernelsTableId<octavo_fp4_kernels> {
  OCTAVO_KERNELS_TABLE(octavo_fp4_kernels, FP4_KERNELS);
  OCTAVO_KERNELS_CALL(quantize_fp4);
  using Calls = std::tuple<quantize_fp4>;
  static constexpr size_t kOthers = 0;
};
#undef OCTAVO_KERNELS_CALL
#undef OCTAVO_KERNELS_TABLE

// Calls visit(call) with an object of each call's type.
template <typename Table, typename Visit>
void each_call(const Visit &visit) {
  using Id = KernelsTableId<Table>;
  static_assert(
      sizeof(Table) == 2 * sizeof(uint32_t) +
                           (std::tuple_size_v<typename Id::Calls> + Id::kOthers) * sizeof(void *),
      "a call of this table is missing in Calls");
  std::apply([&](auto... call) { (visit(call), ...); }, typename Id::Calls());
}

// One value for each table of octavo/draft.
template <template <typename> class Of>
using OfDraftTables =
    std::tuple<Of<octavo_adam_kernels>, Of<octavo_msamp_kernels>, Of<octavo_rounding_kernels>,
               Of<octavo_one_pass_kernels>, Of<octavo_fp4_kernels>>;
template <typename Table>
using TablePointer = const Table *;
template <typename Table>
using TableCopy = Table;

class KernelsTables {
 public:
  KernelsTables() = default;
  KernelsTables(const octavo_kernels *kernels, void *ctx) : kernels_(kernels) {
    if (kernels->get_extension == nullptr) return;
    std::apply([&](auto &...table) { (find(table, ctx), ...); }, drafts_);
  }
  // Null where the device has none.
  template <typename Table>
  const Table *get() const {
    if constexpr (std::is_same_v<Table, octavo_kernels>)
      return kernels_;
    else
      return std::get<const Table *>(drafts_);
  }

 private:
  template <typename Table>
  void find(const Table *&table, void *ctx) const {
    const auto *found =
        static_cast<const Table *>(kernels_->get_extension(ctx, KernelsTableId<Table>::id));
    if (found != nullptr && found->size >= sizeof(Table) &&
        found->kind == KernelsTableId<Table>::kind)
      table = found;
  }

  const octavo_kernels *kernels_ = nullptr;
  OfDraftTables<TablePointer> drafts_;
};

// The tables of octavo/draft for a layer in front of a device, which fills in its own functions.
class DraftCopies {
 public:
  DraftCopies() = default;
  // Of each function of each table: table.*member = function(call), by the call's type.
  template <typename Function>
  explicit DraftCopies(const Function &function) {
    std::apply([&](auto &...table) { (fill(table, function), ...); }, copies_);
  }
  // What get_extension answers in front of a device with these tables: null for an id that is not
  // of octavo/draft, since the layer's ctx is not the device's.
  const void *find(const KernelsTables &real, octavo_str id) const {
    const void *found = nullptr;
    std::apply([&](const auto &...copy) { (take(copy, real, id, found), ...); }, copies_);
    return found;
  }

 private:
  template <typename Table>
  static void take(const Table &copy, const KernelsTables &real, octavo_str id,
                   const void *&found) {
    const octavo_str mine = KernelsTableId<Table>::id;
    if (id.size == mine.size && __builtin_memcmp(id.data, mine.data, mine.size) == 0 &&
        real.get<Table>() != nullptr)
      found = &copy;
  }

  template <typename Table, typename Function>
  static void fill(Table &table, const Function &function) {
    table.size = sizeof(Table);
    table.kind = KernelsTableId<Table>::kind;
    each_call<Table>([&](auto call) { table.*decltype(call)::member = function(call); });
  }

  OfDraftTables<TableCopy> copies_{};
};

}  // namespace octavo
#pragma GCC visibility pop

#endif
