// The bounded look at a library's headers.
#include "sdk/src/elf.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

class ElfTest : public testing::Test {
 protected:
  std::string whole = test::read_text(OCTAVO_ZOO_DIR "/fake_good.so");
  std::string problem() { return elf_problem(dir.write("x.so", whole)); }
  Elf64_Ehdr header() {
    Elf64_Ehdr h;
    std::memcpy(&h, whole.data(), sizeof(h));
    return h;
  }
  void put(const Elf64_Ehdr &h) { std::memcpy(whole.data(), &h, sizeof(h)); }
  test::TempDir dir;
};

TEST_F(ElfTest, real_library_has_no_problem) {
  EXPECT_EQ(problem(), "");
}

TEST_F(ElfTest, missing_file) {
  EXPECT_EQ(elf_problem(dir / "none.so"), "it cannot be read; check its permissions");
}

// Whatever is cut off, the answer is a text and never a signal; without all segments it is no.
TEST_F(ElfTest, every_length) {
  const std::string all = whole;
  uint64_t needed = 0;
  for (uint64_t i = 0; i < header().e_phnum; ++i) {
    Elf64_Phdr p;
    std::memcpy(&p, all.data() + header().e_phoff + i * sizeof(p), sizeof(p));
    needed = std::max<uint64_t>(needed, p.p_offset + p.p_filesz);
  }
  ASSERT_GT(needed, 1000u);
  for (size_t size = 0; size < needed; size += size < 200 ? 1 : 97) {
    whole = all.substr(0, size);
    ASSERT_NE(problem(), "") << size;
  }
  whole = all.substr(0, needed);
  EXPECT_EQ(problem(), "");
}

TEST_F(ElfTest, offsets_that_overflow) {
  Elf64_Ehdr h = header();
  h.e_phoff = UINT64_MAX - 8;
  put(h);
  EXPECT_EQ(problem().substr(0, 21), "the file is truncated");
}

TEST_F(ElfTest, segment_that_overflows) {
  Elf64_Phdr p;
  std::memcpy(&p, whole.data() + header().e_phoff, sizeof(p));
  p.p_offset = UINT64_MAX - 1;
  p.p_filesz = 16;
  std::memcpy(whole.data() + header().e_phoff, &p, sizeof(p));
  EXPECT_EQ(problem().substr(0, 21), "the file is truncated");
}

TEST_F(ElfTest, no_program_headers) {
  Elf64_Ehdr h = header();
  h.e_phnum = 0;
  put(h);
  EXPECT_EQ(problem(), "expected program headers of 56 bytes, found 0 of 56");
}

TEST_F(ElfTest, other_class_and_byte_order) {
  Elf64_Ehdr h = header();
  h.e_ident[EI_CLASS] = ELFCLASS32;
  put(h);
  EXPECT_NE(problem().find("found class 1"), std::string::npos) << problem();
  h.e_ident[EI_CLASS] = ELFCLASS64;
  h.e_ident[EI_DATA] = ELFDATA2MSB;
  put(h);
  EXPECT_NE(problem(), "");
}

}  // namespace
}  // namespace octavo
