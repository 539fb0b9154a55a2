// What is read of a shared library: its bytes, its program headers, its dynamic section. Every
// access is checked against the file's size.
#pragma once

#include <elf.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/file/privilege_file.h"

namespace octavo {

// The machine that this library is compiled for.
#if defined(__x86_64__)
inline constexpr uint16_t kElfMachine = EM_X86_64;
#else
inline constexpr uint16_t kElfMachine = EM_AARCH64;
#endif

// Throws Failure(OCTAVO_NO_RESOURCE): the file is not a library that can be loaded here. It is
// static: coverage counts the copy that runs.
template <typename... Part>
[[noreturn]] static void fail_elf(const Part &...text) {
  throw Failure(OCTAVO_NO_RESOURCE, "octavo.elf", text...);
}

// One regular file, read by offset and length. Never maps: a file that shrinks while it is read
// gives a short read and no signal.
class ElfFile {
 public:
  // Nothing when it cannot be opened or is no regular file; then *problem has the reason.
  static std::optional<ElfFile> open(const std::string &path, std::string *problem);
  // What was checked, whatever has its name now.
  static ElfFile of(const CheckedFile &checked);

  uint64_t size() const { return size_; }
  bool holds(uint64_t offset, uint64_t bytes) const {
    return offset <= size_ && bytes <= size_ - offset;
  }
  // False when the range is not wholly inside the file.
  bool read(uint64_t offset, void *out, uint64_t bytes) const;
  template <typename T>
  bool read(uint64_t offset, T &out) const {
    return read(offset, &out, sizeof(out));
  }

 private:
  ElfFile(std::string path, Descriptor file, uint64_t size)
      : path_(std::move(path)), file_(std::move(file)), size_(size) {}
  std::string path_;
  Descriptor file_;
  uint64_t size_;
};

// The program headers, checked, and addresses translated to offsets.
class ElfSegments {
 public:
  // Throws Failure naming what is wrong with the headers.
  explicit ElfSegments(const ElfFile &file);

  const ElfFile &file() const { return file_; }
  const Elf64_Phdr &dynamic() const { return dynamic_; }
  const std::vector<Elf64_Phdr> &all() const { return all_; }

  // The file offset of an address range; false unless one loaded segment holds all of it in
  // the file.
  bool offset_of(uint64_t address, uint64_t bytes, uint64_t *offset) const;
  // How many bytes of the file follow `address` in its segment; 0: none.
  uint64_t bytes_from(uint64_t address) const;
  bool executable(uint64_t address) const;
  // Whether one loaded segment has all of it in memory, and may be written.
  bool writable(uint64_t address, uint64_t bytes) const;

 private:
  void check_header(Elf64_Ehdr *header) const;
  void check_load(const Elf64_Phdr &segment, const Elf64_Phdr *before) const;
  void check_stack() const;
  void check_inside() const;

  const ElfFile &file_;
  std::vector<Elf64_Phdr> all_;
  std::vector<Elf64_Phdr> loads_;
  Elf64_Phdr dynamic_{};
};

// The dynamic section: its tables, checked, names and one symbol.
class ElfDynamic {
 public:
  // Throws Failure when an entry or a table that it names is outside of the file.
  explicit ElfDynamic(const ElfSegments &segments);

  std::vector<std::string> needed() const;
  std::string rpath() const;    // DT_RPATH; the system ignores it where there is a runpath
  std::string runpath() const;  // DT_RUNPATH

  // The symbol that the system's loader would find; nothing when there is none.
  std::optional<Elf64_Sym> find(const std::string &name) const;

 private:
  bool has(int64_t tag) const;
  uint64_t value(int64_t tag) const;
  void require_table(const char *what, int64_t address, int64_t size, int64_t entry,
                     uint64_t entry_size) const;
  void require_functions() const;
  // That the system's loader writes nothing outside of the library's own data.
  void require_targets(int64_t address, int64_t size, uint16_t last_version) const;
  // The largest index that its tables of versions give.
  uint16_t last_version() const;
  // Of an address; `what` names the table that led there.
  template <typename T>
  T at(uint64_t address, const char *what) const;
  std::string text(uint64_t offset) const;
  std::string text_of(int64_t tag) const;
  bool is(const Elf64_Sym &symbol, const std::string &name) const;
  std::optional<Elf64_Sym> symbol(uint64_t index) const;
  std::optional<Elf64_Sym> find_by_gnu_hash(const std::string &name) const;
  std::optional<Elf64_Sym> find_by_hash(const std::string &name) const;
  uint32_t word(uint64_t address) const;

  const ElfSegments &segments_;
  std::vector<Elf64_Dyn> entries_;
  uint64_t strings_ = 0;  // file offset
  uint64_t string_bytes_ = 0;
};

}  // namespace octavo
