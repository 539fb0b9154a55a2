// The bounded look at a library: every table it reads, and each way in which one can be wrong.
#include "sdk/src/plugin/elf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "tests/sdk/plugin/elf_image.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

using test::kEntry;
using test::kFar;

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
  ASSERT_FALSE(c.needed.empty());
  EXPECT_EQ(c.needed.back(), "libc.so.6");
  EXPECT_TRUE(c.not_found.empty());
  EXPECT_TRUE(c.preload.empty());
  EXPECT_FALSE(elf_verdict("x.so", c));
}

TEST_F(ElfTest, build_id) {
  const std::string id = check().build_id;
  if (id.empty()) GTEST_SKIP() << "this toolchain writes no build id";
  EXPECT_EQ(id.size(), 40u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
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
      {"version", header([](Elf64_Ehdr &h) { h.e_version = 2; }),
       "expected ELF version 1, found 2"},
      {"system", header([](Elf64_Ehdr &h) { h.e_ident[EI_OSABI] = ELFOSABI_FREEBSD; }),
       "expected a library for Linux (ELF OS 0 or 3), found 9"},
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
      {"alignment", segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_align = 4097; }),
       "a segment's alignment, 4097, "},
      {"offset_in_page", segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_vaddr += 1; }),
       "a segment's alignment, "},
      {"overlap", segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_memsz = kFar; }),
       "segments to load overlap"},
      {"no_load",
       [](test::ElfImage &i) {
         for (int n = 0; n < 16; ++n) try {
             i.change_segment(PT_LOAD, [](Elf64_Phdr &p) { p.p_type = PT_NULL; });
           } catch (const std::runtime_error &) {
             return;
           }
       },
       "expected segments to load (PT_LOAD), found none"},
      {"no_dynamic", segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_type = PT_NULL; }),
       "expected one dynamic section (PT_DYNAMIC), found 0"},
      {"dynamic_elsewhere", segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_vaddr += 16; }),
       "its dynamic section is outside"},
      {"dynamic_size", segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_filesz -= 1; }),
       "expected a dynamic section of entries of 16 bytes"},
      {"dynamic_end", segment(PT_DYNAMIC, [](Elf64_Phdr &p) { p.p_filesz = 64; }),
       "its dynamic section has no end"},
      {"executable_stack", segment(PT_GNU_STACK, [](Elf64_Phdr &p) { p.p_flags |= PF_X; }),
       "it requires an executable stack"},
      {"stack_not_stated", segment(PT_GNU_STACK, [](Elf64_Phdr &p) { p.p_type = PT_NULL; }),
       "it does not say that its stack need not be executable"},
      {"relro_elsewhere", segment(PT_GNU_RELRO, [](Elf64_Phdr &p) { p.p_vaddr = kFar; }),
       "its read-only-after-relocation segment is outside"},
      {"names", value(DT_STRTAB, kFar), "its table of names (DT_STRTAB) is outside"},
      {"names_size", value(DT_STRSZ, kFar), "its table of names (DT_STRTAB) is outside"},
      {"needed_name", value(DT_NEEDED, kFar), "a name is outside of its table of names"},
      {"symbols", value(DT_SYMTAB, kFar), "its table of symbols (DT_SYMTAB) is outside"},
      {"symbol_size", value(DT_SYMENT, 8), "its table of symbols (DT_SYMTAB) is outside"},
      {"hash_elsewhere", value(DT_GNU_HASH, kFar), "its hash table points outside"},
      {"no_hash", [](test::ElfImage &i) { i.set_tag(DT_GNU_HASH, 0x6ffffff0 - 1); },
       "it has no hash table"},
      {"no_buckets", [](test::ElfImage &i) { i.put(i.offset(i.value(DT_GNU_HASH)), uint32_t{0}); },
       "its hash table (DT_GNU_HASH) has 0 buckets"},
      {"many_buckets", [](test::ElfImage &i) { i.put(i.offset(i.value(DT_GNU_HASH)), UINT32_MAX); },
       "its hash table points outside"},
      {"first_symbol",
       [](test::ElfImage &i) { i.put(i.offset(i.value(DT_GNU_HASH)) + 4, UINT32_MAX); },
       "its hash table (DT_GNU_HASH) names a symbol before its first"},
      {"relocations", value(DT_RELA, kFar), "its table of relocations (DT_RELA) is outside"},
      {"relocation_size", value(DT_RELASZ, 25), "its table of relocations (DT_RELA) has 25 bytes"},
      {"initialisers", value(DT_INIT_ARRAY, kFar), "its table of initialisers"},
      {"finalisers", value(DT_FINI_ARRAYSZ, 9), "its table of finalisers"},
      {"first_function", value(DT_INIT, 8), "DT_INIT is outside of its code"},
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

// The processor that a library is for has its usual name.
TEST_F(ElfTest, library_of_another_processor) {
  const std::vector<std::pair<uint16_t, std::string>> machines = {
      {EM_X86_64, "x86-64"}, {EM_AARCH64, "aarch64"}, {EM_386, "x86"},           {EM_ARM, "arm"},
      {EM_PPC64, "ppc64"},   {EM_RISCV, "riscv"},     {EM_MIPS, "ELF machine 8"}};
  const std::vector<std::pair<unsigned char, std::string>> classes = {
      {ELFCLASS64, "64-bit "}, {ELFCLASS32, "32-bit "}, {ELFCLASSNONE, ""}};
  for (const auto &machine : machines)
    for (const auto &bits : classes) {
      header([&](Elf64_Ehdr &h) {
        h.e_machine = machine.first;
        h.e_ident[EI_CLASS] = bits.first;
        h.e_ident[EI_DATA] = ELFDATA2MSB;
      })(image);
      EXPECT_THAT(problem(), testing::EndsWith("found one for " + bits.second + machine.second));
    }
}

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

TEST_F(ElfTest, what_to_do_with_an_entry_of_another_abi) {
  for (const auto &[entry, remedy] : std::vector<std::pair<std::string, std::string>>{
           {"octavo_plugin_query_v1", "rebuild the plugin with the headers of this liboctavo"},
           {"octavo_plugin_query_1", "upgrade liboctavo"},
           {"octavo_plugin_query_2", "install a build of the plugin for ABI major 1"}}) {
    if (entry == OCTAVO_PLUGIN_SYMBOL) continue;  // once it is this host's own
    ElfCheck c;
    c.entry = entry;
    EXPECT_EQ(elf_verdict("x.so", c)->remedy.text, remedy);
  }
}

TEST_F(ElfTest, needed_library_that_is_nowhere) {
  image.replace("libc.so.6", "libq.so.6");
  const ElfCheck c = check();
  EXPECT_EQ(c.problem, "");
  EXPECT_EQ(c.not_found, std::vector<std::string>{"libq.so.6"});
  const auto verdict = elf_verdict("x.so", c);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->text,
            "x.so: cannot be loaded: it needs libq.so.6, which the system's loader "
            "would not find");
  EXPECT_EQ(verdict->remedy.text, "install libq.so.6, or name its directory in LD_LIBRARY_PATH");
}

}  // namespace
}  // namespace octavo
