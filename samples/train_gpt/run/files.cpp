// Writes to a temporary name in the same directory, then renames.
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "../model/error.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

// Best effort: a file system without fsync keeps its own promises.
void flush_to_disk(const std::string &path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

}  // namespace

void prepare_directory(const std::string &option, const std::string &directory) {
  std::error_code error;
  expect(!fs::exists(directory, error) || fs::is_directory(directory, error),
         option + " " + directory, "a directory that can be created, or one that exists",
         "a file of this name", "choose another " + option);
  fs::create_directories(directory, error);
  if (!error && access(directory.c_str(), W_OK | X_OK) != 0)
    error = {errno, std::generic_category()};
  expect(!error, option + " " + directory, "a directory that can be created and written to",
         error.message(), "choose another " + option + ", or change the permissions");
}

void write_atomically(const std::string &path, const std::string &content) {
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  errno = 0;
  std::ofstream out(temporary, std::ios::binary);
  out << content << std::flush;
  std::error_code error;
  if (!out.good()) error = {errno, std::generic_category()};
  out.close();
  if (!error) {
    flush_to_disk(temporary);
    fs::rename(temporary, path, error);
  }
  std::error_code ignored;
  if (error) fs::remove(temporary, ignored);
  expect(!error, path, "a file that can be written", error.message(),
         "free space or choose another directory");
  const std::string parent = fs::path(path).parent_path().string();
  flush_to_disk(parent.empty() ? "." : parent);
}

}  // namespace gpt
