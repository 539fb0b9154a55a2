/* Descriptors of processes: pidfd_open gives one for a process of another parent, too, and it stays
 * that process when its id is given to another one. */
#include "host_adapters/ranks/mpi/peers.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace octavo::mpi {
namespace {

/* FNV-1a, which tells machines apart and no more. */
uint64_t hash_of_file(const char *path) {
  std::FILE *file = std::fopen(path, "re");
  if (file == nullptr) return 0;
  char text[128];
  const size_t size = std::fread(text, 1, sizeof(text), file);
  std::fclose(file);
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ static_cast<unsigned char>(text[i])) * 0x100000001B3u;
  return size == 0 ? 0 : hash;
}

}  // namespace

Process this_process() {
  Process p;
  struct stat space = {};
  p.machine = hash_of_file("/proc/sys/kernel/random/boot_id");
  if (stat("/proc/self/ns/pid", &space) == 0) p.space = space.st_ino;
  p.id = getpid();
  return p;
}

void Peers::watch(const std::vector<Process> &all, uint32_t rank) {
  forget();
  all_ = all;
  const Process &own = all[rank];
  for (uint32_t r = 0; r < all.size(); ++r) {
    const bool is_near = own.machine != 0 && own.space != 0 && all[r].machine == own.machine &&
                         all[r].space == own.space;
    if (r == rank || !is_near) continue;
#ifdef SYS_pidfd_open
    const auto file = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(all[r].id), 0));
    if (file < 0 && errno == ESRCH) gone_ = r;
    if (file < 0) continue;
    descriptors_.push_back({file, POLLIN, 0});
    ranks_.push_back(r);
#endif
  }
}

void Peers::forget() {
  for (const pollfd &d : descriptors_) close(d.fd);
  descriptors_.clear();
  ranks_.clear();
  gone_ = -1;
}

int64_t Peers::lost() {
  if (gone_ >= 0) return gone_;
  if (descriptors_.empty() || poll(descriptors_.data(), descriptors_.size(), 0) <= 0) return -1;
  for (size_t i = 0; i < descriptors_.size(); ++i)
    if ((descriptors_[i].revents & POLLIN) != 0) return ranks_[i];
  return -1;
}

pid_t Peers::process_of(uint32_t rank) const {
  return rank < all_.size() ? static_cast<pid_t>(all_[rank].id) : 0;
}

}  // namespace octavo::mpi
