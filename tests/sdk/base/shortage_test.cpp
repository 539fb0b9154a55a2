// What counts as a shortage, by number and by the words of dlopen.
#include "sdk/src/base/shortage.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace octavo {
namespace {

TEST(Shortage, numbers) {
  for (const int error : {EMFILE, ENFILE, ENOMEM, EAGAIN, EIO, EPERM, ENOSYS, EINTR})
    EXPECT_TRUE(is_shortage(error)) << error;
  for (const int error : {0, ENOENT, EACCES, ENOTDIR, ELOOP, ENOEXEC})
    EXPECT_FALSE(is_shortage(error)) << error;
  EXPECT_NO_THROW(pass_shortage("f: cannot be read", EACCES));
  EXPECT_THROW(pass_shortage("f: cannot be read", ENOMEM), Shortage);
}

TEST(Shortage, words_of_the_loader) {
  for (const char *words :
       {"load() failed (/p.so: cannot open shared object file: Too many open files): Bad file",
        "/p.so: failed to map segment from shared object", "p.so: cannot create searchlist",
        "/p.so: cannot allocate symbol data", "out of memory",
        "/p.so: cannot apply additional memory protection: Cannot allocate memory"})
    EXPECT_TRUE(names_shortage(words)) << words;
  for (const char *words : {"/p.so: undefined symbol: f", "/p.so: invalid ELF header",
                            "liba.so: cannot open shared object file: No such file or directory",
                            "/p.so: cannot allocate memory in static TLS block"})
    EXPECT_FALSE(names_shortage(words)) << words;
}

TEST(Shortage, message_has_the_remedy_of_its_number) {
  const Shortage s("/p.so: cannot be read", EMFILE, Stage::kElf);
  EXPECT_EQ(s.message(),
            "/p.so: cannot be read: Too many open files; nothing was chosen in its place, and "
            "nothing is remembered; close files, or raise this process's limit of open files "
            "(ulimit -n)");
  EXPECT_EQ(s.verdict().reason, uint32_t{OCTAVO_REASON_RESOURCE});
  EXPECT_EQ(s.verdict().stage, Stage::kElf);
}

TEST(Shortage, stage_of_the_first_that_knows_it) {
  Shortage s("a", Remedy("b"));
  s.at(Stage::kTrust);
  s.at(Stage::kLoad);
  EXPECT_EQ(s.verdict().stage, Stage::kTrust);
}

TEST(Shortage, answers_of_plugins) {
  EXPECT_NO_THROW(pass_resource(OCTAVO_INVALID, "te: seal", Stage::kSession));
  EXPECT_THROW(pass_resource(OCTAVO_RESOURCE, "te: seal", Stage::kSession), Shortage);
}

}  // namespace
}  // namespace octavo
