// One file an answer, named by the hash of the directory's path, with the path inside: two programs
// that record answers at once do not meet.
#include "sdk/src/file/allowed.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/file/atomic_file.h"
#include "sdk/src/file/privilege_file.h"
#include "sdk/src/file/privilege_path.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

constexpr char kDomain[] = "octavo.discovery";
constexpr size_t kMostBytes = 1 << 16;

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value != nullptr && *value == '/' ? value : "";
}

// Where the answer for this directory, whose path is resolved, is kept; empty: nowhere.
std::string answer_for(const std::string &directory) {
  const std::string data = user_data_directory();
  return data.empty() ? data : data + "/allowed/" + sha256_of(directory);
}

std::string resolved(const std::string &directory) {
  std::error_code error;
  const fs::path found = fs::canonical(directory, error);
  if (!error && !fs::is_directory(found, error))
    error = std::make_error_code(std::errc::not_a_directory);
  if (error)
    throw Failure(OCTAVO_INVALID, kDomain, directory,
                  ": expected a directory, found: ", error.message());
  return found.string();
}

std::string place_of_answer(const std::string &directory) {
  const std::string path = answer_for(directory);
  if (path.empty())
    throw Failure(
        OCTAVO_NO_RESOURCE, kDomain,
        "expected a place to record the answer, found neither XDG_DATA_HOME nor HOME with an "
        "absolute path; set one of them, or name the directory in OCTAVO_PLUGIN_PATH");
  return path;
}

[[noreturn]] void fail_record(const std::string &path, int error) {
  throw Failure(OCTAVO_NO_RESOURCE, kDomain, path,
                ": expected a file that can be written, found: ", std::strerror(error),
                "; check the path and its permissions");
}

}  // namespace

std::string user_data_directory() {
  const std::string data = variable("XDG_DATA_HOME"), home = variable("HOME");
  if (!data.empty()) return data + "/octavo";
  return home.empty() ? home : home + "/.local/share/octavo";
}

bool is_allowed(const std::string &directory) {
  int error = 0;
  const std::string whole = resolved_path(directory, &error);
  const std::string path = error != 0 ? std::string() : answer_for(whole);
  if (path.empty()) return false;
  try {
    const CheckedFile file(path, kDomain);
    return path_problem(path, file, trusted_owner(false), Links::kFollow).empty() &&
           file.read(kMostBytes) == whole + "\n";
  } catch (const Failure &) {
    return false;  // nobody has answered
  }
}

void allow(const std::string &directory) {
  const std::string whole = resolved(directory), path = place_of_answer(whole);
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  fs::create_directories(folder.parent_path(), error);
  if (!error && mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    fail_record(folder.string(), errno);
  if (error) fail_record(folder.string(), error.value());
  AtomicFile draft(path, 0600);
  const std::string text = whole + "\n";
  if (draft.file() < 0 || !draft.write(text.data(), text.size()) || !draft.close() ||
      !draft.commit())
    fail_record(path, errno);
  if (!is_allowed(whole))
    throw Failure(
        OCTAVO_NO_RESOURCE, kDomain, path,
        ": expected a file that only you and root can replace, found one that others can; "
        "take their right to write to it and to the directories above");
}

// The directory itself may be gone.
void disallow(const std::string &directory) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(directory, error);
  const std::string path = place_of_answer(error ? directory : whole.string());
  if (unlink(path.c_str()) != 0 && errno != ENOENT) fail_record(path, errno);
}

}  // namespace octavo
