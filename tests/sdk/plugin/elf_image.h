// A real plugin's bytes, and changes to them at the places that the ELF format names.
#pragma once

#include <elf.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "octavo/plugin.h"

namespace octavo::test {

constexpr const char *kEntry = OCTAVO_PLUGIN_SYMBOL;
constexpr uint64_t kFar = uint64_t{1} << 35;  // an offset beyond every file

class ElfImage {
 public:
  explicit ElfImage(std::string bytes) : bytes_(std::move(bytes)) {}

  const std::string &bytes() const { return bytes_; }
  void cut(size_t size) { bytes_.resize(size); }

  template <typename T>
  T get(uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(value));
    return value;
  }
  template <typename T>
  void put(uint64_t offset, const T &value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }

  Elf64_Ehdr header() const { return get<Elf64_Ehdr>(0); }
  std::vector<Elf64_Phdr> segments() const {
    std::vector<Elf64_Phdr> all;
    for (uint64_t i = 0; i < header().e_phnum; ++i)
      all.push_back(get<Elf64_Phdr>(header().e_phoff + i * sizeof(Elf64_Phdr)));
    return all;
  }
  // The place of the first segment of a type in the table.
  uint64_t segment(uint32_t type) const {
    for (uint64_t i = 0; i < header().e_phnum; ++i) {
      const uint64_t at = header().e_phoff + i * sizeof(Elf64_Phdr);
      if (get<Elf64_Phdr>(at).p_type == type) return at;
    }
    throw std::runtime_error("no segment of type " + std::to_string(type));
  }
  template <typename Change>
  void change_segment(uint32_t type, Change change) {
    const uint64_t at = segment(type);
    auto s = get<Elf64_Phdr>(at);
    change(s);
    put(at, s);
  }
  // The place of the first dynamic entry with a tag.
  uint64_t entry(int64_t tag) const {
    const auto dynamic = get<Elf64_Phdr>(segment(PT_DYNAMIC));
    for (uint64_t at = dynamic.p_offset; at < dynamic.p_offset + dynamic.p_filesz;
         at += sizeof(Elf64_Dyn))
      if (get<Elf64_Dyn>(at).d_tag == tag) return at;
    throw std::runtime_error("no dynamic entry " + std::to_string(tag));
  }
  uint64_t value(int64_t tag) const { return get<Elf64_Dyn>(entry(tag)).d_un.d_val; }
  void set_value(int64_t tag, uint64_t value) {
    auto e = get<Elf64_Dyn>(entry(tag));
    e.d_un.d_val = value;
    put(entry(tag), e);
  }
  void set_tag(int64_t tag, int64_t other) {
    auto e = get<Elf64_Dyn>(entry(tag));
    e.d_tag = other;
    put(entry(tag), e);
  }
  // Of an address in a loaded segment.
  uint64_t offset(uint64_t address) const {
    for (const Elf64_Phdr &s : segments())
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
        return s.p_offset + address - s.p_vaddr;
    throw std::runtime_error("address outside of the file");
  }
  // The place of a symbol in the dynamic table.
  uint64_t symbol(const std::string &name) const {
    const uint64_t names = offset(value(DT_STRTAB));
    for (uint64_t at = offset(value(DT_SYMTAB)); at < names; at += sizeof(Elf64_Sym))
      if (bytes_.compare(names + get<Elf64_Sym>(at).st_name, name.size() + 1, name.c_str(),
                         name.size() + 1) == 0)
        return at;
    throw std::runtime_error("no symbol " + name);
  }
  template <typename Change>
  void change_symbol(const std::string &name, Change change) {
    auto s = get<Elf64_Sym>(symbol(name));
    change(s);
    put(symbol(name), s);
  }
  // Room of zero bytes at the end, in the last segment to load; the address of its beginning.
  uint64_t grow(uint64_t bytes) {
    bytes_.resize((bytes_.size() + 15) / 16 * 16);
    const uint64_t begin = bytes_.size();
    bytes_.resize(begin + bytes);
    uint64_t at = segment(PT_LOAD);
    for (uint64_t i = 0; i < header().e_phnum; ++i) {
      const uint64_t next = header().e_phoff + i * sizeof(Elf64_Phdr);
      if (get<Elf64_Phdr>(next).p_type == PT_LOAD) at = next;
    }
    auto s = get<Elf64_Phdr>(at);
    s.p_filesz = bytes_.size() - s.p_offset;
    s.p_memsz = s.p_memsz < s.p_filesz ? s.p_filesz : s.p_memsz;
    put(at, s);
    return s.p_vaddr + begin - s.p_offset;
  }
  // Moves the table of names to the end and adds one; the offset of that.
  uint64_t add_name(const std::string &name) {
    const std::string old = bytes_.substr(offset(value(DT_STRTAB)), value(DT_STRSZ));
    const uint64_t address = grow(old.size() + name.size() + 1);
    bytes_.replace(offset(address), old.size() + name.size(), old + name);
    set_value(DT_STRTAB, address);
    set_value(DT_STRSZ, old.size() + name.size() + 1);
    return old.size();
  }
  // Moves the dynamic section to the end with these entries before its own.
  void add_entries(const std::vector<Elf64_Dyn> &more) {
    const auto dynamic = get<Elf64_Phdr>(segment(PT_DYNAMIC));
    const std::string old = bytes_.substr(dynamic.p_offset, dynamic.p_filesz);
    const uint64_t bytes = more.size() * sizeof(Elf64_Dyn);
    const uint64_t address = grow(bytes + old.size());
    const uint64_t at = offset(address);
    for (size_t i = 0; i < more.size(); ++i) put(at + i * sizeof(Elf64_Dyn), more[i]);
    bytes_.replace(at + bytes, old.size(), old);
    change_segment(PT_DYNAMIC, [&](Elf64_Phdr &p) {
      p.p_offset = at;
      p.p_vaddr = p.p_paddr = address;
      p.p_filesz = p.p_memsz = bytes + old.size();
    });
  }
  // Puts words at the end, and a table of this tag there.
  uint64_t put_words(int64_t tag, const std::vector<uint32_t> &words) {
    const uint64_t address = grow(words.size() * sizeof(uint32_t));
    for (size_t i = 0; i < words.size(); ++i) put(offset(address) + i * sizeof(uint32_t), words[i]);
    set_value(tag, address);
    return address;
  }
  // The place of a symbol in the dynamic table, counted.
  uint32_t symbol_index(const std::string &name) const {
    return static_cast<uint32_t>((symbol(name) - offset(value(DT_SYMTAB))) / sizeof(Elf64_Sym));
  }
  void replace(const std::string &from, const std::string &to) {
    const size_t at = bytes_.find(from + '\0');
    if (at == std::string::npos || from.size() != to.size())
      throw std::runtime_error("cannot replace " + from);
    bytes_.replace(at, to.size(), to);
  }

 private:
  std::string bytes_;
};

}  // namespace octavo::test
