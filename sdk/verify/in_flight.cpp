// The page of what is being called; writers hold a lock, since two threads may call verbs at once.
#include "in_flight.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "matrix.h"
#include "report.h"

namespace octavo::conformance {
namespace {

InFlight unshared{"", -1, 0, 0, "", 0};
InFlight *page = &unshared;
std::mutex mutex;

}  // namespace

InFlight &in_flight() {
  return *page;
}

void share_in_flight() {
  void *shared =
      mmap(nullptr, sizeof(InFlight), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Failure(text("mmap of a shared page: ", std::strerror(errno)));
  page = static_cast<InFlight *>(shared);
  *page = unshared;
}

void calling(const std::string &verb, int64_t rows, uint32_t x_dtype, uint32_t y_dtype) {
  const std::lock_guard<std::mutex> lock(mutex);
  const size_t size = std::min(verb.size(), sizeof page->verb - 1);
  std::memcpy(page->verb, verb.data(), size);
  page->verb[size] = 0;
  page->rows = rows;
  page->x_dtype = x_dtype;
  page->y_dtype = y_dtype;
}

std::string in_flight_text(const InFlight &now) {
  // The plugin shares the page: its end is not taken for granted.
  std::string all(now.verb, strnlen(now.verb, sizeof now.verb));
  if (all.empty()) return "no call";
  if (now.rows < 0) return all;
  all += text(" (M = ", now.rows);
  if (now.x_dtype != 0) all += text(", x ", dtype_name(now.x_dtype));
  if (now.y_dtype != 0) all += text(", y ", dtype_name(now.y_dtype));
  return all + ")";
}

}  // namespace octavo::conformance
