// Describing a model: parameters and linears, good and bad ones, and seals in between.
#include <memory>

#include "machine.h"

namespace octavo::fuzz {
namespace {

constexpr uint32_t kDtypes[] = {OCTAVO_F32, OCTAVO_BF16,   OCTAVO_F16, OCTAVO_F32,
                                OCTAVO_I32, OCTAVO_E4M3FN, 0x0863u,    0};

std::string name_of(const char *prefix, uint32_t number) {
  return prefix + std::to_string(number);
}

// A place for a verdict, of any age; or null.
class Answer {
 public:
  explicit Answer(uint32_t defect) {
    if (defect == 1) return;
    octavo_verdict v{};
    v.kind = OCTAVO_KIND_VERDICT;
    verdict_ = std::make_unique<Sized<octavo_verdict>>(v, defect == 2 ? 12 : sizeof(v));
  }
  octavo_verdict *get() const { return verdict_ == nullptr ? nullptr : verdict_->get(); }
  bool is_whole() const { return verdict_ != nullptr && get()->size == sizeof(octavo_verdict); }

 private:
  std::unique_ptr<Sized<octavo_verdict>> verdict_;
};

}  // namespace

octavo_status Machine::add_parameter(OpenRun &r, const std::string &name, const Shape &shape,
                                     uint32_t flags, uint32_t defect) {
  octavo_parameter_desc d{};
  d.kind = OCTAVO_KIND_PARAMETER_DESC;
  d.name = str(name);
  d.rows = shape.rows;
  d.cols = shape.cols;
  d.dtype = d.gradient_dtype = shape.dtype;
  d.flags = flags;
  uint32_t size = sizeof(d);
  if (defect == 3) size = script_.below(sizeof(d) + 16);
  if (defect == 4) d.reserved = 1;
  if (defect == 5) d.flags = script_.word();
  if (defect == 6) d.name = {nullptr, 5};
  if (defect == 7) d.gradient_dtype = kDtypes[script_.below(std::size(kDtypes))];
  if (defect == 8) d.kind = script_.byte();
  const Sized<octavo_parameter_desc> desc(d, size);
  const Answer answer(defect);
  uint32_t id = 12345;
  const octavo_status status = judge(
      r, "octavo_add_parameter",
      [&] {
        return octavo_add_parameter(r.run, defect == 9 ? nullptr : desc.get(), answer.get(),
                                    defect == 10 ? nullptr : &id);
      },
      defect != 9 && defect != 10);
  if (status == OCTAVO_OK && id != OCTAVO_NONE) r.shapes[id] = shape;
  if (status == OCTAVO_OK && answer.is_whole())
    expect((answer.get()->decision == OCTAVO_DECLINE) == (id == OCTAVO_NONE) || r.scripted,
           "an id or a refusal", std::string(view(answer.get()->text)));
  return status;
}

octavo_status Machine::add_linear(OpenRun &r, const std::string &name, uint32_t weight,
                                  uint32_t defect) {
  octavo_linear_desc d{};
  d.kind = OCTAVO_KIND_LINEAR_DESC;
  d.name = str(name);
  d.weight = weight;
  uint32_t size = sizeof(d);
  if (defect == 3) size = script_.below(sizeof(d) + 16);
  if (defect == 4) d.flags = script_.word();
  if (defect == 6) d.name = {nullptr, 5};
  if (defect == 8) d.kind = script_.byte();
  const Sized<octavo_linear_desc> desc(d, size);
  const Answer answer(defect);
  uint32_t id = 12345;
  const octavo_status status = judge(
      r, "octavo_add_linear",
      [&] {
        return octavo_add_linear(r.run, defect == 9 ? nullptr : desc.get(), answer.get(),
                                 defect == 10 ? nullptr : &id);
      },
      defect != 9 && defect != 10);
  if (status == OCTAVO_OK && id != OCTAVO_NONE) r.weights[id] = size >= 28 ? weight : 0;
  if (status == OCTAVO_OK && answer.is_whole())
    expect(!view(answer.get()->text).empty() || r.scripted, "a verdict has a text", name);
  return status;
}

void Machine::add_parameter() {
  OpenRun &r = any_run();
  const Shape shape{script_.extent(), script_.extent(), kDtypes[script_.below(std::size(kDtypes))]};
  const uint32_t flags = script_.below(4);
  const std::string name = script_.text();
  const uint32_t defect = script_.defect(10);
  octavo_fuzz_script = &script_;
  add_parameter(r, name, shape, flags, defect);
  octavo_fuzz_script = nullptr;
}

void Machine::add_linear() {
  OpenRun &r = any_run();
  const uint32_t weight = script_.id();
  const std::string name = script_.text();
  const uint32_t defect = script_.defect(10);
  octavo_fuzz_script = &script_;
  add_linear(r, name, weight, defect);
  octavo_fuzz_script = nullptr;
}

void Machine::seal() {
  const OpenRun &r = any_run();
  octavo_fuzz_script = script_.below(2) == 1 ? &script_ : nullptr;
  judge(r, "octavo_seal", [&] { return octavo_seal(r.run); });
  octavo_fuzz_script = nullptr;
}

// A few layers that a backend would take, sealed, so that deeper calls are reached often.
void Machine::describe() {
  OpenRun &r = any_run();
  if (r.run == nullptr || r.shapes.size() > 64) return;
  for (uint32_t n = 1 + script_.below(3); n > 0; --n) {
    const auto number = static_cast<uint32_t>(r.shapes.size());
    Shape shape{1 + script_.below(40), 1 + script_.below(40), kDtypes[script_.below(4)]};
    if (script_.below(4) == 0) shape.rows = shape.cols = 16;
    const uint32_t flags = script_.below(8) == 7
                               ? OCTAVO_PARAMETER_LINEAR_WEIGHT | OCTAVO_PARAMETER_FROZEN
                               : uint32_t{OCTAVO_PARAMETER_LINEAR_WEIGHT};
    const size_t before = r.shapes.size();
    add_parameter(r, name_of("weight.", number), shape, flags, 0);
    if (r.shapes.size() == before) continue;
    add_linear(r, name_of("layer.", number), r.shapes.rbegin()->first, 0);
  }
  judge(r, "octavo_seal", [&] { return octavo_seal(r.run); });
}

}  // namespace octavo::fuzz
