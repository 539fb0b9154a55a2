// O_PATH descriptors all the way down: nothing is opened for reading, no link followed unseen.
#include "sdk/src/file/privilege_path.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/base/resource_unavailable.h"
#include "sdk/src/base/system_call.h"
#include "sdk/src/base/text.h"

namespace octavo {
namespace {

constexpr int kMostLinks = 40;  // as the kernel

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

// As one word of a shell.
std::string for_shell(const std::string &path) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("/._-+:@%,=", c) != nullptr;
  };
  if (std::all_of(path.begin(), path.end(), plain)) return path;
  std::string word = "'";
  for (const char c : path) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

class Walk {
 public:
  // to: what is at the end of the path.
  Walk(uid_t owner, Links links, mode_t to = S_IFREG) : owner_(owner), links_(links), to_(to) {}

  // What is wrong; `end` receives the status of the file at the end of the path.
  std::string run(const std::string &path, struct stat &end) {
    push(path);
    std::string problem = enter_root();
    while (problem.empty() && !left_.empty()) {
      const std::string name = std::move(left_.back());
      left_.pop_back();
      problem = step(name, end);
    }
    return problem;
  }
  const Remedy &remedy() const { return remedy_; }

 private:
  // The components of `path`, the first one on top.
  void push(const std::string &path) {
    std::vector<std::string> names;
    for (std::string &name : split(path, '/'))
      if (!name.empty() && name != ".") names.push_back(std::move(name));
    left_.insert(left_.end(), names.rbegin(), names.rend());
  }

  std::string enter_root() {
    int error = 0;
    at_ = open_path("/", O_PATH | O_DIRECTORY, &error);
    shown_.clear();
    if (error != 0) return not_inspected("/", error);
    return judge("/", status_of(at_, "/"));
  }

  static std::string not_inspected(const std::string &path, int error) {
    return path + " cannot be inspected: " + std::strerror(error);
  }

  std::string step(const std::string &name, struct stat &end) {
    const bool up = name == "..";
    const std::string here = up ? shown_.substr(0, shown_.rfind('/')) : shown_ + "/" + name;
    const std::string named = here.empty() ? "/" : here;
    int error = 0;
    Descriptor next = open_path(name, O_PATH | O_NOFOLLOW, &error, at_.get(), named);
    if (error != 0) return not_inspected(named, error);
    end = status_of(next, named);
    const bool last = left_.empty();
    if (S_ISLNK(end.st_mode) && links_ == Links::kFollow) return follow(here, next, end);
    if (last && to_ == S_IFREG ? !S_ISREG(end.st_mode) : !S_ISDIR(end.st_mode))
      return here + (last && to_ == S_IFREG ? " is not a regular file" : " is not a directory");
    at_ = std::move(next);
    shown_ = here;
    return judge(named, end);
  }

  std::string follow(const std::string &here, const Descriptor &link, const struct stat &status) {
    if (++links_seen_ > kMostLinks)
      return concat(here, ": expected at most ", kMostLinks, " symbolic links, found more");
    if (std::string problem = judge_owner(here, status); !problem.empty()) return problem;
    char target[PATH_MAX];
    const ssize_t size = readlinkat(link.get(), "", target, sizeof(target));
    if (size < 0) throw ResourceUnavailable(here + " cannot be read", "readlinkat", errno);
    if (size <= 0 || size == sizeof(target)) return here + " is a link that cannot be read";
    const std::string to(target, static_cast<size_t>(size));
    push(to);
    if (left_.empty()) return here + " is not a regular file";
    return to[0] == '/' ? enter_root() : std::string();
  }

  std::string judge_owner(const std::string &path, const struct stat &status) {
    if (status.st_uid == 0 || status.st_uid == owner_) return {};
    remedy_ = run_command("chown -h root " + for_shell(path));
    return concat(path, " belongs to user ", status.st_uid, ", expected root",
                  owner_ == kNobody ? std::string() : concat(" or user ", owner_));
  }

  std::string judge(const std::string &path, const struct stat &status) {
    if (std::string problem = judge_owner(path, status); !problem.empty()) return problem;
    const bool sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0 || sticky) return {};
    // Who is in a group is for the system's databases to say, also of one with the user's own name.
    const bool group = (status.st_mode & S_IWGRP) != 0, others = (status.st_mode & S_IWOTH) != 0;
    remedy_ =
        run_command(concat("chmod ", group ? "g" : "", others ? "o" : "", "-w ", for_shell(path)));
    return path + " has mode " + octal(status.st_mode) + ", writable by group or others";
  }

  const uid_t owner_;
  const Links links_;
  const mode_t to_;
  Descriptor at_;
  std::string shown_;              // the path of at_, without the last slash
  std::vector<std::string> left_;  // components still to enter, the next one last
  int links_seen_ = 0;
  Remedy remedy_;
};

}  // namespace

uid_t trusted_owner(bool privileged) {
  if (!privileged || geteuid() != getuid()) return geteuid();
  return geteuid() == 0 ? 0 : kNobody;
}

std::string path_problem(const std::string &path, const CheckedFile &file, uid_t owner, Links links,
                         Remedy *remedy) {
  struct stat end {};
  Walk walk(owner, links);
  std::string problem = walk.run(path, end);
  if (remedy != nullptr) *remedy = walk.remedy();
  if (!problem.empty()) return problem;
  if (!file.is(end)) return path + " was replaced while it was checked";
  return {};
}

std::string folder_problem(const std::string &path, uid_t owner, Remedy *remedy) {
  struct stat end {};
  Walk walk(owner, Links::kFollow, S_IFDIR);
  const std::string problem = walk.run(path, end);
  *remedy = walk.remedy();
  return problem;
}

bool privileged() {
  return getauxval(AT_SECURE) != 0;
}

}  // namespace octavo
