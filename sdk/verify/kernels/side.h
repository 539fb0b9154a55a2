// An open device of a kernels table, and the memory in which its calls find their operands.
//
// Memory is the plugin's own, or the CPU's. Where the program reads it at its own addresses, an
// operand touches a page that nobody may touch; elsewhere what surrounds it is compared.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../report.h"
#include "octavo/draft/streams.h"
#include "octavo/hpp/kernels_tables.hpp"
#include "octavo/memory.h"
#include "octavo/octavo.h"

namespace octavo::conformance::kernels {

// A plugin's tables, as its library gives them; or a layer, which has none without what is below.
struct Tables {
  const octavo_kernels *kernels = nullptr;
  const octavo_memory *memory = nullptr;  // null: the device reads the CPU's memory
  octavo_device device{};
  const octavo_open_desc *run = nullptr;  // not null: the tables are those of a run that it opens
};

// Diagnostics of both sides: refusals are part of the checks.
const octavo_host *silent_host();
// The same with a thread pool: two threads and ranges in an order of their own.
const octavo_host *threaded_host();
std::string last_message();
void forget_message();
// How many there have been, from every thread.
uint64_t message_count();

class Side {
 public:
  // Throws Failure where open_device, describe or octavo_open fails.
  Side(const Tables &tables, const octavo_host *host);
  ~Side();
  Side(const Side &) = delete;
  Side &operator=(const Side &) = delete;

  octavo_kernels table{};  // null where the plugin has no function
  KernelsTables drafts;
  const octavo_streams *streams = nullptr;  // null: not offered
  octavo_kernels_caps caps{};
  void *ctx = nullptr;
  const octavo_memory *memory;
  octavo_device device;

  void copy(void *to, const void *from, uint64_t bytes) const;
  void synchronize() const;
  // Of a layer: liboctavo has filled in the table.
  bool is_run() const { return run_ != nullptr; }
  // Null where the plugin does not offer the table.
  template <typename Table>
  const Table *get() const {
    if constexpr (std::is_same_v<Table, octavo_kernels>)
      return &table;
    else
      return drafts.get<Table>();
  }
  // As `ability` answers; OCTAVO_DECLINE where it does not.
  uint32_t decision(octavo_ability question) const;

 private:
  void open_run(const octavo_open_desc &as, const octavo_host *host);

  octavo_run *run_ = nullptr;
};

// Memory of a side for one call after the other.
class Arena {
 public:
  Arena(const Side &side, uint64_t bytes);
  ~Arena();
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;

  uint8_t *data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  bool has_guards() const { return has_guards_; }
  // From here on nobody may touch these whole pages; allow() gives all back.
  void forbid(uint64_t begin, uint64_t end);
  void allow();

  static constexpr uint64_t kPage = 4096;

 private:
  const Side &side_;
  void *given_ = nullptr;
  uint64_t given_bytes_;
  uint8_t *data_ = nullptr;
  uint64_t bytes_;
  bool has_guards_ = false;
};

// The kernels of the CPU at the level that anybody can read: the oracle.
const Side &reference();

}  // namespace octavo::conformance::kernels
