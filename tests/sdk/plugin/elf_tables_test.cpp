// The ELF check against tables that no linker writes: moved to the end of the file and filled by
// hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>

#include <cstdio>
#include <filesystem>

#include "sdk/src/plugin/elf.h"
#include "tests/sdk/plugin/elf_image.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using test::kEntry;
using test::kFar;
using testing::StartsWith;

class ElfTables : public testing::Test {
 protected:
  test::ElfImage image{test::read_text(OCTAVO_ELF_SAMPLE)};
  ElfCheck check() { return inspect_elf(dir.write("x.so", image.bytes())); }
  std::string problem() { return check().problem; }
  void expect_entry(bool is_found, const std::string &words = "") {
    const ElfCheck c = check();
    EXPECT_EQ(c.problem, "");
    EXPECT_EQ(c.entry_problem, words);
    EXPECT_EQ(c.entry, is_found ? kEntry : "");
  }
  void forget(int64_t tag) { image.set_tag(tag, 0x6ffffff0 - 2); }
  test::TempDir dir;
};

TEST_F(ElfTables, grown_library_is_one) {
  image.grow(100);
  expect_entry(true);
}

TEST_F(ElfTables, headers) {
  const auto with = [&](auto change) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    change();
    return problem();
  };
  const auto header = [&](auto field) {
    return with([&] {
      Elf64_Ehdr h = image.header();
      field(h);
      image.put(0, h);
    });
  };
  EXPECT_EQ(header([](Elf64_Ehdr &h) { h.e_ident[EI_VERSION] = 2; }),
            "expected ELF version 1, found 1");
  EXPECT_EQ(header([](Elf64_Ehdr &h) { h.e_ident[EI_OSABI] = ELFOSABI_GNU; }), "");
  EXPECT_THAT(header([](Elf64_Ehdr &h) { h.e_phentsize = 57; }),
              StartsWith("expected program headers of 56 bytes, found "));
  const auto segment = [&](uint32_t type, auto field) {
    return with([&] { image.change_segment(type, field); });
  };
  EXPECT_EQ(segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_align = 0; }), "");
  EXPECT_EQ(segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_align = 1; }), "");
  EXPECT_EQ(segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_align = 0x10000; }), "");
  EXPECT_THAT(with([&] {
                for (uint64_t i = 0; i < image.header().e_phnum; ++i) {
                  const uint64_t at = image.header().e_phoff + i * sizeof(Elf64_Phdr);
                  auto p = image.get<Elf64_Phdr>(at);
                  if (p.p_type == PT_LOAD && p.p_vaddr != p.p_offset) p.p_align = 0x100000;
                  image.put(at, p);
                }
              }),
              StartsWith("a segment's alignment, 1048576, "));
  EXPECT_THAT(segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_offset += 16; }),
              StartsWith("its dynamic section is outside"));
  EXPECT_THAT(segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_vaddr = kFar; }),
              StartsWith("its dynamic section is outside"));
  EXPECT_EQ(segment(PT_GNU_RELRO, [](Elf64_Phdr &p) { p.p_memsz = 0; }), "");
  EXPECT_EQ(segment(PT_GNU_RELRO,
                    [](Elf64_Phdr &p) {
                      p.p_vaddr = 0;
                      p.p_memsz = 16;
                    }),
            "");
}

TEST_F(ElfTables, thread_local_segment) {
  const auto tls = [&](auto field) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    image.change_segment(PT_GNU_EH_FRAME, [&](Elf64_Phdr &p) {
      p.p_type = PT_TLS;
      p.p_memsz = p.p_filesz;
      p.p_align = 4;
      field(p);
    });
    return problem();
  };
  const std::string outside = "its thread-local segment is outside of the segments to load";
  EXPECT_EQ(tls([](Elf64_Phdr &) {}), "");
  EXPECT_EQ(tls([](Elf64_Phdr &p) { p.p_memsz = p.p_filesz - 1; }), outside);
  EXPECT_EQ(tls([](Elf64_Phdr &p) { p.p_align = 3; }), outside);
  EXPECT_EQ(tls([](Elf64_Phdr &p) { p.p_memsz = kFar * 4; }), outside);
  EXPECT_EQ(tls([](Elf64_Phdr &p) { p.p_align = kFar * 4; }), outside);
  EXPECT_EQ(tls([](Elf64_Phdr &p) { p.p_vaddr = kFar; }), outside);
}

TEST_F(ElfTables, dynamic_section_of_other_sizes) {
  image.change_segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_filesz = 0; });
  EXPECT_EQ(problem(), "expected a dynamic section of entries of 16 bytes, found 0 bytes");
  image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
  image.add_entries(std::vector<Elf64_Dyn>(1100, Elf64_Dyn{0x6ffffff0 - 3, {0}}));
  EXPECT_THAT(problem(), StartsWith("expected a dynamic section of entries of 16 bytes, found "));
}

TEST_F(ElfTables, entries_that_are_missing) {
  const auto without = [&](std::initializer_list<int64_t> tags) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    for (const int64_t tag : tags) forget(tag);
    return problem();
  };
  EXPECT_THAT(without({DT_STRTAB}), StartsWith("its table of names (DT_STRTAB)"));
  EXPECT_THAT(without({DT_STRSZ}), StartsWith("a name is outside of its table of names"));
  EXPECT_THAT(without({DT_SYMTAB}), StartsWith("its table of symbols (DT_SYMTAB)"));
  EXPECT_EQ(without({DT_RELA}), "");
  EXPECT_EQ(without({DT_INIT_ARRAY}), "");
  EXPECT_EQ(without({DT_INIT, DT_FINI}), "");
  EXPECT_EQ(without({DT_VERSYM}), "");
}

TEST_F(ElfTables, entries_that_lie) {
  const auto with = [&](int64_t tag, uint64_t value) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    image.set_value(tag, value);
    return problem();
  };
  EXPECT_THAT(with(DT_RELAENT, 8), StartsWith("its table of relocations (DT_RELA) has "));
  EXPECT_EQ(with(DT_RELASZ, 0), "");
  EXPECT_EQ(with(DT_VERSYM, kFar), "DT_VERSYM is outside of the file");
  EXPECT_EQ(with(DT_VERNEED, kFar), "DT_VERNEED is outside of the file");
}

// The system's loader writes where a relocation says, also into another library.
TEST_F(ElfTables, relocations_that_lie) {
  const auto with = [&](int64_t table, auto change) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    const uint64_t at = image.offset(image.value(table));
    auto r = image.get<Elf64_Rela>(at);
    change(r);
    image.put(at, r);
    return problem();
  };
  const uint64_t code = image.get<Elf64_Sym>(image.symbol(kEntry)).st_value;
  for (const int64_t table : {DT_RELA, DT_JMPREL}) {
    for (const uint64_t address : {kFar, code, uint64_t{0}})
      EXPECT_EQ(with(table, [&](Elf64_Rela &r) { r.r_offset = address; }),
                "a relocation changes address " + std::to_string(address) +
                    ", which is outside of its data");
    EXPECT_EQ(with(table,
                   [](Elf64_Rela &r) {
                     r.r_offset = kFar;
                     r.r_info = ELF64_R_INFO(ELF64_R_SYM(r.r_info), 0);  // none
                   }),
              "");
    EXPECT_THAT(with(table,
                     [](Elf64_Rela &r) {
                       r.r_info = ELF64_R_INFO(uint64_t{1} << 30, ELF64_R_TYPE(r.r_info));
                     }),
                StartsWith("a relocation names symbol 1073741824"));
  }
}

// Code that relocations may change (DT_TEXTREL) is the library's choice.
TEST_F(ElfTables, relocations_of_code) {
  const uint64_t code = image.get<Elf64_Sym>(image.symbol(kEntry)).st_value;
  const uint64_t at = image.offset(image.value(DT_RELA));
  auto r = image.get<Elf64_Rela>(at);
  r.r_offset = code;
  image.put(at, r);
  EXPECT_THAT(problem(), StartsWith("a relocation changes address "));
  image.add_entries({Elf64_Dyn{DT_TEXTREL, {0}}});
  EXPECT_EQ(problem(), "");
}

TEST_F(ElfTables, versions_that_a_library_defines) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void *>(&std::fputs), &info), 0);
  EXPECT_EQ(inspect_elf(std::filesystem::canonical(info.dli_fname)).problem, "");
  image.add_entries({Elf64_Dyn{DT_VERDEF, {kFar}}});
  EXPECT_THAT(problem(), StartsWith("DT_VERDEF "));
}

TEST_F(ElfTables, versions_without_an_end) {
  constexpr uint64_t kMany = 5000;
  const uint64_t room = image.grow(kMany * sizeof(Elf64_Vernaux));
  for (uint64_t i = 0; i < kMany; ++i) {
    Elf64_Vernaux version{};
    version.vna_next = sizeof(version);
    image.put(image.offset(room) + i * sizeof(version), version);
  }
  const uint64_t need = image.offset(image.value(DT_VERNEED));
  auto library = image.get<Elf64_Verneed>(need);
  library.vn_aux = static_cast<uint32_t>(room - image.value(DT_VERNEED));
  image.put(need, library);
  EXPECT_EQ(problem(), "its tables of versions have no end");
}

TEST_F(ElfTables, versions_that_lie) {
  const uint64_t rela = image.offset(image.value(DT_JMPREL));
  const uint64_t index = ELF64_R_SYM(image.get<Elf64_Rela>(rela).r_info);
  image.put<uint16_t>(image.offset(image.value(DT_VERSYM)) + index * 2, 999);
  EXPECT_EQ(problem(), "symbol " + std::to_string(index) + " has a version that its tables do not");
  image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
  const uint64_t need = image.offset(image.value(DT_VERNEED));
  auto library = image.get<Elf64_Verneed>(need);
  library.vn_next = 0x7ffffff0;
  image.put(need, library);
  EXPECT_EQ(problem(), "DT_VERNEED points outside of the file");
  library.vn_next = 0;
  library.vn_file = 0x7ffffff0;
  image.put(need, library);
  EXPECT_THAT(problem(), StartsWith("a name is outside of its table of names"));
  library.vn_file = 0;
  library.vn_aux = 0x7ffffff0;
  image.put(need, library);
  EXPECT_EQ(problem(), "DT_VERNEED points outside of the file");
}

TEST_F(ElfTables, names) {
  const uint64_t longer = image.add_name("lib" + std::string(100, 'x') + ".so.1");
  image.set_value(DT_NEEDED, longer);
  EXPECT_EQ(check().not_found.front(), "lib" + std::string(100, 'x') + ".so.1");
  const uint64_t endless = image.add_name(std::string(5000, 'x'));
  image.set_value(DT_NEEDED, endless);
  EXPECT_EQ(problem(), "a name in its table of names (DT_STRTAB) has no end");
  image.set_value(DT_NEEDED, longer);
  image.set_value(DT_STRSZ, longer + 3);  // the table ends within the name
  EXPECT_EQ(problem(), "a name in its table of names (DT_STRTAB) has no end");
}

TEST_F(ElfTables, more_libraries_than_any_plugin_needs) {
  const uint64_t name = image.value(DT_NEEDED);
  image.add_entries(std::vector<Elf64_Dyn>(300, Elf64_Dyn{DT_NEEDED, {name}}));
  EXPECT_THAT(problem(), testing::MatchesRegex("it needs 30[0-9] libraries, expected at most 256"));
}

TEST_F(ElfTables, library_that_only_this_process_has) {
  const uint64_t name = image.add_name("libonly_here.so.7");
  image.add_entries({Elf64_Dyn{DT_NEEDED, {name}}});
  EXPECT_THAT(check().not_found, testing::ElementsAre("libonly_here.so.7"));
  const std::string here = dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "elsewhere/libonly_here.so.7");
  ASSERT_NE(dlopen(here.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  const ElfCheck c = check();
  EXPECT_TRUE(c.not_found.empty());
  EXPECT_THAT(c.preload, testing::ElementsAre(here));
}

TEST_F(ElfTables, kinds_of_entries) {
  const auto entry = [&](auto change) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    image.change_symbol(kEntry, change);
    return check().entry_problem;
  };
  const auto info = [&](unsigned binding, unsigned type) {
    return entry([=](Elf64_Sym &s) {
      s.st_info = static_cast<unsigned char>(ELF64_ST_INFO(binding, type));
    });
  };
  const std::string hidden = std::string(kEntry) + " is hidden";
  EXPECT_EQ(info(STB_WEAK, STT_FUNC), "");
  EXPECT_EQ(info(STB_GNU_UNIQUE, STT_FUNC), "");
  EXPECT_EQ(info(STB_LOCAL, STT_FUNC), hidden);
  EXPECT_EQ(info(STB_GLOBAL, STT_GNU_IFUNC), "");
  EXPECT_EQ(entry([](Elf64_Sym &s) { s.st_other = STV_PROTECTED; }), "");
  EXPECT_EQ(entry([](Elf64_Sym &s) { s.st_other = STV_INTERNAL; }), hidden);
}

TEST_F(ElfTables, most_segments) {
  const auto with = [&](uint16_t count) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    const uint64_t at = image.offset(image.grow(count * sizeof(Elf64_Phdr)));
    const std::vector<Elf64_Phdr> own = image.segments();
    for (size_t i = 0; i < own.size(); ++i) image.put(at + i * sizeof(Elf64_Phdr), own[i]);
    Elf64_Ehdr h = image.header();
    h.e_phoff = at;
    h.e_phnum = count;  // the others are zero: PT_NULL
    image.put(0, h);
    return problem();
  };
  EXPECT_EQ(with(128), "");
  EXPECT_EQ(with(129), "expected program headers of 56 bytes, found 129 of 56");
}

TEST_F(ElfTables, most_dynamic_entries) {
  const auto with = [&](uint64_t count) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    const uint64_t own =
        image.get<Elf64_Phdr>(image.segment(PT_DYNAMIC)).p_filesz / sizeof(Elf64_Dyn);
    Elf64_Dyn other{};
    other.d_tag = DT_DEBUG;
    image.add_entries(std::vector<Elf64_Dyn>(count - own, other));
    return problem();
  };
  EXPECT_EQ(with(1024), "");
  EXPECT_EQ(with(1025), "expected a dynamic section of entries of 16 bytes, found 16400 bytes");
}

// Its last page counts whole, since the system's loader protects pages.
TEST_F(ElfTables, end_of_what_is_read_only_after_relocation) {
  const auto with = [&](uint64_t more) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    const uint64_t begin = image.grow(16);  // in the last segment
    uint64_t address = 0, bytes = 0;
    for (uint64_t i = 0; i < image.header().e_phnum; ++i) {
      const uint64_t at = image.header().e_phoff + i * sizeof(Elf64_Phdr);
      auto s = image.get<Elf64_Phdr>(at);
      if (s.p_type != PT_LOAD || begin < s.p_vaddr || begin >= s.p_vaddr + s.p_memsz) continue;
      s.p_memsz = (s.p_vaddr + s.p_memsz + 4095) / 4096 * 4096 - s.p_vaddr;
      image.put(at, s);
      address = s.p_vaddr;
      bytes = s.p_memsz + s.p_vaddr % 4096;
    }
    image.change_segment(PT_GNU_RELRO, [&](Elf64_Phdr &p) {
      p.p_vaddr = address;
      p.p_memsz = bytes + more;
    });
    return problem();
  };
  EXPECT_EQ(with(0), "");
  EXPECT_THAT(with(1), StartsWith("its read-only-after-relocation segment is outside"));
}

TEST_F(ElfTables, entry_with_an_unknown_suffix_is_none) {
  std::string zero = kEntry;
  zero.back() = '0';
  image.replace(kEntry, zero);
  const uint32_t entry = image.symbol_index(zero);
  image.change_symbol(zero, [](Elf64_Sym &s) { s.st_other = STV_HIDDEN; });
  image.set_tag(DT_GNU_HASH, DT_HASH);
  std::vector<uint32_t> words = {1, entry + 1, entry};
  words.resize(3 + entry + 1, 0);
  image.put_words(DT_HASH, words);
  expect_entry(false);
}

TEST_F(ElfTables, symbols_with_other_names) {
  const auto named = [&](uint32_t name) {
    image.change_symbol(kEntry, [=](Elf64_Sym &s) { s.st_name = name; });
  };
  const uint32_t own = image.get<Elf64_Sym>(image.symbol(kEntry)).st_name;
  const uint64_t place = image.symbol(kEntry);
  const auto other = [&](uint64_t name) {
    auto s = image.get<Elf64_Sym>(place);
    s.st_name = static_cast<uint32_t>(name);
    image.put(place, s);
    expect_entry(false);
  };
  named(own);
  expect_entry(true);
  other(UINT32_MAX);
  other(own + 1);
  const uint64_t end = image.value(DT_STRSZ);
  other(end - 1);
  other(image.add_name("x" + std::string(kEntry).substr(1)));
}

TEST_F(ElfTables, gnu_hash_that_lies) {
  const auto word = [&](uint64_t at, uint32_t value) {
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    image.put(image.offset(image.value(DT_GNU_HASH)) + at, value);
    return problem();
  };
  EXPECT_THAT(word(8, 0), StartsWith("its hash table (DT_GNU_HASH) has "));
  EXPECT_THAT(word(8, 3), StartsWith("its hash table (DT_GNU_HASH) has "));
  // One bucket, one filter word, a chain of other hashes: 5000 of them, then one that ends.
  std::vector<uint32_t> words = {1, 1, 1, 0, 0, 0, 1};
  words.resize(words.size() + 5000, 2);
  image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
  image.put_words(DT_GNU_HASH, words);
  EXPECT_EQ(problem(), "a chain of its hash table (DT_GNU_HASH) has no end");
  words.resize(7 + 4096);
  words.push_back(3);  // the end, one step too late
  image.put_words(DT_GNU_HASH, words);
  EXPECT_EQ(problem(), "a chain of its hash table (DT_GNU_HASH) has no end");
  words.erase(words.begin() + 7);
  image.put_words(DT_GNU_HASH, words);
  expect_entry(false);
  words.resize(10);
  words.push_back(3);
  image.put_words(DT_GNU_HASH, words);
  expect_entry(false);
  words[6] = 0;  // the bucket is empty
  image.put_words(DT_GNU_HASH, words);
  expect_entry(false);
  // The hash is that of the entry, the symbol another one, or none.
  uint32_t hash = 5381;
  for (const char *c = kEntry; *c != '\0'; ++c) hash = hash * 33 + static_cast<unsigned char>(*c);
  image.put_words(DT_GNU_HASH, {1, 1, 1, 0, 0, 0, 1, hash | 1});
  expect_entry(false);
  image.put_words(DT_GNU_HASH, {1, 1u << 30, 1, 0, 0, 0, 1u << 30, hash | 1});
  EXPECT_EQ(problem(), "its hash table (DT_GNU_HASH) names a symbol outside of the file");
}

TEST_F(ElfTables, hash_of_the_older_form) {
  const std::string good = image.bytes();
  const uint32_t entry = image.symbol_index(kEntry);
  const auto with = [&](uint32_t buckets, uint32_t first, uint32_t next) {
    image = test::ElfImage(good);
    image.set_tag(DT_GNU_HASH, DT_HASH);
    std::vector<uint32_t> words = {buckets, entry + 2, first};
    words.resize(3 + entry + 2, 0);
    words[3 + entry] = next;
    words[3 + 1] = 1 == entry ? next : entry;  // the entry follows symbol 1
    image.put_words(DT_HASH, words);
  };
  with(1, entry, 0);
  expect_entry(true);
  with(1, 1, 0);
  expect_entry(true);
  with(1, 0, 0);
  expect_entry(false);
  with(0, entry, 0);
  EXPECT_EQ(problem(), "its hash table (DT_HASH) has no buckets");
  with(1, 1u << 30, 0);
  EXPECT_EQ(problem(), "its hash table (DT_HASH) names a symbol outside of the file");
  with(1, entry, entry);
  image.change_symbol(kEntry, [](Elf64_Sym &s) { ++s.st_name; });
  EXPECT_EQ(problem(), "a chain of its hash table (DT_HASH) has no end");
  // No table at all but the newer one is what linkers write today.
  image = test::ElfImage(good);
  forget(DT_GNU_HASH);
  EXPECT_THAT(problem(), StartsWith("it has no hash table"));
}

TEST_F(ElfTables, notes) {
  const std::string good = check().build_id;
  ASSERT_NE(good, "");
  const std::string bytes = image.bytes();
  // The note with the build's id, wherever it is.
  uint64_t at = 0;
  uint64_t header = 0;
  for (uint64_t i = 0; i < image.header().e_phnum; ++i) {
    const uint64_t place = image.header().e_phoff + i * sizeof(Elf64_Phdr);
    const auto p = image.get<Elf64_Phdr>(place);
    if (p.p_type == PT_NOTE &&
        image.get<Elf64_Nhdr>(p.p_offset).n_type == uint32_t{NT_GNU_BUILD_ID}) {
      at = p.p_offset;
      header = place;
    }
  }
  ASSERT_NE(at, 0u);
  const auto id = [&](auto change) {
    image = test::ElfImage(bytes);
    change();
    return check().build_id;
  };
  const auto note = [&](auto field) {
    return id([&] {
      auto n = image.get<Elf64_Nhdr>(at);
      field(n);
      image.put(at, n);
    });
  };
  EXPECT_EQ(note([](Elf64_Nhdr &n) { n.n_type = 99; }), "");
  EXPECT_EQ(note([](Elf64_Nhdr &n) { n.n_type = NT_GNU_ABI_TAG; }), "");
  EXPECT_EQ(note([](Elf64_Nhdr &n) { n.n_namesz = 5; }), "");
  EXPECT_EQ(note([](Elf64_Nhdr &n) { n.n_descsz = 65; }), "");
  EXPECT_EQ(id([&] { image.put(at + sizeof(Elf64_Nhdr), 'X'); }), "");
  EXPECT_EQ(id([&] {
              auto p = image.get<Elf64_Phdr>(header);
              p.p_align = 8;
              image.put(header, p);
            }),
            good);
  EXPECT_EQ(id([&] {
              image.grow(1 << 17);
              auto p = image.get<Elf64_Phdr>(header);
              p.p_filesz = 1 << 17;
              image.put(header, p);
            }),
            "");
}

}  // namespace
}  // namespace octavo
