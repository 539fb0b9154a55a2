// bench_checkpoint: what hashes add to the time in which a checkpoint's file is written and read.
//
// Usage: bench_checkpoint DIR [MIB] [ROUNDS]. DIR is on the disk that is asked about; MIB of random
// bytes are 16 equal tensors. A round writes and reads once with hashes and once without, in turns;
// the table has medians. "Without" is one thread that writes, syncs and renames, or reads, as
// liboctavo did before it had hashes; "cold" reads what the system has forgotten, "warm" what it
// still has in memory.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
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
#include "sdk/src/checkpoint/checkpoint_hash.h"
#include "sdk/src/checkpoint/checkpoint_work.h"
#include "sdk/src/file/draft.h"

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
    header_.metadata["octavo.schema"] = "2";
    lay_out(header_);
  }
  void write(const std::string &path) const { write_checkpoint_file(path, header_, data_); }
  void write_plainly(const std::string &path) const {
    Draft draft(path, 0666);
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
    for (auto &one : to) one.resize(bytes_);
    work_on_tensors(sizes,
                    [&](size_t i) { file.read("tensor" + std::to_string(i), to[i].data()); });
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
  void hash() const {
    for (const auto &[name, from] : data_) blake2b_of({static_cast<const char *>(from), bytes_});
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

void print(const char *what, const Time &with, const Time &without) {
  const double a = median(with.wall), b = median(without.wall);
  std::printf("%-12s %8.3f s %8.3f s %+8.1f %% %10.3f s %8.3f s\n", what, a, b, 100 * (a - b) / b,
              median(with.cpu), median(without.cpu));
}

int run(const std::string &directory, uint64_t mib, int rounds) {
  const Tensors tensors((mib << 20) / kTensors);
  const std::string hashed = directory + "/hashed", plain = directory + "/plain";
  Time save[2], cold[2], warm[2], hash;
  for (int i = 0; i < rounds; ++i) {
    for (const int side : {i % 2, 1 - i % 2}) {
      const std::string &path = side == 0 ? hashed : plain;
      const auto read = [&] { side == 0 ? tensors.read(path) : tensors.read_plainly(path); };
      unlink(path.c_str());
      measure(save[side], [&] { side == 0 ? tensors.write(path) : tensors.write_plainly(path); });
      forget(path);
      measure(cold[side], read);
      measure(warm[side], read);
    }
    measure(hash, [&] { tensors.hash(); });
  }
  unlink(hashed.c_str());
  unlink(plain.c_str());
  std::printf(
      "%llu MiB in %d tensors, medians of %d rounds; BLAKE2b alone, %.2f GB/s of a processor\n",
      static_cast<unsigned long long>(mib), kTensors, rounds,
      static_cast<double>(mib << 20) / median(hash.cpu) / 1e9);
  std::printf("%-12s %10s %10s %10s %12s %10s\n", "", "hashes", "none", "adds", "processor",
              "none");
  print("save", save[0], save[1]);
  print("load, cold", cold[0], cold[1]);
  print("load, warm", warm[0], warm[1]);
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
