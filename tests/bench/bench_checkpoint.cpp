// bench_checkpoint: what hashes add to the time in which a checkpoint's file is written and read.
//
// Usage: bench_checkpoint DIR [MIB] [ROUNDS]. DIR is on the disk that is asked about; MIB of random
// bytes are 16 equal tensors. A round writes and reads with XXH3, with BLAKE2b and without, in
// turns; the table has medians. "Without" is one thread that writes, syncs and renames, or reads,
// as liboctavo did before it had hashes; "cold" reads what the system has forgotten, "warm" what it
// still has in memory.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "sdk/src/base/descriptor.h"
#include "sdk/src/checkpoint/checkpoint_file.h"
#include "sdk/src/checkpoint/checkpoint_header.h"
#include "sdk/src/file/atomic_file.h"

namespace octavo::bench {
namespace {

constexpr int kTensors = 16;

class Tensors {
 public:
  explicit Tensors(uint64_t bytes) : bytes_(bytes), all_(kTensors * bytes) {
    std::mt19937_64 random(1);
    for (size_t i = 0; i + 8 <= all_.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(&all_[i], &word, sizeof(word));
    }
    for (int i = 0; i < kTensors; ++i) {
      const std::string name = "tensor" + std::to_string(i);
      header_.tensors[name] = {"U8", {bytes}, 0, 0};
      data_[name] = &all_[static_cast<uint64_t>(i) * bytes];
    }
    lay_out(header_);
  }
  void write(const std::string &path, HashKind kind) const {
    CheckpointHeader header = header_;
    header.metadata[kSchema] = schema_of(kind);
    write_checkpoint_file(path, header, data_);
  }
  void write_plainly(const std::string &path) const {
    AtomicFile draft(path, 0666);
    bool fine = draft.file() >= 0;
    for (const auto &[name, from] : data_) fine = fine && draft.write(from, bytes_);
    if (!fine || fsync(draft.file()) != 0 || !draft.close() || !draft.commit() ||
        !draft.sync_directory())
      std::exit(1);
  }
  void read(const std::string &path) const {
    const CheckpointFile file(path);
    std::vector<std::vector<unsigned char>> to(kTensors);
    std::vector<uint64_t> sizes(kTensors, bytes_);
    work_on_tensors(sizes, [&](size_t i) {
      to[i].resize(bytes_);
      file.read("tensor" + std::to_string(i), to[i].data());
    });
  }
  void read_plainly(const std::string &path) const {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    off_t at = 0;
    std::vector<std::vector<unsigned char>> to(kTensors);
    for (auto &one : to) {
      one.resize(bytes_);
      for (uint64_t done = 0; done < bytes_;) {
        const ssize_t got = pread(file.get(), &one[done], bytes_ - done, at);
        if (got <= 0) std::exit(1);
        done += static_cast<uint64_t>(got);
        at += got;
      }
    }
  }
  void hash(HashKind kind) const {
    for (const auto &[name, from] : data_) {
      TensorHash hash(kind);
      hash.add(from, bytes_);
      hash.hex();
    }
  }

 private:
  uint64_t bytes_;
  std::vector<unsigned char> all_;
  CheckpointHeader header_;
  std::map<std::string, const void *> data_;
};

// Of the wall, and of this process on all processors, which other programs change less.
struct Time {
  std::vector<double> wall, cpu;
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void measure(Time &time, const std::function<void()> &work) {
  const double cpu = processor_seconds();
  const auto start = std::chrono::steady_clock::now();
  work();
  time.wall.push_back(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  time.cpu.push_back(processor_seconds() - cpu);
}

double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void forget(const std::string &path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

// By what is hashed: XXH3, BLAKE2b, nothing.
using Times = std::array<Time, 3>;
constexpr std::array kKinds = {HashKind::kXxh3, HashKind::kBlake2b};

void print(const char *what, const Times &times) {
  const double without = median(times[2].wall);
  for (size_t i = 0; i < times.size(); ++i) {
    const double wall = median(times[i].wall);
    std::printf("%-12s %-8s %8.3f s %+8.1f %% %10.3f s\n", what,
                i < kKinds.size() ? hash_name(kKinds[i]) : "none", wall,
                100 * (wall - without) / without, median(times[i].cpu));
  }
}

int run(const std::string &directory, uint64_t mib, int rounds) {
  const Tensors tensors((mib << 20) / kTensors);
  const std::string path = directory + "/checkpoint";
  Times save, cold, warm;
  std::array<Time, 2> hash;
  for (size_t i = 0; i < static_cast<size_t>(rounds); ++i) {
    for (size_t turn = 0; turn < save.size(); ++turn) {
      const size_t side = (i + turn) % save.size();
      const bool plain = side == kKinds.size();
      const auto read = [&] { plain ? tensors.read_plainly(path) : tensors.read(path); };
      unlink(path.c_str());
      measure(save[side],
              [&] { plain ? tensors.write_plainly(path) : tensors.write(path, kKinds[side]); });
      forget(path);
      measure(cold[side], read);
      measure(warm[side], read);
    }
    for (size_t side = 0; side < hash.size(); ++side)
      measure(hash[side], [&] { tensors.hash(kKinds[side]); });
  }
  unlink(path.c_str());
  std::printf("%llu MiB in %d tensors, medians of %d rounds\n",
              static_cast<unsigned long long>(mib), kTensors, rounds);
  for (size_t side = 0; side < hash.size(); ++side)
    std::printf("%s alone, %.2f GB/s of a processor\n", hash_name(kKinds[side]),
                static_cast<double>(mib << 20) / median(hash[side].cpu) / 1e9);
  std::printf("%-12s %-8s %10s %10s %12s\n", "", "hash", "wall", "adds", "processor");
  print("save", save);
  print("load, cold", cold);
  print("load, warm", warm);
  return 0;
}

}  // namespace
}  // namespace octavo::bench

int main(int argc, char **argv) {
  const char *directory = argc > 1 ? argv[1] : ".";
  const uint64_t mib = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 256;
  return octavo::bench::run(directory, std::max<uint64_t>(mib, 1),
                            argc > 3 ? std::max(1, std::atoi(argv[3])) : 9);
}
