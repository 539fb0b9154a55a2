// Stores: opened for any rank of any world, used with any number, saved, loaded and damaged.
#include <filesystem>
#include <fstream>

#include "machine.h"

namespace octavo::fuzz {
namespace {

namespace fs = std::filesystem;

// The most bytes of one store.
constexpr int64_t kMostBytes = 4 << 20;

bool has_small_slots(const octavo_run *r) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < octavo_run_slot_count(r); ++i) {
    const octavo_slot &s = *octavo_run_slot(r, i);
    if (s.rows > kMostBytes || s.cols > kMostBytes || s.rows * s.cols > kMostBytes) return false;
    bytes += s.rows * s.cols * 4;
  }
  return bytes <= kMostBytes;
}

}  // namespace

void Machine::open_store() {
  OpenStore &s = any_store();
  OpenRun &r = any_run();
  const uint32_t defect = script_.defect(3);
  if (r.run != nullptr && !has_small_slots(r.run)) return;
  close_store(s);
  octavo_store *out = nullptr;
  uint32_t rank = 0;
  uint32_t world = 1;
  if (defect == 1) rank = script_.id();
  if (defect <= 2 && script_.below(4) == 3) world = script_.id();
  if (world > 64 && world <= 65536) world = 64;
  const octavo_status status = judge(
      r, "octavo_store_open",
      [&] { return octavo_store_open_sharded(r.run, rank, world, defect == 3 ? nullptr : &out); },
      defect != 3);
  if (status != OCTAVO_OK || out == nullptr) return;
  s.store = out;
  s.run = &r;
  s.world = world;
}

void Machine::close_store() {
  close_store(any_store());
}

void Machine::close_store(OpenStore &s) {
  octavo_store_close(s.store);
  if (s.store != nullptr) closed_store_ = s.store;
  s = OpenStore();
}

void Machine::use_store() {
  OpenStore &s = any_store();
  if (s.store == nullptr) return;
  const uint32_t first = script_.id();
  const uint32_t second = script_.id();
  const auto call = [&](const char *name, auto &&body) { return judge(*s.run, name, body); };
  switch (script_.below(7)) {
    case 0:
      if (has_small_slots(s.run->run))
        call("octavo_store_extend", [&] { return octavo_store_extend(s.store); });
      break;
    case 1: call("octavo_store_clear", [&] { return octavo_store_clear(s.store, first); }); break;
    case 2:  // one byte too few would be the caller's fault, so there is room for any shape
      s.natives.emplace_back(uint64_t{1} << 16);
      call("octavo_store_native", [&] {
        return octavo_store_native(s.store, first, second,
                                   script_.defect(1) != 0 ? nullptr : s.natives.back().get());
      });
      break;
    case 3: {
      void *const *list = octavo_store_slots(s.store, script_.id(), first, second);
      expect(list != nullptr, "a list is never null");
      break;
    }
    case 4:
      expect(octavo_store_bytes(s.store, first) <= octavo_store_bytes(s.store, 0), "parts of all");
      break;
    case 5:
      octavo_store_owner(s.store, first);
      if (first >= octavo_run_slot_count(s.run->run))
        expect(octavo_store_address(s.store, first) == nullptr, "no memory for no slot");
      break;
    default: octavo_store_address(s.store, first); break;
  }
}

OpenStore *Machine::ready_store() {
  OpenStore &s = any_store();
  if (s.store == nullptr || !has_small_slots(s.run->run)) return nullptr;
  const OpenRun &r = *s.run;
  if (octavo_run_backend(r.run) == nullptr) return nullptr;
  if (judge(r, "octavo_store_extend", [&] { return octavo_store_extend(s.store); }) != OCTAVO_OK)
    return nullptr;
  for (uint32_t i = 0; i < octavo_run_slot_count(r.run); ++i) {
    const octavo_slot &slot = *octavo_run_slot(r.run, i);
    if ((slot.flags & OCTAVO_SLOT_NATIVE) == 0) continue;
    if (slot.owner_kind != OCTAVO_OWNER_PARAMETER) return nullptr;
    s.natives.emplace_back(static_cast<uint64_t>(slot.rows * slot.cols) * width_of(slot.dtype),
                           0x3C);
    if (judge(r, "octavo_store_native", [&] {
          return octavo_store_native(s.store, slot.owner, slot.role, s.natives.back().get());
        }) != OCTAVO_OK)
      return nullptr;
  }
  return &s;
}

void Machine::checkpoint() {
  const OpenStore &s = any_store();
  if (s.store == nullptr) return;
  use_work_folder();
  const uint32_t defect = script_.defect(4);
  const std::string directory = work_folder() + (defect == 1 ? "/other" : "/checkpoint");
  const octavo_str given = defect == 2 ? octavo_str{nullptr, 3} : str(directory);
  if (script_.below(2) == 0) {
    judge(*s.run, "octavo_store_save",
          [&] { return octavo_store_save(s.store, given, script_.word()); });
    return;
  }
  if (defect == 3) {  // some byte of some file is another one
    std::error_code ignored;
    for (const auto &entry : fs::directory_iterator(directory, ignored)) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(script_.byte() * 8 + script_.byte());
      file.put(static_cast<char>(script_.byte()));
    }
  }
  uint64_t step = 0;
  judge(*s.run, "octavo_store_load",
        [&] { return octavo_store_load(s.store, given, defect == 4 ? nullptr : &step); });
}

}  // namespace octavo::fuzz
