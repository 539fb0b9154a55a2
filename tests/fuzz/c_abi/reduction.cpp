// Collectives of one rank, of ranks that gave up, and of a host that answers anything; and what
// runs on them.
#include "octavo/draft/reduction.h"
#include "machine.h"

namespace octavo::fuzz {
namespace {

// A host's collectives: every rank sends what this one does.
struct Echo {
  octavo_collective table{};
  octavo_status answer = OCTAVO_OK;

  explicit Echo(uint32_t world) {
    table.size = sizeof(table);
    table.kind = OCTAVO_KIND_COLLECTIVE;
    table.ctx = this;
    table.world = world;
    table.run = [](void *ctx, uint32_t, uint32_t dtype, const void *send, uint64_t send_count,
                   void *recv, uint64_t recv_count, void *) {
      const uint64_t bytes = std::min(send_count, recv_count) * width_of(dtype);
      if (bytes > 0) std::memmove(recv, send, bytes);
      return static_cast<Echo *>(ctx)->answer;
    };
    table.broadcast = [](void *ctx, uint32_t, void *, uint64_t, void *) {
      return static_cast<Echo *>(ctx)->answer;
    };
  }
};

}  // namespace

void Machine::collective() {
  octavo_ranks *ranks = nullptr;
  const uint32_t world = script_.defect(1) != 0 ? script_.id() : 1 + script_.below(3);
  const octavo_status status = octavo_ranks_open(world, &ranks);
  expect((status == OCTAVO_OK) == (world >= 1 && world <= 4096), "a world of 1 to 4096",
         std::to_string(world));
  if (ranks == nullptr) return;
  // More ranks would wait for each other, unless they have given up.
  const bool aborted = world > 1 || script_.below(4) == 3;
  if (aborted) octavo_ranks_abort(ranks);
  const uint32_t rank = script_.id();
  const octavo_collective *c = octavo_ranks_collective(ranks, rank);
  expect((c != nullptr) == (rank < world), "a table for every rank", std::to_string(rank));
  if (c != nullptr) {
    const uint64_t send_count = script_.below(16);
    const uint64_t recv_count = script_.below(4) == 3 ? script_.below(16) : send_count;
    static constexpr uint32_t kDtypes[] = {OCTAVO_F32, OCTAVO_U8, OCTAVO_BF16, 0x0863u, 0};
    const uint32_t dtype = kDtypes[script_.below(std::size(kDtypes))];
    const Block send(send_count * width_of(dtype));
    const Block recv(recv_count * width_of(dtype));
    void *from = script_.defect(1) != 0 ? nullptr : send.get();
    const bool in_place = send_count == recv_count && script_.below(4) == 3;
    octavo_status ran = OCTAVO_OK;
    if (script_.below(4) == 0)
      ran = c->broadcast(c->ctx, script_.id(), recv.get(), recv_count * width_of(dtype), nullptr);
    else
      ran = c->run(c->ctx, script_.below(8), dtype, from, send_count, in_place ? from : recv.get(),
                   recv_count, nullptr);
    expect(ran >= OCTAVO_OK && ran <= OCTAVO_INTERNAL, "a defined status", std::to_string(ran));
    expect(!aborted || ran == OCTAVO_FAILED_DEVICE, "OCTAVO_FAILED_DEVICE after an abort",
           std::to_string(ran));
  }
  octavo_ranks_close(ranks);
}

void Machine::reduce() {
  OpenStore *s = ready_store();
  if (s == nullptr) return;
  const OpenRun &r = *s->run;
  Echo echo(script_.defect(1) != 0 ? script_.id() : s->world);
  if (script_.below(8) == 7) echo.answer = OCTAVO_FAILED_DEVICE;
  if (script_.below(8) == 7) echo.table.broadcast = nullptr;
  // What a collective answers without a word is its own silence; the verb that called it speaks.
  Sized<octavo_collective> table(echo.table,
                                 script_.defect(1) != 0 ? script_.below(56) : sizeof(echo.table));
  octavo_collective *c = script_.defect(1) != 0 ? nullptr : table.get();
  const uint32_t kind = script_.below(4);
  if (kind == 0) {
    judge(r, "octavo_store_reduce", [&] { return octavo_store_reduce(s->store, c, nullptr); });
    return;
  }
  if (kind == 1) {
    judge(r, "octavo_store_publish", [&] { return octavo_store_publish(s->store, c, nullptr); });
    return;
  }
  std::vector<uint32_t> parameters;
  std::vector<octavo_parameter_item> items;
  for (uint32_t n = script_.below(4); n > 0; --n) {
    const auto known = static_cast<uint32_t>(r.shapes.size());
    const uint32_t id = known == 0 || script_.defect(1) != 0 ? script_.id() : script_.below(known);
    const auto shape = r.shapes.find(id);
    if (shape != r.shapes.end() && !is_small(shape->second.rows, shape->second.cols)) return;
    parameters.push_back(id);
    items.push_back({id, 0,
                     octavo_store_slots(s->store, OCTAVO_VERB_REDUCE, OCTAVO_OWNER_PARAMETER, id),
                     nullptr});
  }
  uint64_t buffer_bytes = 0;
  uint64_t state_bytes = 0;
  const uint32_t world = echo.table.world;
  octavo_fuzz_script = r.scripted ? &script_ : nullptr;
  const octavo_status status = judge(r, "octavo_reduction_bytes", [&] {
    return octavo_reduction_bytes(r.run, parameters.data(), parameters.size(), world, &buffer_bytes,
                                  &state_bytes);
  });
  octavo_fuzz_script = nullptr;
  // A scripted plan may be another one the next time.
  if (r.scripted || world > 65536) return;
  if (status == OCTAVO_OK && (buffer_bytes > (1 << 22) || state_bytes > (1 << 22))) return;
  const Block send(buffer_bytes);
  const Block recv(buffer_bytes);
  const Block state(state_bytes);
  const bool withheld = script_.defect(1) != 0;
  judge(r, "octavo_reduce_gradients", [&] {
    return octavo_reduce_gradients(r.run, items.data(), items.size(), c, send.get(),
                                   withheld ? nullptr : recv.get(), state.get(), nullptr);
  });
}

}  // namespace octavo::fuzz
