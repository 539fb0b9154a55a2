// The files of a checkpoint: whole or refused, at any time of a save.
#include "host_adapters/torch/cpp/src/saved_files.h"

#include <gtest/gtest.h>
#include <octavo/torch/error.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <torch/types.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>
#include <thread>

namespace {

using octavo::torch::Error;
using octavo::torch::FilesReader;
using octavo::torch::FilesWriter;
using octavo::torch::LockedDirectory;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;
namespace fs = std::filesystem;

const std::vector<std::string> kNames = {"octavo.pt", "optimizer.pt", "model.pt"};

void save(const fs::path &directory, int64_t number) {
  FilesWriter files(directory);
  for (const std::string &name : kNames) {
    OutputArchive archive;
    archive.write("number", at::full({64}, number), /*is_buffer=*/true);
    files.add(name, archive);
  }
  files.commit();
}

// The number that all files hold. Throws what FilesReader throws.
int64_t load(const fs::path &directory) {
  const FilesReader files(directory);
  int64_t number = -1;
  for (const std::string &name : kNames) {
    at::Tensor tensor;
    files.open(name, at::kCPU).read("number", tensor, /*is_buffer=*/true);
    const auto found = tensor[63].item<int64_t>();
    EXPECT_TRUE(number == -1 || number == found) << name << " is of another save";
    number = found;
  }
  return number;
}

std::string refusal(octavo_status status, const std::function<void()> &fn) {
  try {
    fn();
  } catch (const Error &e) {
    EXPECT_EQ(e.status(), status) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "expected a refusal";
  return "";
}

std::string bytes_of(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_bytes(const fs::path &path, const std::string &bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

fs::path new_folder() {
  std::string name = (fs::temp_directory_path() / "octavo_saved_files_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
  return name;
}

class SavedFiles : public ::testing::Test {
 protected:
  ~SavedFiles() override { fs::remove_all(folder_); }

  const fs::path folder_ = new_folder();
  const fs::path directory_ = folder_ / "checkpoint";
};

TEST_F(SavedFiles, AreReadAsTheyWereSavedAndListedForB2sum) {
  save(directory_, 1);
  EXPECT_EQ(load(directory_), 1);
  save(directory_, 2);
  EXPECT_EQ(load(directory_), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 4);
  const std::string command =
      "cd '" + directory_.string() + "' && b2sum --check --quiet files.b2sum";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(SavedFiles, EachFlippedBitIsRefused) {
  save(directory_, 1);
  std::mt19937 draw(7);
  for (const std::string name : {"octavo.pt", "optimizer.pt", "model.pt", "files.b2sum"}) {
    const std::string whole = bytes_of(directory_ / name);
    for (int i = 0; i < 100; ++i) {
      std::string damaged = whole;
      damaged[draw() % damaged.size()] ^= static_cast<char>(1 << draw() % 8);
      write_bytes(directory_ / name, damaged);
      const std::string text = refusal(OCTAVO_INVALID, [&] { load(directory_); });
      if (name != "files.b2sum") {
        EXPECT_NE(text.find(name + ": expected the bytes with BLAKE2b"), std::string::npos) << text;
      }
    }
    write_bytes(directory_ / name, whole);
  }
  EXPECT_EQ(load(directory_), 1);
}

TEST_F(SavedFiles, FilesThatAreMissingOrOfAnotherSaveAreRefused) {
  save(directory_, 1);
  save(folder_ / "other", 2);
  fs::copy_file(folder_ / "other" / "model.pt", directory_ / "model.pt",
                fs::copy_options::overwrite_existing);
  EXPECT_NE(refusal(OCTAVO_INVALID, [&] { load(directory_); }).find("of another checkpoint"),
            std::string::npos);
  fs::remove(directory_ / "model.pt");
  refusal(OCTAVO_RESOURCE, [&] { load(directory_); });
  fs::remove(directory_ / "files.b2sum");
  EXPECT_NE(refusal(OCTAVO_RESOURCE, [&] { load(directory_); }).find("a save_state that ended"),
            std::string::npos);
  refusal(OCTAVO_RESOURCE, [&] { load(folder_ / "nothing"); });
}

TEST_F(SavedFiles, WhatIsNoRegularFileIsRefusedAtOnce) {
  save(directory_, 1);
  for (const char *name : {"files.b2sum", "model.pt"}) {
    const std::string whole = bytes_of(directory_ / name);
    for (const auto &[target, found] :
         {std::pair("", "a FIFO"), {"/dev/zero", "no regular file"}, {"/", "a directory"}}) {
      fs::remove(directory_ / name);
      if (*target == '\0') {
        ASSERT_EQ(mkfifo((directory_ / name).c_str(), 0600), 0);
      } else {
        fs::create_symlink(target, directory_ / name);
      }
      const std::string text = refusal(OCTAVO_RESOURCE, [&] { load(directory_); });
      EXPECT_NE(text.find(std::string(name) + ": expected"), std::string::npos) << text;
      EXPECT_NE(text.find(found), std::string::npos) << text;
    }
    fs::remove(directory_ / name);
    write_bytes(directory_ / name, whole);
  }
  EXPECT_EQ(load(directory_), 1);
}

// Another file takes the name again and again, also between the check and the use.
TEST_F(SavedFiles, AnExchangedFileIsNeverLoaded) {
  save(directory_, 1);
  save(folder_ / "other", 2);
  const std::string mine = bytes_of(directory_ / "model.pt"),
                    other = bytes_of(folder_ / "other" / "model.pt");
  std::atomic<bool> ends = false;
  std::thread exchange([&] {
    for (int64_t i = 0; !ends; ++i) {
      write_bytes(folder_ / "next", i % 2 == 0 ? other : mine);
      fs::rename(folder_ / "next", directory_ / "model.pt");
    }
  });
  int loaded = 0, refused = 0;
  for (int i = 0; i < 1000; ++i) {
    at::Tensor tensor;
    try {
      const FilesReader files(directory_);
      files.open("model.pt", at::kCPU).read("number", tensor, /*is_buffer=*/true);
    } catch (const Error &e) {
      ++refused;
      continue;
    }
    ++loaded;
    EXPECT_EQ(tensor[0].item<int64_t>(), 1) << "try " << i;
  }
  ends = true;
  exchange.join();
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, 0);
}

// What a directory holds when a save dies: after k of its calls.
TEST_F(SavedFiles, AtEachPointOfASaveTheOldOrTheNewOneIsThere) {
  save(folder_ / "new", 2);
  const auto begun = [&](size_t files, bool has_list, size_t renamed) {
    fs::remove_all(directory_);
    save(directory_, 1);
    for (size_t i = 0; i < files; ++i)
      fs::copy_file(folder_ / "new" / kNames[i],
                    directory_ / (kNames[i] + (i < renamed ? "" : ".new")),
                    fs::copy_options::overwrite_existing);
    if (has_list) fs::copy_file(folder_ / "new" / "files.b2sum", directory_ / "files.b2sum.new");
  };
  for (size_t files = 0; files <= 3; ++files) {
    begun(files, false, 0);
    EXPECT_EQ(load(directory_), 1) << files << " new files";
    save(directory_, 3);
    EXPECT_EQ(load(directory_), 3) << files << " new files";
  }
  for (size_t renamed = 0; renamed <= 3; ++renamed) {
    begun(3, true, renamed);
    EXPECT_EQ(load(directory_), 2) << renamed << " files renamed";
    { const FilesWriter unfinished(directory_); }
    EXPECT_EQ(load(directory_), 2) << renamed << " files renamed";
    EXPECT_EQ(std::distance(fs::directory_iterator(directory_), {}), 4);
    save(directory_, 3);
    EXPECT_EQ(load(directory_), 3) << renamed << " files renamed";
  }
}

TEST_F(SavedFiles, AKilledSaverLeavesAWholeCheckpoint) {
  save(directory_, 0);
  std::mt19937 draw(11);
  int64_t last = 0;
  for (int round = 0; round < 16; ++round) {
    const pid_t child = fork();
    if (child == 0)
      for (int64_t number = last + 1;; ++number) save(directory_, number);
    usleep(1000 + draw() % 250000);  // some saves, and a part of one
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const int64_t found = load(directory_);
    EXPECT_GE(found, last);
    last = found;
  }
  EXPECT_GT(last, 0) << "no child ever saved";
}

TEST_F(SavedFiles, ASecondWriterIsRefused) {
  save(directory_, 1);
  const LockedDirectory first(directory_, LockedDirectory::For::kWriting);
  EXPECT_NE(refusal(OCTAVO_WRONG_STATE, [&] { save(directory_, 2); }).find("found one in use"),
            std::string::npos);
}

TEST_F(SavedFiles, AFileThatMayNotGrowIsAnErrorAndLeavesTheOldOne) {
  save(directory_, 1);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit = {1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      save(directory_, 2);
    } catch (const Error &e) {
      _exit(e.status() == OCTAVO_RESOURCE ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(load(directory_), 1);
}

}  // namespace
