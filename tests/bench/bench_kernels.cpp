// The kernels of bench_cpu, on one thread and on two.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "kernels/cpu/table.h"
#include "octavo/octavo.h"
#include "tests/bench/bench.h"

namespace octavo::bench {
namespace {

// A host that prints what the kernels say; with one thread it has no pool.
class OpenedKernels {
 public:
  explicit OpenedKernels(uint32_t threads) {
    if (threads > 1 && octavo_threads_open(threads, &pool_) != OCTAVO_OK) std::exit(2);
    host_.ctx = this;
    host_.size = sizeof host_;
    host_.kind = OCTAVO_KIND_HOST;
    host_.abi_major = OCTAVO_ABI_MAJOR;
    host_.abi_minor = OCTAVO_ABI_MINOR;
    host_.diagnose = [](void *, const octavo_diagnostic *d) {
      std::fprintf(stderr, "%.*s\n", static_cast<int>(d->text.size), d->text.data);
    };
    host_.get_extension = [](void *self, octavo_str id) -> const void * {
      const bool is_parallel = std::string_view(id.data, id.size) == OCTAVO_PARALLEL_ID;
      return is_parallel ? static_cast<OpenedKernels *>(self)->parallel() : nullptr;
    };
    if (table->open_device({OCTAVO_DEVICE_CPU, 0}, &host_, &ctx) != OCTAVO_OK) std::exit(2);
  }
  // Null: one thread.
  const octavo_parallel *parallel() const {
    return pool_ == nullptr ? nullptr : octavo_threads_parallel(pool_);
  }

  const octavo_kernels *table = octavo_cpu_kernels();
  void *ctx = nullptr;

 private:
  octavo_threads *pool_ = nullptr;
  octavo_host host_ = {};
};

bool has_two_threads = false;

// Kept until the process ends, as memory is.
const OpenedKernels &opened() {
  static const auto *one = new OpenedKernels(1);
  if (!has_two_threads) return *one;
  static const auto *two = new OpenedKernels(2);
  return *two;
}

// Of every OpenMP runtime and OpenBLAS that an opponent brought.
void set_library_threads(int threads) {
  using SetThreads = void (*)(int);
  for (const char *name : {"omp_set_num_threads", "openblas_set_num_threads"}) {
    const auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, name));
    if (set != nullptr) set(threads);
  }
}

}  // namespace

const octavo_kernels &kernels() {
  return *opened().table;
}

void *context() {
  return opened().ctx;
}

TwoThreads::TwoThreads() {
  has_two_threads = true;
  set_library_threads(2);
}

TwoThreads::~TwoThreads() {
  has_two_threads = false;
  set_library_threads(1);
}

void for_ranges(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)> &body) {
  const octavo_parallel *parallel = opened().parallel();
  if (parallel == nullptr) return body(0, count);
  const std::function<void(int64_t, int64_t)> in_grains = [&](int64_t begin, int64_t end) {
    body(begin * grain, end * grain < count ? end * grain : count);
  };
  parallel->parallel_for(
      parallel->ctx, 0, (count + grain - 1) / grain, 1,
      [](void *arg, int64_t begin, int64_t end) {
        (*static_cast<const std::function<void(int64_t, int64_t)> *>(arg))(begin, end);
      },
      const_cast<std::function<void(int64_t, int64_t)> *>(&in_grains));
}

std::string level() {
  octavo_kernels_caps caps{};
  caps.size = sizeof(caps);
  if (kernels().describe(context(), &caps) != OCTAVO_OK) return "unknown";
  return std::string(caps.id.data, caps.id.size);
}

}  // namespace octavo::bench
