// libFuzzer target of the lock file: any bytes as octavo.lock.
#include <cstdint>
#include <string>
#include <string_view>

#include "sdk/src/base/failure.h"
#include "sdk/src/trust/lock.h"
#include "tests/fuzz/expect.h"

namespace octavo::fuzz {
namespace {

constexpr const char *kPath = "octavo.lock";

bool same(const LockedPlugin &a, const LockedPlugin &b) {
  return a.name == b.name && a.platform == b.platform && a.verdict == b.verdict &&
         lock_drift(a, b).empty();
}

// A file that is accepted says the same after it was written again.
void check_again(const Lock &lock) {
  const std::string text = lock_text(lock);
  try {
    const Lock again = parse_lock(text, kPath);
    expect(again.plugins.size() == lock.plugins.size(), "no entry is lost", text);
    for (const LockedPlugin &p : lock.plugins) {
      bool found = false;
      for (const LockedPlugin &q : again.plugins) found = found || same(p, q);
      expect(found, "every entry reads back", text);
    }
  } catch (const Failure &f) {
    broken("what is written can be read", f.text());
  }
}

}  // namespace
}  // namespace octavo::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace octavo::fuzz;
  try {
    const octavo::Lock lock =
        octavo::parse_lock({reinterpret_cast<const char *>(data), size}, kPath);
    for (const octavo::LockedPlugin &p : lock.plugins)
      expect(!p.name.empty() && !p.verdict.empty(), "no value is missing", p.name);
    check_again(lock);
  } catch (const octavo::Failure &f) {
    expect(f.status() == OCTAVO_INVALID && std::string(f.domain()) == "octavo.lock",
           "a typed refusal", f.text());
    expect(f.text().starts_with(kPath), "a refusal names the file", f.text());
  }
  return 0;
}
