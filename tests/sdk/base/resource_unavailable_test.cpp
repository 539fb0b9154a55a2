// What counts as a shortage, by number and by the words of dlopen.
#include "sdk/src/base/resource_unavailable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace octavo {
namespace {

// All that Linux has, and numbers that it has not.
TEST(ResourceUnavailable, every_number_but_five) {
  std::vector<int> verdicts;
  for (int error = 0; error < 600; ++error) {
    bool is_short = false;
    try {
      pass_shortage("f: cannot be read", "open", error);
    } catch (const ResourceUnavailable &) {
      is_short = true;
    }
    EXPECT_EQ(is_short, !is_verdict(error)) << error;
    if (!is_short) verdicts.push_back(error);
  }
  EXPECT_THAT(verdicts,
              testing::UnorderedElementsAre(ENOENT, EACCES, ELOOP, ENOTDIR, ENAMETOOLONG));
}

TEST(ResourceUnavailable, words_of_the_loader) {
  for (const char *words :
       {"load() failed (/p.so: cannot open shared object file: Too many open files): Bad file",
        "/p.so: failed to map segment from shared object", "p.so: cannot create searchlist",
        "/p.so: cannot allocate symbol data", "out of memory",
        "/p.so: cannot apply additional memory protection: Cannot allocate memory"})
    EXPECT_FALSE(names_verdict(words)) << words;
  for (int error = 1; error <= 133; ++error)
    for (const char *words :
         {"/p.so: cannot open shared object file", "/p.so: cannot read file data",
          "/p.so: failed to map segment from shared object", "/p.so: cannot stat shared object"})
      EXPECT_EQ(names_verdict(std::string(words) + ": " + std::strerror(error)),
                is_verdict(error) && std::strstr(words, "cannot open") != nullptr)
          << words << error;
  for (const char *words : {"/p.so: undefined symbol: f", "/p.so: invalid ELF header",
                            "liba.so: cannot open shared object file: No such file or directory",
                            "/p.so: cannot allocate memory in static TLS block"})
    EXPECT_TRUE(names_verdict(words)) << words;
}

TEST(ResourceUnavailable, message_has_the_remedy_of_its_number) {
  const ResourceUnavailable s("/p.so: cannot be read", "open", EMFILE, Stage::kElf);
  EXPECT_EQ(
      s.message(),
      "/p.so: cannot be read: Too many open files (open, errno 24); no fallback was selected and "
      "the result was not cached; close files, or raise this process's limit of open files "
      "(ulimit -n)");
  EXPECT_EQ(s.verdict().reason, uint32_t{OCTAVO_REASON_RESOURCE});
  EXPECT_EQ(s.verdict().stage, Stage::kElf);
}

TEST(ResourceUnavailable, stage_of_the_first_that_knows_it) {
  ResourceUnavailable s("a", Remedy("b"));
  s.at(Stage::kTrust);
  s.at(Stage::kLoad);
  EXPECT_EQ(s.verdict().stage, Stage::kTrust);
}

TEST(ResourceUnavailable, answers_of_plugins) {
  EXPECT_NO_THROW(pass_resource(OCTAVO_INVALID, "te: seal", Stage::kSession));
  EXPECT_THROW(pass_resource(OCTAVO_NO_RESOURCE, "te: seal", Stage::kSession), ResourceUnavailable);
}

}  // namespace
}  // namespace octavo
