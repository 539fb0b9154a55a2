// Opening both sides, and pages that may not be touched.
#include "side.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "../in_flight.h"
#include "kernels/cpu/table.h"

namespace octavo::conformance::kernels {
namespace {

std::mutex message_mutex;
std::string message;
uint64_t messages = 0;

void keep(void *, const octavo_diagnostic *d) {
  const std::lock_guard<std::mutex> lock(message_mutex);
  ++messages;
  message = text_of(d->text);
}
const void *no_extension(void *, octavo_str) {
  return nullptr;
}

// Ranges of another size than anybody would choose, the last one first, on two threads.
octavo_status parallel_for(void *, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(void *, int64_t, int64_t), void *arg) {
  const int64_t step = std::max<int64_t>(std::max<int64_t>(grain, 1), (end - begin) / 5);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t at = begin; at < end; at += step) ranges.emplace_back(at, std::min(at + step, end));
  const auto run = [&](size_t first) {
    for (size_t i = ranges.size(); i > 0; --i)
      if (i % 2 == first) body(arg, ranges[i - 1].first, ranges[i - 1].second);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  return OCTAVO_OK;
}

const void *with_threads(void *, octavo_str id) {
  static const octavo_parallel parallel = {sizeof(octavo_parallel), OCTAVO_KIND_PARALLEL, nullptr,
                                           parallel_for};
  return text_of(id) == OCTAVO_PARALLEL_ID ? &parallel : nullptr;
}

octavo_host host_with(const void *(*get_extension)(void *, octavo_str)) {
  auto h = octavo::make<octavo_host>(OCTAVO_KIND_HOST);
  h.abi_major = OCTAVO_ABI_MAJOR;
  h.abi_minor = OCTAVO_ABI_MINOR;
  h.diagnose = keep;
  h.get_extension = get_extension;
  return h;
}

bool is_readable(const void *address) {
  char byte = 0;
  iovec here = {&byte, 1}, there = {const_cast<void *>(address), 1};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

}  // namespace

const octavo_host *silent_host() {
  static const octavo_host host = host_with(no_extension);
  return &host;
}
const octavo_host *threaded_host() {
  static const octavo_host host = host_with(with_threads);
  return &host;
}
std::string last_message() {
  const std::lock_guard<std::mutex> lock(message_mutex);
  return message;
}

uint64_t message_count() {
  const std::lock_guard<std::mutex> lock(message_mutex);
  return messages;
}

void forget_message() {
  const std::lock_guard<std::mutex> lock(message_mutex);
  message.clear();
}

Side::Side(const Tables &tables, const octavo_host *host)
    : memory(tables.memory), device(tables.device) {
  octavo_status status = OCTAVO_OK;
  if (tables.run != nullptr) {
    open_run(*tables.run, host);
  } else {
    std::memcpy(&table, tables.kernels, std::min<size_t>(tables.kernels->size, sizeof table));
    calling("open_device");
    status = table.open_device(tables.device, host, &ctx);
    expect(status == OCTAVO_OK, "open_device answered ", status_name(status), " for a device that ",
           "probe_device accepts: ", last_message());
  }
  caps.size = sizeof caps;
  caps.kind = OCTAVO_KIND_KERNELS_CAPS;
  calling("describe");
  status = table.describe(ctx, &caps);
  expect(status == OCTAVO_OK, "describe answered ", status_name(status));
  calling("get_extension");
  drafts = KernelsTables(&table, ctx);
  if (table.get_extension == nullptr) return;
  const auto *offered =
      static_cast<const octavo_streams *>(table.get_extension(ctx, OCTAVO_STR(OCTAVO_STREAMS_ID)));
  if (offered == nullptr) return;
  expect(offered->kind == OCTAVO_KIND_STREAMS && offered->size >= sizeof *offered &&
             offered->make_stream != nullptr && offered->destroy_stream != nullptr &&
             offered->order != nullptr && offered->wait != nullptr && offered->call_host != nullptr,
         "the table of ", OCTAVO_STREAMS_ID, " lacks a function");
  expect((offered->begin_capture == nullptr) == (offered->end_capture == nullptr) &&
             (offered->begin_capture == nullptr) == (offered->launch == nullptr) &&
             (offered->begin_capture == nullptr) == (offered->destroy_graph == nullptr) &&
             (offered->current_device == nullptr) == (offered->set_current_device == nullptr),
         "the table of ", OCTAVO_STREAMS_ID,
         " has a part of the functions of graphs, or of the "
         "current device");
  streams = offered;
}

Side::~Side() {
  if (run_ != nullptr) {
    octavo_close(run_);
  } else {
    table.close_device(ctx);
  }
}

void Side::open_run(const octavo_open_desc &as, const octavo_host *host) {
  octavo_open_desc desc = as;
  desc.device = {OCTAVO_DEVICE_AUTO, 0};  // as device.kind says
  desc.host = host;
  calling("open_layer, or the library and its symbol");
  const octavo_status status = octavo_open(&desc, &run_);
  const octavo_session_desc *session =
      status == OCTAVO_OK ? octavo_run_session_desc(run_) : nullptr;
  expect(session != nullptr, "octavo_open answered ", status_name(status),
         " for a run on the layer: ", last_message());
  table = *session->kernels;
  ctx = session->kernels_ctx;
  device = session->device;
  memory =
      static_cast<const octavo_memory *>(octavo_run_interface(run_, OCTAVO_STR(OCTAVO_MEMORY_ID)));
}

void Side::copy(void *to, const void *from, uint64_t bytes) const {
  if (memory == nullptr) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  const octavo_status status = memory->copy(ctx, to, from, bytes);
  expect(status == OCTAVO_OK, "octavo.memory/1: copy of ", bytes, " bytes answered ",
         status_name(status), ": ", last_message());
}

void Side::synchronize() const {
  if (memory == nullptr) return;
  const octavo_status status = memory->synchronize(ctx);
  expect(status == OCTAVO_OK, "octavo.memory/1: synchronize answered ", status_name(status), ": ",
         last_message());
}

uint32_t Side::decision(octavo_ability question) const {
  question.size = sizeof question;
  question.kind = OCTAVO_KIND_ABILITY;
  const octavo_status status = table.ability(ctx, &question);
  expect(status == OCTAVO_OK, "ability answered ", status_name(status), " for call ", question.call,
         "; expected OCTAVO_OK and a decision");
  return question.decision;
}

Arena::Arena(const Side &side, uint64_t bytes) : side_(side), given_bytes_(bytes), bytes_(bytes) {
  if (side.memory == nullptr) {
    given_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(given_ != MAP_FAILED, "mmap: ", std::strerror(errno));
  } else {
    const octavo_status status = side.memory->allocate(side.ctx, bytes, &given_);
    expect(status == OCTAVO_OK && given_ != nullptr, "octavo.memory/1: allocate of ", bytes,
           " bytes answered ", status_name(status), ": ", last_message());
  }
  data_ = static_cast<uint8_t *>(given_);
  const auto address = reinterpret_cast<uintptr_t>(given_);
  const uint64_t shift = (kPage - address % kPage) % kPage;
  data_ += shift;
  bytes_ = (bytes - shift) / kPage * kPage;
  has_guards_ = is_readable(data_) && mprotect(data_, kPage, PROT_READ | PROT_WRITE) == 0;
}

Arena::~Arena() {
  allow();
  if (side_.memory == nullptr) {
    munmap(given_, given_bytes_);
  } else {
    side_.memory->release(side_.ctx, given_);
  }
}

void Arena::forbid(uint64_t begin, uint64_t end) {
  if (has_guards_ && mprotect(data_ + begin, end - begin, PROT_NONE) != 0)
    throw Failure(text("mprotect: ", std::strerror(errno)));
}
void Arena::allow() {
  if (has_guards_) mprotect(data_, bytes_, PROT_READ | PROT_WRITE);
}

const Side &reference() {
  static const Side *side = [] {
    const char *forced = std::getenv("OCTAVO_FORCE_KERNELS");
    const std::string before = forced == nullptr ? "" : forced;
    setenv("OCTAVO_FORCE_KERNELS", "baseline", 1);
    Tables tables;
    tables.kernels = octavo_cpu_kernels();
    tables.device = {OCTAVO_DEVICE_CPU, 0};
    const Side *opened = new Side(tables, silent_host());
    if (forced == nullptr) {
      unsetenv("OCTAVO_FORCE_KERNELS");
    } else {
      setenv("OCTAVO_FORCE_KERNELS", before.c_str(), 1);
    }
    return opened;
  }();
  return *side;
}

}  // namespace octavo::conformance::kernels
