// What is kept of a call until it runs, and the functions that keep it.
#include "late_kernels.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "octavo/hpp/kernels_tables.hpp"
#include "tests/support/cuda_on_cpu/queue.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace octavo::test {
namespace {

constexpr int kGarbage = 0xAB;

const octavo_kernels *real = nullptr;

// Copies of a call's structs; overwritten with garbage when the call has run.
class Kept {
 public:
  ~Kept() {
    for (const Part &part : parts_) {
      std::memset(part.bytes.get(), kGarbage, part.size);
    }
  }
  template <typename T>
  T *copy(const T *given) {
    if (given == nullptr) return nullptr;
    Part &part = parts_.emplace_back(Part{std::make_unique<char[]>(sizeof(T)), sizeof(T)});
    auto *own = reinterpret_cast<T *>(part.bytes.get());
    if constexpr (requires { given->kind; })
      octavo_take(own, sizeof(T), given);
    else
      std::memcpy(own, given, sizeof(T));
    return own;
  }

  octavo_quantize *deep(const octavo_quantize *c) {
    octavo_quantize *own = copy(c);
    if (own == nullptr) return own;
    own->in = copy(c->in);
    own->out = copy(c->out);
    own->out_t = copy(c->out_t);
    own->out_scale_inv = copy(c->out_scale_inv);
    own->out_t_scale_inv = copy(c->out_t_scale_inv);
    return own;
  }
  octavo_dequantize *deep(const octavo_dequantize *c) {
    octavo_dequantize *own = copy(c);
    own->in = copy(c->in);
    own->scale_inv = copy(c->scale_inv);
    own->out = copy(c->out);
    return own;
  }
  octavo_compute_amax *deep(const octavo_compute_amax *c) {
    octavo_compute_amax *own = copy(c);
    own->in = copy(c->in);
    own->in_scale_inv = copy(c->in_scale_inv);
    return own;
  }
  octavo_gemm *deep(const octavo_gemm *c) {
    octavo_gemm *own = copy(c);
    own->a = copy(c->a);
    own->b = copy(c->b);
    own->d = copy(c->d);
    own->bias = copy(c->bias);
    own->a_scale_inv = copy(c->a_scale_inv);
    own->b_scale_inv = copy(c->b_scale_inv);
    return own;
  }
  octavo_sum *deep(const octavo_sum *c) {
    octavo_sum *own = copy(c);
    own->in = copy(c->in);
    own->in_scale_inv = copy(c->in_scale_inv);
    return own;
  }
  octavo_quantize_stats *deep(const octavo_quantize_stats *c) {
    octavo_quantize_stats *own = copy(c);
    own->in = copy(c->in);
    own->codes = copy(c->codes);
    own->scale_inv = copy(c->scale_inv);
    return own;
  }
  octavo_prologue_call *deep(const octavo_prologue_call *c) {
    octavo_prologue_call *own = copy(c);
    octavo_prologue *prologue = copy(c->prologue);
    if (prologue != nullptr) {
      prologue->in = copy(prologue->in);
      prologue->gamma = copy(prologue->gamma);
      prologue->beta = copy(prologue->beta);
    }
    own->prologue = prologue;
    own->out = copy(c->out);
    own->quantize = deep(c->quantize);
    return own;
  }
  octavo_pack *deep(const octavo_pack *c) {
    octavo_pack *own = copy(c);
    own->in = copy(c->in);
    own->out = copy(c->out);
    return own;
  }
  octavo_scale_from_amax *deep(const octavo_scale_from_amax *c) { return copy(c); }
  octavo_delayed_scale_update *deep(const octavo_delayed_scale_update *c) { return copy(c); }
  octavo_copy *deep(const octavo_copy *c) { return copy(c); }

 private:
  struct Part {
    std::unique_ptr<char[]> bytes;
    size_t size;
  };
  std::vector<Part> parts_;
};

template <typename Call>
void spoil_workspace(void *ctx, const Call &call) {
  if constexpr (requires { call.workspace; }) {
    uint64_t bytes = 0;
    if (call.workspace != nullptr && real->workspace_bytes(ctx, &call, &bytes) == OCTAVO_OK)
      std::memset(call.workspace, kGarbage, bytes);
  }
}

template <typename Call>
cudaStream_t stream_of(const Call *call) {
  return static_cast<cudaStream_t>(call->stream);
}

// A refusal comes too late for the caller: the tests' hosts call what `ability` accepts.
void expect_ok(octavo_status status, const char *what) {
  if (status == OCTAVO_OK) return;
  std::fprintf(stderr, "late kernels: %s answered %u\n", what, status);
  std::abort();
}

template <auto member, typename Call>
octavo_status queued(void *ctx, const Call *call) {
  const auto kept = std::make_shared<Kept>();
  Call *own = kept->deep(call);
  own->stream = nullptr;
  const cudaError_t error = cuda_on_cpu::enqueue(stream_of(call), [ctx, kept, own] {
    spoil_workspace(ctx, *own);
    expect_ok((real->*member)(ctx, own), "a call");
    spoil_workspace(ctx, *own);
  });
  return error == cudaSuccess ? OCTAVO_OK : OCTAVO_INVALID;
}

KernelsTables &tables() {
  static KernelsTables all;
  return all;
}

template <auto member, typename Table, typename Call>
octavo_status settled(void *ctx, const Call *call) {
  cuda_on_cpu::settle_stream(stream_of(call));
  Call own;
  OCTAVO_TAKE(own, call);
  own.stream = nullptr;
  return (tables().get<Table>()->*member)(ctx, &own);
}

template <auto member, typename Call>
auto queued_as(octavo_status (*octavo_kernels::*)(void *, const Call *)) {
  return queued<member, Call>;
}
template <auto member, typename Table, typename Call>
auto settled_as(octavo_status (*Table::*)(void *, const Call *)) {
  return settled<member, Table, Call>;
}

const void *get_extension(void *ctx, octavo_str id) {
  static const DraftCopies drafts([](auto call) {
    constexpr auto member = decltype(call)::member;
    return settled_as<member>(member);
  });
  tables() = KernelsTables(real, ctx);
  return drafts.find(tables(), id);
}

}  // namespace

void be_late(octavo_kernels &table, const octavo_kernels &below) {
  real = &below;
  each_call<octavo_kernels>([&](auto call) {
    constexpr auto member = decltype(call)::member;
    if (below.*member != nullptr) table.*member = queued_as<member>(member);
  });
  table.get_extension = get_extension;
  cuda_on_cpu::share_queue();
}

void settle_late() {
  cuda_on_cpu::settle();
}

}  // namespace octavo::test
