// Writes to a temporary name in the same directory, then renames.
#include "files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "error.h"

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

void prepare_directory(const std::string &directory) {
  std::error_code error;
  if (fs::exists(directory, error) && !fs::is_directory(directory, error)) {
    throw UserError("--out " + directory, "a directory, or a name that is free",
                    "a file of this name", "choose another --out");
  }
  fs::create_directories(directory, error);
  if (error) {
    throw UserError("--out " + directory, "a directory that can be created", error.message(),
                    "choose another --out, or change the permissions of its parent");
  }
  const std::string probe = directory + "/.write-test." + std::to_string(getpid());
  errno = 0;
  bool fine = false;
  {
    std::ofstream out(probe);
    fine = static_cast<bool>(out << "x" << std::flush);
  }
  const int reason = errno;
  fs::remove(probe, error);
  if (!fine) {
    throw UserError("--out " + directory, "a directory that files can be written to",
                    std::strerror(reason), "choose another --out, or change its permissions");
  }
}

void write_atomically(const std::string &path, const std::string &content) {
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  errno = 0;
  std::ofstream out(temporary, std::ios::binary);
  out << content << std::flush;
  const bool written = out.good();
  const int reason = errno;
  out.close();
  std::error_code error;
  if (written) flush_to_disk(temporary);
  if (written) fs::rename(temporary, path, error);
  if (!written || error) {
    const std::string found = written ? error.message() : std::strerror(reason);
    fs::remove(temporary, error);
    throw UserError(path, "a file that can be written", found,
                    "free space or choose another --out");
  }
  const std::string parent = fs::path(path).parent_path().string();
  flush_to_disk(parent.empty() ? "." : parent);
}

}  // namespace gpt
