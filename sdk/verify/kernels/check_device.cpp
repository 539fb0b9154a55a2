// The table itself, the memory, ability, workspaces, the order of queued work, and threads.
#include <algorithm>
#include <thread>

#include "cast.h"
#include "checks.h"

namespace octavo::conformance::kernels {
namespace {

struct Verdicts {
  std::vector<uint32_t> decisions;
  octavo_verdict_sink sink{};

  Verdicts() {
    sink.size = sizeof sink;
    sink.kind = OCTAVO_KIND_VERDICT_SINK;
    sink.ctx = this;
    sink.verdict = [](void *ctx, const octavo_verdict *v) {
      static_cast<Verdicts *>(ctx)->decisions.push_back(v->decision);
    };
  }
  bool accepts() const {
    return !decisions.empty() &&
           std::find(decisions.begin(), decisions.end(), OCTAVO_DECLINE) == decisions.end();
  }
};

bool probes(const Bench &bench, octavo_device device) {
  Verdicts verdicts;
  calling(text("probe_device of type ", device.type, ", index ", device.index));
  const octavo_status status = bench.side->table.probe_device(device, &verdicts.sink);
  expect(status == OCTAVO_OK, "probe_device answered ", status_name(status),
         "; a device that is not there is a declining verdict");
  expect(!verdicts.decisions.empty(), "probe_device gave no verdict; expected one or more");
  return verdicts.accepts();
}

constexpr uint32_t kDtypes[] = {OCTAVO_F32,  OCTAVO_BF16,    OCTAVO_F16, OCTAVO_E4M3FN,
                                OCTAVO_E5M2, OCTAVO_E8M0FNU, OCTAVO_I32, OCTAVO_U8};

struct Entry {
  const char *name;
  uint32_t kind;
  bool is_there;
};
std::vector<Entry> entries(const Side &s) {
  const octavo_kernels &t = s.table;
  return {
      {"quantize", OCTAVO_KIND_QUANTIZE, t.quantize != nullptr},
      {"dequantize", OCTAVO_KIND_DEQUANTIZE, t.dequantize != nullptr},
      {"compute_amax", OCTAVO_KIND_COMPUTE_AMAX, t.compute_amax != nullptr},
      {"scale_from_amax", OCTAVO_KIND_SCALE_FROM_AMAX, t.scale_from_amax != nullptr},
      {"delayed_scale_update", OCTAVO_KIND_DELAYED_SCALE_UPDATE, t.delayed_scale_update != nullptr},
      {"gemm", OCTAVO_KIND_GEMM, t.gemm != nullptr},
      {"sum_rows", OCTAVO_KIND_SUM, t.sum_rows != nullptr},
      {"copy", OCTAVO_KIND_COPY, t.copy != nullptr},
      {"quantize_stats", OCTAVO_KIND_QUANTIZE_STATS, t.quantize_stats != nullptr},
      {"prologue or prologue_quantize", OCTAVO_KIND_PROLOGUE_CALL,
       t.prologue != nullptr || t.prologue_quantize != nullptr},
      {"pack", OCTAVO_KIND_PACK, t.pack != nullptr && s.caps.pack_rows > 0}};
}

// Devices that are there and that are not; a layer has none of its own.
void check_devices(const Bench &bench) {
  step("probe_device");
  octavo_device device = bench.tables.device;
  for (int turn = 0; turn < 2; ++turn)
    expect(probes(bench, device), "probe_device accepted index ", device.index,
           " once and declines it now");
  for (const octavo_device absent :
       {octavo_device{device.type, -1}, {device.type, 1 << 20}, {device.type + 0x7000, 0}}) {
    expect(!probes(bench, absent), "probe_device accepts type ", absent.type, ", index ",
           absent.index, "; expected a declining verdict");
    void *ctx = nullptr;
    forget_message();
    const octavo_status status = bench.side->table.open_device(absent, silent_host(), &ctx);
    expect(status != OCTAVO_OK, "open_device opens type ", absent.type, ", index ", absent.index,
           ", which probe_device declines");
    expect(!last_message().empty(), "open_device answered ", status_name(status),
           " without a diagnostic; expected one through octavo_host.diagnose");
  }
}

}  // namespace

void check_table(const Bench &bench) {
  const Side &side = *bench.side;
  const octavo_kernels &t = side.table;
  step("required functions");
  expect(t.kind == OCTAVO_KIND_KERNELS, "the table's kind is ", t.kind, "; expected ",
         OCTAVO_KIND_KERNELS);
  if (bench.below == nullptr) check_devices(bench);
  step("describe");
  const octavo_kernels_caps &caps = side.caps;
  expect(!text_of(caps.id).empty(), "describe states no id");
  expect(caps.alignment >= 1 && caps.alignment <= 4096, "describe states alignment ",
         caps.alignment, "; expected 1 to 4096");
  expect((caps.flags & ~uint64_t{15}) == 0, "describe states flags ", caps.flags,
         "; expected those of octavo_kernels_caps");
  octavo_kernels_caps shorter{};
  std::memset(static_cast<void *>(&shorter), 0x5A, sizeof shorter);
  shorter.size = OCTAVO_SIZE_THROUGH(octavo_kernels_caps, alignment);
  shorter.kind = OCTAVO_KIND_KERNELS_CAPS;
  if (t.describe(side.ctx, &shorter) == OCTAVO_OK)
    expect(shorter.size == OCTAVO_SIZE_THROUGH(octavo_kernels_caps, alignment) &&
               shorter.pack_rows == 0x5A5A5A5A5A5A5A5A,
           "describe wrote beyond the size that the caller gave");
  step("two contexts");
  {
    const Side other(bench.tables, silent_host());
    expect(text_of(other.caps.id) == text_of(caps.id) && other.caps.flags == caps.flags &&
               other.caps.alignment == caps.alignment && other.caps.pack_rows == caps.pack_rows,
           "describe states other capabilities for a second context");
  }
  step("unknown questions");
  for (const uint32_t call : {uint32_t{0}, uint32_t{0x7FF0}, uint32_t{0xFFFFFFFF}})
    expect(side.decision(asking(call, OCTAVO_F32)) == OCTAVO_DECLINE, "ability accepts call ", call,
           ", which nobody knows");
  octavo_quantize unknown{};
  unknown.size = sizeof unknown;
  unknown.kind = 0x7FF0;
  uint64_t bytes = 0;
  calling("workspace_bytes of an unknown kind");
  expect(t.workspace_bytes(side.ctx, &unknown, &bytes) != OCTAVO_OK || bytes == 0,
         "workspace_bytes states ", bytes, " bytes for a kind that nobody knows");
  if (t.get_extension != nullptr) {
    calling("get_extension of an unknown id");
    expect(t.get_extension(side.ctx, OCTAVO_STR("octavo.kernels.nobody/9")) == nullptr,
           "get_extension answers a table for an id that nobody knows");
  }
}

void check_memory(const Bench &bench) {
  const octavo_memory *memory = bench.side->memory;
  void *const ctx = bench.side->ctx;
  if (memory == nullptr) {
    not_offered("octavo.memory/1");
    throw Skip("not offered: octavo.memory/1: the device reads the CPU's memory");
  }
  step("allocate");
  void *data = ctx;
  octavo_status status = memory->allocate(ctx, 0, &data);
  expect(status == OCTAVO_OK && data == nullptr, "allocate of 0 bytes answered ",
         status_name(status), data == nullptr ? "" : " and an address; expected null");
  memory->release(ctx, nullptr);
  std::vector<void *> all;
  for (const uint64_t bytes : {1, 255, 4096, 100001}) {
    status = memory->allocate(ctx, bytes, &data);
    expect(status == OCTAVO_OK && data != nullptr, "allocate of ", bytes, " bytes answered ",
           status_name(status));
    expect(reinterpret_cast<uintptr_t>(data) % 256 == 0, "allocate of ", bytes,
           " bytes gave an address that is no multiple of 256");
    all.push_back(data);
  }
  forget_message();
  status = memory->allocate(ctx, uint64_t{1} << 56, &data);
  expect(status != OCTAVO_OK, "allocate of 2^56 bytes answered OCTAVO_OK");
  expect(status == OCTAVO_NO_RESOURCE, "allocate of 2^56 bytes answered ", status_name(status),
         "; expected OCTAVO_NO_RESOURCE (6)");
  expect(!last_message().empty(),
         "allocate of 2^56 bytes answered OCTAVO_NO_RESOURCE without a diagnostic; expected one "
         "through octavo_host.diagnose");
  step("copy");
  std::vector<uint8_t> out(100001), back(out.size());
  Numbers numbers(bench.seed);
  for (uint8_t &b : out) b = static_cast<uint8_t>(numbers.next());
  auto *large = static_cast<uint8_t *>(all.back());
  bench.side->copy(large, out.data(), out.size());
  bench.side->copy(back.data(), large, out.size());
  expect(back == out, "what was copied to the device and back differs");
  bench.side->copy(all[2], large + 1001, 4096);
  bench.side->copy(back.data(), all[2], 4096);
  expect(std::equal(back.begin(), back.begin() + 4096, out.begin() + 1001),
         "a copy within the device's memory gives other bytes");
  bench.side->copy(back.data() + 5000, out.data(), 100);
  expect(std::equal(out.begin(), out.begin() + 100, back.begin() + 5000),
         "a copy within the host's memory gives other bytes");
  bench.side->copy(large, out.data(), 0);
  bench.side->synchronize();
  for (void *one : all) memory->release(ctx, one);
}

// Every question has an answer, and what the table has no function for is declined. That calls do
// as it says, each check of a call shows.
void check_ability(const Bench &bench) {
  const Side &side = *bench.side;
  const bool is_emulated = (side.caps.flags & OCTAVO_CAPS_EMULATED) != 0;
  for (const Entry &e : entries(side)) {
    step(e.name);
    for (const uint32_t dtype : kDtypes)
      for (uint32_t granularity = 0; granularity < 9; ++granularity)
        for (const uint32_t b : {dtype, OCTAVO_E4M3FN})
          for (uint32_t flags = 0; flags < 8; ++flags) {
            const octavo_ability q = asking(e.kind, dtype, granularity, flags, b, granularity);
            const uint32_t decision = side.decision(q);
            expect(decision != OCTAVO_ACCEPT || !is_emulated,
                   "ability answers OCTAVO_ACCEPT on kernels with OCTAVO_CAPS_EMULATED; expected "
                   "OCTAVO_ACCEPT_EMULATED");
            expect(decision <= OCTAVO_ACCEPT_EMULATED, "ability answers decision ", decision,
                   " for ", e.name);
            expect(e.is_there || decision == OCTAVO_DECLINE, "ability accepts ", e.name, " of ",
                   name_of(dtype), ", but the table has no such function");
            const octavo_ability none = asking(e.kind, 0x7F99, granularity, flags, 0x7F99);
            const bool is_free = e.kind == OCTAVO_KIND_COPY ||
                                 e.kind == OCTAVO_KIND_SCALE_FROM_AMAX ||
                                 e.kind == OCTAVO_KIND_DELAYED_SCALE_UPDATE;
            if (!is_free && dtype == OCTAVO_F32)
              expect(side.decision(none) == OCTAVO_DECLINE, "ability accepts ", e.name,
                     " of dtype 0x7f99, which nobody knows");
          }
  }
}

namespace {

// gemm of [size, size] operands, of which workspace_bytes may read shapes only.
uint64_t gemm_bytes(const Side &side, int64_t m, int64_t n, int64_t k, uint32_t dtype,
                    octavo_status *status) {
  const octavo_tensor a = {nullptr, m, k, k, dtype, 0}, b = {nullptr, n, k, k, dtype, 0};
  octavo_tensor d = {nullptr, m, n, n, OCTAVO_F32, 0};
  float one = 1;
  const octavo_scale scale = OCTAVO_SCALE(&one, 0, OCTAVO_F32, OCTAVO_PER_TENSOR);
  auto c = octavo::make<octavo_gemm>(OCTAVO_KIND_GEMM);
  c.a = &a, c.b = &b, c.d = &d;
  if (dtype == OCTAVO_E4M3FN) c.a_scale_inv = c.b_scale_inv = &scale;
  uint64_t bytes = 0;
  calling(text("workspace_bytes of a gemm ", m, "x", n, "x", k));
  *status = side.table.workspace_bytes(side.ctx, &c, &bytes);
  return bytes;
}

}  // namespace

void check_workspace(const Bench &bench) {
  const Side &side = *bench.side;
  bool any = false;
  for (const uint32_t dtype : {OCTAVO_E4M3FN, OCTAVO_F32, OCTAVO_BF16}) {
    if (side.decision(asking(OCTAVO_KIND_GEMM, dtype, 0, 0, dtype)) == OCTAVO_DECLINE) continue;
    any = true;
    step(text("gemm of ", name_of(dtype)));
    octavo_status status = OCTAVO_OK;
    for (int dimension = 0; dimension < 3; ++dimension) {
      const auto at = [&](int64_t size) {
        const uint64_t bytes =
            gemm_bytes(side, dimension == 0 ? size : 512, dimension == 1 ? size : 256,
                       dimension == 2 ? size : 768, dtype, &status);
        expect(status == OCTAVO_OK, "workspace_bytes answered ", status_name(status),
               " for a gemm that ability accepts: ", last_message());
        return bytes;
      };
      const char *names[] = {"M", "N", "K"};
      const uint64_t one = at(256), two = at(512), three = at(768), eight = at(2048);
      expect(two - one == three - two && eight - three == 5 * (two - one),
             "workspace_bytes is not affine over multiples of 256 in ", names[dimension], ": ", one,
             ", ", two, ", ", three, " and ", eight, " bytes for 256, 512, 768 and 2048");
      uint64_t before = 0;
      for (int64_t size = 16; size <= 768; size += 16) {
        const uint64_t bytes = at(size);
        expect(bytes >= before, "workspace_bytes decreases when ", names[dimension], " grows to ",
               size, ": from ", before, " to ", bytes);
        before = bytes;
      }
    }
  }
  if (!any) {
    not_offered("workspace_bytes of gemm");
    throw Skip("not offered: gemm, whose workspace this check measures");
  }
}

// Work that is queued: calls in a row without a wait, each on what the one before wrote, and copies
// that have to wait for them.
void check_order(const Bench &bench) {
  const Side &side = *bench.side;
  if (side.table.copy == nullptr) {
    not_offered("copy, with which this check orders calls");
    throw Skip("not offered: copy, with which this check orders calls");
  }
  constexpr uint64_t kBytes = 1 << 16;
  Arena arena(side, 8 * kBytes + 2 * Arena::kPage);
  const auto queue = [&](uint64_t to, const void *from) {
    auto c = std::make_unique<octavo_copy>();
    c->size = sizeof *c;
    c->kind = OCTAVO_KIND_COPY;
    c->out = arena.data() + to * kBytes;
    c->in = from;
    c->bytes = kBytes;
    calling("copy, queued");
    const octavo_status status = side.table.copy(side.ctx, c.get());
    expect(status == OCTAVO_OK, "copy answered ", status_name(status));
    std::memset(static_cast<void *>(c.get()), 0xA5, sizeof *c);
  };
  std::vector<uint8_t> data(kBytes), found(kBytes), other(kBytes, 0x11);
  Numbers numbers(bench.seed);
  for (uint8_t &b : data) b = static_cast<uint8_t>(numbers.next());
  for (int turn = 0; turn < 4; ++turn) {
    step("calls in a row");
    side.copy(arena.data(), data.data(), kBytes);
    for (uint64_t i = 0; i < 6; ++i) queue(i + 1, arena.data() + i * kBytes);
    calling("octavo.memory/1: copy behind queued calls");
    side.copy(found.data(), arena.data() + 6 * kBytes, kBytes);
    expect(found == data,
           "memory.copy read before the calls that were queued had written: it "
           "starts after all work queued on any stream");
    step("a copy to the device behind queued calls");
    queue(2, arena.data());
    side.copy(arena.data(), other.data(), kBytes);
    side.copy(found.data(), arena.data() + 2 * kBytes, kBytes);
    expect(found == data, "memory.copy wrote what a queued call had still to read");
    queue(3, nullptr);
    side.copy(arena.data() + 3 * kBytes, data.data(), kBytes);
    side.copy(found.data(), arena.data() + 3 * kBytes, kBytes);
    expect(found == data, "a call that was queued before a memory.copy wrote after it");
    if (side.memory == nullptr || !arena.has_guards()) continue;
    step("synchronize");
    queue(5, arena.data());
    side.synchronize();
    expect(std::memcmp(arena.data() + 5 * kBytes, other.data(), kBytes) == 0,
           "synchronize returned before a queued call had written");
    side.copy(arena.data(), data.data(), kBytes);
  }
  if (side.table.quantize == nullptr ||
      side.decision(asking(OCTAVO_KIND_QUANTIZE, OCTAVO_E4M3FN)) == OCTAVO_DECLINE)
    return;
  // One slot for both calls: the second one adds to what the first one recorded.
  step("two casts that record in one slot");
  const Grid first = cast_input(OCTAVO_F32, 30, 50, bench.seed);
  Grid second = first;
  second.put(7, 7, 900.0f);
  for (const bool larger_first : {true, false}) {
    Operands m(side, arena, Place::kEnd, "quantize twice into one amax");
    float *amax = m.values_out("amax", {0.0f});
    octavo_quantize *calls[2];
    for (int i = 0; i < 2; ++i) {
      Cast cast{.in = (i == 0) == larger_first ? second : first};
      cast.amax = cast.nonfinite = false;
      calls[i] = cast.describe(m);
      calls[i]->amax = amax;
      calls[i]->workspace = m.workspace(calls[i]);
    }
    // Operands overwrites what it made after a call, so the second one keeps its own.
    octavo_tensor in = *calls[1]->in, out = *calls[1]->out;
    octavo_scale scale = *calls[1]->out_scale_inv;
    octavo_quantize kept = *calls[1];
    kept.in = &in, kept.out = &out, kept.out_scale_inv = &scale;
    octavo_status status = m.call(&octavo_kernels::quantize, calls[0]);
    if (status == OCTAVO_OK) status = m.call(&octavo_kernels::quantize, &kept);
    expect(status == OCTAVO_OK, "quantize answered ", status_name(status), ": ", last_message());
    const float recorded = m.results().front().grid.at(0, 0);
    expect(recorded == 900.0f, "two casts recorded the amax ", recorded,
           " in one slot; expected 900");
  }
}

// A second thread, and a host that lends threads: neither changes a bit.
void check_threads(const Bench &bench) {
  const Side &side = *bench.side;
  const Side threaded(bench.tables, threaded_host());
  const bool can_cast =
      side.decision(asking(OCTAVO_KIND_QUANTIZE, OCTAVO_E4M3FN)) != OCTAVO_DECLINE;
  if (!can_cast) {
    not_offered("quantize to float8_e4m3fn, with which this check uses threads");
    throw Skip("not offered: quantize to float8_e4m3fn, with which this check uses threads");
  }
  Cast cast{.in = cast_input(OCTAVO_F32, 257, 190, bench.seed + 20)};
  cast.out_t = true;
  const auto run = [&](const Side &on, Arena &arena, uint64_t turn) {
    Operands m(on, arena, Place::kEnd, "quantize");
    Cast own = cast;
    own.in.put(3, 3, static_cast<float>(turn));
    octavo_quantize *c = own.describe(m);
    c->workspace = m.workspace(c);
    const octavo_status status = m.call(&octavo_kernels::quantize, c);
    expect(status == OCTAVO_OK, "quantize answered ", status_name(status), ": ", last_message());
    return m.results();
  };
  constexpr uint64_t kBytes = uint64_t{4} << 20;
  Arena arena(side, kBytes), second(side, kBytes), of_threaded(threaded, kBytes);
  step("a host that lends threads");
  for (uint64_t turn = 0; turn < 3; ++turn) {
    const std::string problem = differing(run(side, arena, turn), run(threaded, of_threaded, turn));
    expect(problem.empty(), "with octavo.parallel/1 of the host: ", problem);
  }
  step("two threads");
  std::vector<Results> alone;
  for (uint64_t turn = 0; turn < 20; ++turn) alone.push_back(run(side, arena, turn));
  std::string problems[2];
  const auto loop = [&](int index) {
    try {
      for (uint64_t turn = 0; turn < 20; ++turn) {
        const std::string problem =
            differing(alone[turn], run(side, index == 0 ? arena : second, turn));
        if (!problem.empty()) problems[index] = problem;
      }
    } catch (const std::exception &failure) {
      problems[index] = failure.what();
    }
  };
  std::thread other(loop, 1);
  loop(0);
  other.join();
  for (const std::string &problem : problems)
    expect(problem.empty(), "while another thread called quantize: ", problem);
}

}  // namespace octavo::conformance::kernels
