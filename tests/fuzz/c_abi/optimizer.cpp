// The optimizer's verbs: steps, norms, and plain values in and out.
#include "machine.h"

#include "octavo/draft/optimizer.h"

namespace octavo::fuzz {
namespace {

// Parameters of a step, each with its list.
std::vector<octavo_parameter_item> items_of(Script &script, const OpenStore &s,
                                            const float *hyper) {
  std::vector<octavo_parameter_item> items;
  const auto known = static_cast<uint32_t>(s.run->shapes.size());
  for (uint32_t p = 0; p < known && p < 4; ++p) {
    if (script.below(4) == 3) continue;
    const uint32_t id = script.defect(1) != 0 ? script.id() : p;
    bool is_twice = false;
    for (const octavo_parameter_item &other : items) is_twice = is_twice || other.parameter == id;
    if (is_twice) continue;
    items.push_back(
        {id, 0, octavo_store_slots(s.store, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id),
         hyper});
  }
  return items;
}

bool are_small(const OpenRun &r) {
  for (const auto &[id, shape] : r.shapes)
    if (!is_small(shape.rows, shape.cols)) return false;
  return true;
}

// The workspace of these parameters; nothing where they are refused.
bool workspace_of(const octavo_optimizer &o, const octavo_session *session,
                  const std::vector<octavo_parameter_item> &items, Block *out) {
  std::vector<uint32_t> ids;
  for (const octavo_parameter_item &item : items) ids.push_back(item.parameter);
  uint64_t bytes = 0;
  if (o.workspace_bytes(session, ids.data(), ids.size(), &bytes) != OCTAVO_OK) return false;
  expect(bytes < (1 << 28), "a workspace in proportion to the parameters", std::to_string(bytes));
  *out = Block(bytes);
  return true;
}

}  // namespace

void Machine::step() {
  OpenStore *s = ready_store();
  if (s == nullptr || s->world != 1 || !are_small(*s->run)) return;
  const OpenRun &r = *s->run;
  const octavo_optimizer *o = static_cast<const octavo_optimizer *>(
      octavo_run_interface(r.run, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  if (o == nullptr) return;
  const Block hyper(sizeof(float) * OCTAVO_HYPER_COUNT);
  const Block skip(sizeof(float));
  const float values[] = {
      static_cast<float>(script_.real()), 0.9f, 0.999f, 1e-8f, 0.1f, 1.0f, 0, 0};
  std::memcpy(hyper.get(), values, sizeof(values));
  const auto items = items_of(script_, *s, static_cast<const float *>(hyper.get()));
  Block workspace;
  bool known = false;
  judge(r, "workspace_bytes", [&]() -> octavo_status {
    known = workspace_of(*o, octavo_run_session(r.run), items, &workspace);
    return OCTAVO_OK;
  });
  if (script_.below(3) == 2) {
    const Block sum(sizeof(float));
    octavo_norm_call c{sizeof(c),    OCTAVO_KIND_NORM_CALL,           nullptr,        items.data(),
                       items.size(), static_cast<float *>(sum.get()), workspace.get()};
    const octavo_status status = judge(
        r, "sum_of_squares", [&] { return o->sum_of_squares(octavo_run_session(r.run), &c); });
    expect(known || status != OCTAVO_OK, "parameters that workspace_bytes refuses are refused");
    return;
  }
  const bool skips = script_.below(2) == 1;
  octavo_optimizer_call c{sizeof(c),      OCTAVO_KIND_OPTIMIZER_CALL,
                          nullptr,        items.data(),
                          items.size(),   skips ? static_cast<const float *>(skip.get()) : nullptr,
                          workspace.get()};
  const octavo_status status =
      judge(r, "optimizer_step", [&] { return o->optimizer_step(octavo_run_session(r.run), &c); });
  expect(known || status != OCTAVO_OK, "parameters that workspace_bytes refuses are refused");
}

void Machine::transfer() {
  OpenStore *s = ready_store();
  if (s == nullptr || s->world != 1 || !are_small(*s->run)) return;
  const OpenRun &r = *s->run;
  const octavo_optimizer *o = static_cast<const octavo_optimizer *>(
      octavo_run_interface(r.run, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  if (o == nullptr) return;
  const uint32_t count = static_cast<uint32_t>(r.shapes.size());
  const uint32_t id = count == 0 || script_.defect(1) != 0 ? script_.id() : script_.below(count);
  const auto shape = r.shapes.find(id);
  Shape plain = shape == r.shapes.end() ? Shape{3, 3} : shape->second;
  plain.dtype = script_.defect(1) != 0  ? OCTAVO_E5M2
                : script_.below(2) == 0 ? OCTAVO_F32
                                        : OCTAVO_BF16;
  if (script_.defect(1) != 0) ++plain.rows;
  Matrix m(plain.rows, plain.cols, plain.dtype);
  Block workspace;
  octavo_parameter_call c{};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_PARAMETER_CALL;
  c.parameter = id;
  c.role = 1 + script_.below(14);
  c.plain = script_.defect(1) != 0 ? nullptr : &m.tensor;
  c.slots = octavo_store_slots(s->store, OCTAVO_VERB_OPTIMIZER_STEP, OCTAVO_OWNER_PARAMETER, id);
  const bool reads = script_.below(2) == 0;
  judge(r, "workspace_bytes", [&]() -> octavo_status {
    workspace_of(*o, octavo_run_session(r.run), {{id, 0, nullptr, nullptr}}, &workspace);
    return OCTAVO_OK;
  });
  c.workspace = workspace.get();
  judge(r, reads ? "read_parameter" : "write_parameter", [&] {
    return reads ? o->read_parameter(octavo_run_session(r.run), &c)
                 : o->write_parameter(octavo_run_session(r.run), &c);
  });
}

void Machine::prepare() {
  const OpenRun &r = any_run();
  const octavo_optimizer *o = r.run == nullptr
                                  ? nullptr
                                  : static_cast<const octavo_optimizer *>(octavo_run_interface(
                                        r.run, OCTAVO_STR(OCTAVO_OPTIMIZER_ID)));
  if (o == nullptr) return;
  const uint32_t sums = script_.below(4);
  const uint32_t groups = script_.defect(1) != 0 ? 65 : script_.below(3);
  Block sum(sums * sizeof(float));
  for (uint32_t i = 0; i < sums; ++i)
    static_cast<float *>(sum.get())[i] = static_cast<float>(script_.real());
  const Block scalars(3 * sizeof(float));
  auto *scalar = static_cast<float *>(scalars.get());
  std::vector<Block> memory;
  std::vector<float *> hyper;
  for (uint32_t i = 0; i < groups; ++i) {
    memory.emplace_back(sizeof(float) * OCTAVO_HYPER_COUNT);
    hyper.push_back(static_cast<float *>(memory.back().get()));
  }
  const uint8_t wanted = script_.byte();
  octavo_prepare_call c{};
  c.size = sizeof(c);
  c.kind = OCTAVO_KIND_PREPARE_CALL;
  c.sum = static_cast<const float *>(sum.get());
  c.sum_count = sums;
  c.nonfinite = wanted & 1 ? scalar : nullptr;
  c.norm = wanted & 2 ? scalar + 1 : nullptr;
  c.skip = wanted & 4 ? scalar + 2 : nullptr;
  c.hyper = hyper.data();
  c.count = groups;
  c.factor = static_cast<float>(script_.real());
  c.max_norm = static_cast<float>(script_.real());
  judge(r, "prepare_step", [&] { return o->prepare_step(octavo_run_session(r.run), &c); });
}

}  // namespace octavo::fuzz
