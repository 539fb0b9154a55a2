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

template <typename Table>
struct KernelsTableId;
#define OCTAVO_KERNELS_TABLE(table, id_of_it, kind_of_it)  \
  template <>                                              \
  struct KernelsTableId<table> {                           \
    static constexpr octavo_str id = OCTAVO_STR(id_of_it); \
    static constexpr uint32_t kind = kind_of_it;           \
  }
OCTAVO_KERNELS_TABLE(octavo_adam_kernels, OCTAVO_ADAM_KERNELS_ID, OCTAVO_KIND_ADAM_KERNELS);
OCTAVO_KERNELS_TABLE(octavo_msamp_kernels, OCTAVO_MSAMP_KERNELS_ID, OCTAVO_KIND_MSAMP_KERNELS);
OCTAVO_KERNELS_TABLE(octavo_rounding_kernels, OCTAVO_ROUNDING_KERNELS_ID,
                     OCTAVO_KIND_ROUNDING_KERNELS);
OCTAVO_KERNELS_TABLE(octavo_one_pass_kernels, OCTAVO_ONE_PASS_KERNELS_ID,
                     OCTAVO_KIND_ONE_PASS_KERNELS);
OCTAVO_KERNELS_TABLE(octavo_fp4_kernels, OCTAVO_FP4_KERNELS_ID, OCTAVO_KIND_FP4_KERNELS);
#undef OCTAVO_KERNELS_TABLE

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
  template <typename Table>
  Table &get() {
    return std::get<Table>(copies_);
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

  OfDraftTables<TableCopy> copies_;
};

}  // namespace octavo
#pragma GCC visibility pop

#endif
