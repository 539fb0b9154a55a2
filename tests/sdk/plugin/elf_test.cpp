// The bounded look at a library: every table it reads, and each way in which one can be wrong.
#include "sdk/src/plugin/elf.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <functional>

#include "sdk/src/base/resource_unavailable.h"
#include "tests/sdk/plugin/elf_image.h"
#include "tests/support/failing_calls.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using test::kEntry;
using test::kFar;

constexpr int64_t kUnknownTag = 0x6ffffff0 - 2;

class ElfTest : public testing::Test {
 protected:
  test::ElfImage image{test::read_text(OCTAVO_ELF_SAMPLE)};
  ElfCheck check() { return inspect_elf(dir.write("x.so", image.bytes())); }
  std::string problem() { return check().problem; }
  test::TempDir dir;
};

TEST_F(ElfTest, real_library_has_no_problem) {
  const ElfCheck c = check();
  EXPECT_EQ(c.problem, "");
  EXPECT_EQ(c.entry_problem, "");
  EXPECT_EQ(c.entry, kEntry);
  EXPECT_THAT(c.preload, testing::Contains(testing::EndsWith("/libc.so.6")));
  EXPECT_FALSE(elf_verdict("x.so", c));
}

TEST_F(ElfTest, missing_file) {
  EXPECT_EQ(inspect_elf(dir / "none.so").problem,
            "cannot be read: No such file or directory; check the path and its permissions");
}

TEST_F(ElfTest, files_that_are_none) {
  EXPECT_EQ(inspect_elf(dir.make_directory("d.so")).problem,
            "expected a regular file, found a directory");
  ASSERT_EQ(mkfifo((dir / "f.so").c_str(), 0644), 0);
  EXPECT_EQ(inspect_elf(dir / "f.so").problem, "expected a regular file, found a FIFO");
  EXPECT_EQ(inspect_elf("/dev/zero").problem, "expected a regular file, found a device");
}

// Whatever is cut off, the answer is a text and never a signal; without all segments it is no.
TEST_F(ElfTest, every_length) {
  const std::string all = image.bytes();
  uint64_t needed = 0;
  for (const Elf64_Phdr &p : image.segments())
    needed = std::max<uint64_t>(needed, p.p_offset + p.p_filesz);
  ASSERT_GT(needed, 1000u);
  for (size_t size = 0; size < needed; size += size < 200 ? 1 : 97) {
    image = test::ElfImage(all.substr(0, size));
    ASSERT_NE(problem(), "") << size;
  }
  image = test::ElfImage(all.substr(0, needed));
  EXPECT_EQ(problem(), "");
}

struct Damage {
  const char *name;
  std::function<void(test::ElfImage &)> change;
  const char *problem;  // how the answer begins
};

void PrintTo(const Damage &d, std::ostream *out) {
  *out << d.name;
}

template <typename Field>
std::function<void(test::ElfImage &)> header(Field field) {
  return [=](test::ElfImage &i) {
    Elf64_Ehdr h = i.header();
    field(h);
    i.put(0, h);
  };
}
template <typename Field>
std::function<void(test::ElfImage &)> segment(uint32_t type, Field field) {
  return [=](test::ElfImage &i) { i.change_segment(type, field); };
}
std::function<void(test::ElfImage &)> value(int64_t tag, uint64_t to) {
  return [=](test::ElfImage &i) { i.set_value(tag, to); };
}

const std::vector<Damage> &damages() {
  static const std::vector<Damage> all = {
      {"magic", header([](Elf64_Ehdr &h) { h.e_ident[1] = 'e'; }),
       "expected an ELF shared library, found another file of "},
      {"class", header([](Elf64_Ehdr &h) { h.e_ident[EI_CLASS] = ELFCLASS32; }),
       "expected a library for this processor"},
      {"byte_order", header([](Elf64_Ehdr &h) { h.e_ident[EI_DATA] = ELFDATA2MSB; }),
       "expected a library for this processor"},
      {"machine", header([](Elf64_Ehdr &h) { h.e_machine = EM_MIPS; }),
       "expected a library for this processor"},
      {"type", header([](Elf64_Ehdr &h) { h.e_type = ET_REL; }),
       "expected a shared library (ELF type 3), found type 1"},
      {"no_segments", header([](Elf64_Ehdr &h) { h.e_phnum = 0; }),
       "expected program headers of 56 bytes, found 0 of 56"},
      {"many_segments", header([](Elf64_Ehdr &h) { h.e_phnum = 60000; }),
       "expected program headers of 56 bytes, found 60000 of 56"},
      {"segment_table_overflows", header([](Elf64_Ehdr &h) { h.e_phoff = UINT64_MAX - 8; }),
       "the file is truncated"},
      {"segment_overflows",
       segment(PT_LOAD,
               [](Elf64_Phdr &p) {
                 p.p_offset = UINT64_MAX - 1;
                 p.p_filesz = 16;
               }),
       "the file is truncated"},
      {"memory_smaller_than_file", segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_memsz = 1; }),
       "a segment's size in memory, 1 bytes"},
      {"address_overflows", segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_vaddr = UINT64_MAX - 4095; }),
       "a segment's size in memory, "},
      {"memory_overflows", segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_memsz = UINT64_MAX; }),
       "a segment's size in memory, "},
      {"overlap", segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_memsz = kFar; }),
       "segments to load overlap"},
      {"relro_elsewhere", segment(PT_GNU_RELRO, [](Elf64_Phdr &p) { p.p_vaddr = kFar; }),
       "its read-only-after-relocation segment is outside"},
      {"relro_overflows", segment(PT_GNU_RELRO, [](Elf64_Phdr &p) { p.p_memsz = UINT64_MAX; }),
       "its read-only-after-relocation segment is outside"},
      {"no_dynamic", segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_type = PT_NULL; }),
       "expected a dynamic section (PT_DYNAMIC) of at most 1024 entries, found 0"},
      {"executable_stack", segment(PT_GNU_STACK, [](Elf64_Phdr &p) { p.p_flags |= PF_X; }),
       "it requires an executable stack"},
      {"dynamic_section_overflows", segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_offset = kFar; }),
       "the file is truncated"},
      {"segment_table_of_another_entry", header([](Elf64_Ehdr &h) { h.e_phentsize = 57; }),
       "expected program headers of 56 bytes, found "},
      {"stack_not_stated", segment(PT_GNU_STACK, [](Elf64_Phdr &p) { p.p_type = PT_NULL; }),
       "it does not say that its stack need not be executable"},
      {"names", value(DT_STRTAB, kFar), "its table of names (DT_STRTAB) is outside"},
      {"names_size", value(DT_STRSZ, kFar), "its table of names (DT_STRTAB) is outside"},
      {"needed_name", value(DT_NEEDED, kFar), "a name is outside of its table of names"},
      {"no_names", [](test::ElfImage &i) { i.set_tag(DT_STRSZ, kUnknownTag); },
       "a name is outside of its table of names"},
      {"name_without_an_end",
       [](test::ElfImage &i) {
         const uint64_t name = i.add_name(std::string(5000, 'x'));
         i.set_value(DT_NEEDED, name);
         i.set_value(DT_STRSZ, name + 3);
       },
       "a name is outside of its table of names"},
      {"no_symbols", [](test::ElfImage &i) { i.set_tag(DT_SYMTAB, kUnknownTag); },
       "its table of symbols (DT_SYMTAB) is outside"},
      {"symbols", value(DT_SYMTAB, kFar), "its table of symbols (DT_SYMTAB) is outside"},
  };
  return all;
}

class ElfDamage : public ElfTest, public testing::WithParamInterface<Damage> {};

TEST_P(ElfDamage, is_named) {
  GetParam().change(image);
  EXPECT_EQ(problem().substr(0, std::strlen(GetParam().problem)), GetParam().problem);
}

INSTANTIATE_TEST_SUITE_P(All, ElfDamage, testing::ValuesIn(damages()),
                         [](const testing::TestParamInfo<Damage> &i) { return i.param.name; });

TEST_F(ElfTest, entry_that_is_data) {
  image.change_symbol(kEntry,
                      [](Elf64_Sym &s) { s.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT); });
  const ElfCheck c = check();
  EXPECT_EQ(c.problem, "");
  EXPECT_EQ(c.entry_problem, OCTAVO_PLUGIN_SYMBOL " is not a function (symbol type 1)");
  EXPECT_EQ(c.entry, "");
  const auto verdict = elf_verdict("x.so", c);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->reason, OCTAVO_REASON_LIBRARY);
  EXPECT_EQ(verdict->text, "x.so: expected the function " OCTAVO_PLUGIN_SYMBOL
                           ", but " OCTAVO_PLUGIN_SYMBOL " is not a function (symbol type 1)");
}

TEST_F(ElfTest, entry_that_is_imported) {
  image.change_symbol(kEntry, [](Elf64_Sym &s) { s.st_shndx = SHN_UNDEF; });
  EXPECT_EQ(check().entry_problem, OCTAVO_PLUGIN_SYMBOL " is only imported, not defined");
}

TEST_F(ElfTest, entry_that_is_hidden) {
  image.change_symbol(kEntry, [](Elf64_Sym &s) { s.st_other = STV_HIDDEN; });
  EXPECT_EQ(check().entry_problem, OCTAVO_PLUGIN_SYMBOL " is hidden");
}

TEST_F(ElfTest, entry_outside_of_code) {
  image.change_symbol(kEntry, [](Elf64_Sym &s) { s.st_value = 16; });
  EXPECT_EQ(check().entry_problem, OCTAVO_PLUGIN_SYMBOL " is outside of the library's code");
}

TEST_F(ElfTest, without_an_entry) {
  image = test::ElfImage(test::read_text(OCTAVO_ZOO_DIR "/fake_no_symbol.so"));
  const ElfCheck c = check();
  EXPECT_EQ(c.entry, "");
  EXPECT_EQ(elf_verdict("x.so", c)->text,
            "x.so: expected the symbol " OCTAVO_PLUGIN_SYMBOL ", found none");
}

TEST_F(ElfTest, entry_of_another_major) {
  image = test::ElfImage(test::read_text(OCTAVO_ZOO_DIR "/fake_symbol_v2.so"));
  const ElfCheck c = check();
  EXPECT_EQ(c.entry, "octavo_plugin_query_2");
  EXPECT_EQ(elf_verdict("x.so", c)->reason, OCTAVO_REASON_ABI);
}

TEST_F(ElfTest, entry_with_an_unknown_suffix_is_none) {
  for (const char *suffix : {"0", "rcx", "v10"}) {
    std::string other = kEntry;
    other.replace(other.size() - std::strlen(suffix), std::string::npos, suffix);
    image = test::ElfImage(test::read_text(OCTAVO_ELF_SAMPLE));
    image.replace(kEntry, other);
    const ElfCheck c = check();
    EXPECT_EQ(c.problem + c.entry + c.entry_problem, std::string()) << other;
  }
}

TEST_F(ElfTest, kinds_of_entries) {
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

// As tools that change a library leave it: the names in front of the symbols, or far behind.
TEST_F(ElfTest, names_that_were_moved) {
  image.set_value(DT_NEEDED, image.add_name("libonly_here.so.7"));
  EXPECT_EQ(check().entry, kEntry);
  const uint64_t symbols = image.offset(image.value(DT_SYMTAB));
  const uint64_t bytes = image.symbol(kEntry) + sizeof(Elf64_Sym) - symbols;
  const std::string table = image.bytes().substr(symbols, bytes);
  const uint64_t moved = image.grow(bytes);
  for (uint64_t i = 0; i < bytes; ++i) image.put(image.offset(moved) + i, table[i]);
  image.set_value(DT_SYMTAB, moved);
  EXPECT_EQ(check().entry, kEntry);
}

TEST_F(ElfTest, library_that_this_process_has) {
  const uint64_t name = image.add_name("libonly_here.so.7");
  image.add_entries({Elf64_Dyn{DT_NEEDED, {name}}});
  EXPECT_THAT(check().preload, testing::Not(testing::Contains(testing::HasSubstr("only_here"))));
  const std::string here = dir.copy(OCTAVO_ZOO_DIR "/fake_good.so", "elsewhere/libonly_here.so.7");
  ASSERT_NE(dlopen(here.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
  EXPECT_THAT(check().preload, testing::Contains(here));
}

// A read that fails says nothing about the file, whatever the error.
TEST_F(ElfTest, every_read_fails_once) {
  const std::string file = dir.write("x.so", image.bytes());
  for (const int error : {EACCES, ENOENT, EIO, ESTALE}) {
    ASSERT_EQ(inspect_elf(file).problem, "");
    int reads = 0;
    for (bool failed = true; failed;) {
      const test::FailingCall pread("pread", error, reads + 1);
      failed = false;
      try {
        inspect_elf(file);
      } catch (const ResourceUnavailable &) {
        failed = true;
      }
      EXPECT_EQ(failed, pread.calls() > reads) << reads;
      reads += failed ? 1 : 0;
    }
    EXPECT_GE(reads, 5);
  }
}

TEST_F(ElfTest, file_that_shrinks) {
  const std::string file = dir.write("x.so", image.bytes());
  for (int n = 1; n < 6; ++n) {
    const test::FailingCall pread("pread", 0, n, 1, 0);  // nothing more is there
    EXPECT_NE(inspect_elf(file).problem, "") << n;
  }
}

}  // namespace
}  // namespace octavo
