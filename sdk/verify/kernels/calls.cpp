// The closed list, and the counts.
#include "calls.h"

namespace octavo::conformance::kernels {
namespace {

template <typename Table>
struct Names {
  static void add(std::vector<std::string> &all) {
    each_call<Table>([&](auto call) { all.emplace_back(call.name); });
  }
};

constexpr NotCompared kFunctions[] = {
    {"probe_device",
     "It answers verdicts: kernels.table asks about devices that are there and not."},
    {"open_device", "It opens: kernels.table opens two contexts, and devices that are not there."},
    {"close_device", "It closes what each check opens."},
    {"describe", "It states what a device is: kernels.table looks at each field."},
    {"ability", "It answers questions: kernels.ability asks, and calls must do as it says."},
    {"workspace_bytes",
     "Its sizes are the plugin's own: kernels.workspace looks at how they grow, and each call gets "
     "just as many bytes."},
    {"get_extension", "It answers tables, whose calls are compared."},
    {"gemm, fast_accumulation",
     "The contract states no bound for its sums: without OCTAVO_CAPS_EXACT_GEMM only NaN is "
     "compared."},
};
static_assert(std::size(kFunctions) == KernelsTableId<octavo_kernels>::kOthers + 1,
              "a function of octavo_kernels is neither a call nor in this list");

}  // namespace

std::span<const NotCompared> not_compared() {
  return kFunctions;
}

std::vector<std::string> names_of_calls() {
  std::vector<std::string> all;
  Names<octavo_kernels>::add(all);
  std::apply([&](auto... names) { (names.add(all), ...); }, OfDraftTables<Names>());
  return all;
}

void Compared::add(const std::vector<const char *> &called, const octavo_ability &question) {
  for (const char *name : called) ++functions[name];
  formats.insert({question.call, question.dtype, question.granularity});
  if (question.call == OCTAVO_KIND_GEMM)
    formats.insert({question.call, question.b_dtype, question.b_granularity});
  flags.insert({question.call, question.flags});
}
Compared &compared() {
  static Compared all;
  return all;
}

}  // namespace octavo::conformance::kernels
