/* Each verb of the CUDA kernels is an NVTX range, also where it fails. This program is the tool
 * that NVTX finds, by its symbol for tools that are linked in. */
#include <nvtx3/nvToolsExt.h>

#include "tests/kernels/cuda/every_verb.h"

namespace {

/* The ranges that are open, and a line for each event. */
std::vector<std::string> open_ranges, seen;

struct Domain {
  std::string name;
};

nvtxDomainHandle_t NVTX_API create(const char *name) {
  static std::vector<std::unique_ptr<Domain>> domains;
  domains.push_back(std::make_unique<Domain>(Domain{name}));
  return reinterpret_cast<nvtxDomainHandle_t>(domains.back().get());
}
int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
  open_ranges.push_back(reinterpret_cast<Domain *>(domain)->name + ":" + event->message.ascii);
  seen.push_back(open_ranges.back());
  return static_cast<int>(open_ranges.size()) - 1;
}
int NVTX_API pop(nvtxDomainHandle_t) {
  open_ranges.pop_back();
  return static_cast<int>(open_ranges.size());
}

int NVTX_API start_tool(NvtxGetExportTableFunc_t table) {
  const auto *callbacks = static_cast<const NvtxExportTableCallbacks *>(table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned count = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &functions, &count) == 0)
    return 0;
  *functions[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(&create);
  *functions[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(&push);
  *functions[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(&pop);
  return 1;
}

/* Before the first range. */
const bool is_tool = (InitializeInjectionNvtx2_fnptr = &start_tool) != nullptr;

}  // namespace

namespace octavo::test {
namespace {

TEST(CudaRanges, every_verb_is_one) {
  ASSERT_TRUE(is_tool);
  GemmDevices devices;
  void *ctx = devices.cuda();
  const EveryVerb every(ctx);
  size_t ranges = 0;
  for (const EveryVerb::Verb &v : every.verbs()) {
    if (!v.launches) continue;
    const std::string name = v.name;
    for (const EveryVerb::Kind kind : {EveryVerb::Kind::kRight, EveryVerb::Kind::kWrong}) {
      seen.clear();
      v.run(ctx, nullptr, kind);
      EXPECT_EQ(seen, std::vector<std::string>{"octavo:" + name});
      EXPECT_TRUE(open_ranges.empty()) << v.name;
    }
    ++ranges;
  }
  EXPECT_GE(ranges, 15U);
}

}  // namespace
}  // namespace octavo::test
