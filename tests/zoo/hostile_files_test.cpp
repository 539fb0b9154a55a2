// Hostile files through check and helper: every truncation of a real plugin, and seeded changes to
// its headers and tables. Whatever the file, the answer is a verdict in bounded time.
//
// By default a part that takes seconds; OCTAVO_HOSTILE=full is every length and 100,000 mutants.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "sdk/src/file/probe_places.h"
#include "sdk/src/plugin/elf.h"
#include "sdk/src/probe/probe_spawn.h"
#include "tests/sdk/plugin/elf_image.h"
#include "tests/support/environment.h"
#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

bool full() {
  const char *size = std::getenv("OCTAVO_HOSTILE");
  return size != nullptr && std::string(size) == "full";
}

// Sanitizers slow the check, and the start of its helper more.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif
constexpr int kTimeoutMs = 2000;
constexpr uint64_t kSeed = 20260101;

double milliseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

struct Tally {
  std::map<std::string, uint64_t> outcomes;
  std::vector<double> refused_wall;       // ms, of files that the check refused
  std::vector<double> refused_processor;  // ms of this thread
  double longest_helper = 0;

  void add(const Tally &other) {
    for (const auto &[outcome, count] : other.outcomes) outcomes[outcome] += count;
    refused_wall.insert(refused_wall.end(), other.refused_wall.begin(), other.refused_wall.end());
    refused_processor.insert(refused_processor.end(), other.refused_processor.begin(),
                             other.refused_processor.end());
    longest_helper = std::max(longest_helper, other.longest_helper);
  }
  static double p99(std::vector<double> times) {
    if (times.empty()) return 0;
    std::sort(times.begin(), times.end());
    return times[times.size() * 99 / 100];
  }
  uint64_t files() const {
    uint64_t sum = 0;
    for (const auto &[outcome, count] : outcomes) sum += count;
    return sum;
  }
  void print(const char *what, double seconds) const {
    std::printf("%s: %llu files in %.1f s\n", what, static_cast<unsigned long long>(files()),
                seconds);
    for (const auto &[outcome, count] : outcomes)
      std::printf("  %-28s %llu\n", outcome.c_str(), static_cast<unsigned long long>(count));
    std::printf(
        "  refused by the check: p99 %.3f ms wall, %.3f ms processor; longest helper %.0f "
        "ms\n",
        p99(refused_wall), p99(refused_processor), longest_helper);
  }
};

class HostileFiles : public testing::Test {
 protected:
  HostileFiles() : image_(test::read_text(OCTAVO_PLUGIN)) {
    std::vector<std::string> looked;
    helper_ = probe_helper(&looked);
    EXPECT_NE(helper_, "");
  }

  // One file as a loader meets it, up to the point where a host would open it.
  void meet(const std::string &file, Tally &tally) const {
    const double wall = milliseconds(CLOCK_MONOTONIC);
    const double processor = milliseconds(CLOCK_THREAD_CPUTIME_ID);
    const ElfCheck check = inspect_elf(file);
    if (const auto refusal = elf_verdict(file, check)) {
      tally.refused_wall.push_back(milliseconds(CLOCK_MONOTONIC) - wall);
      tally.refused_processor.push_back(milliseconds(CLOCK_THREAD_CPUTIME_ID) - processor);
      ++tally.outcomes["refused by the check"];
      return;
    }
    const double begin = milliseconds(CLOCK_MONOTONIC);
    const SpawnedProbe probe =
        spawn_probe({helper_, file, "reference", "1", "0", std::to_string(kTimeoutMs), "unchecked"},
                    kTimeoutMs);
    tally.longest_helper = std::max(tally.longest_helper, milliseconds(CLOCK_MONOTONIC) - begin);
    const std::string outcome = !probe.started         ? "HELPER NOT STARTED"
                                : probe.late           ? "helper: deadline"
                                : !probe.fault.empty() ? "helper: " + probe.fault.substr(0, 24)
                                : !probe.answer.verdicts.empty() ? "helper: refused"
                                                                 : "accepted";
    ++tally.outcomes[outcome];
  }

  // Calls work(index, file, tally) for every index, on two threads with a file each.
  template <typename Work>
  Tally run(uint64_t count, Work work) {
    std::atomic<uint64_t> next{0};
    std::mutex mutex;
    Tally sum;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([&, t] {
        const std::string file = dir_ / ("hostile" + std::to_string(t) + ".so");
        Tally own;
        for (uint64_t i = next++; i < count; i = next++) work(i, file, own);
        const std::lock_guard lock(mutex);
        sum.add(own);
      });
    for (std::thread &t : threads) t.join();
    return sum;
  }

  static void write(const std::string &file, const std::string &bytes) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }

  void expect_contained(const Tally &tally, uint64_t count) {
    EXPECT_EQ(tally.files(), count);
    EXPECT_EQ(tally.outcomes.count("HELPER NOT STARTED"), 0u);
    // The deadline, and what a busy machine adds to it.
    EXPECT_LT(tally.longest_helper, kTimeoutMs + 5000);
    // Processor time, since other programs share this machine.
    EXPECT_LE(Tally::p99(tally.refused_processor), 5.0);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a helper was not reaped";
  }

  test::Environment environment_;
  test::TempDir dir_;
  test::ElfImage image_;
  std::string helper_;
};

TEST_F(HostileFiles, every_truncation) {
  const std::string &whole = image_.bytes();
  uint64_t mapped = 0;
  for (const Elf64_Phdr &p : image_.segments())
    mapped = std::max<uint64_t>(mapped, p.p_offset + p.p_filesz);
  // Lengths that the check lets pass lack trailing sections only: all of them load the same bytes.
  const uint64_t step = full() ? 1 : 997;
  const uint64_t refused_step = full() || !kIsSanitized ? 1 : 23;  // above the headers
  std::vector<uint64_t> lengths;
  for (uint64_t l = 0; l < mapped; l += l < 4096 ? 1 : refused_step) lengths.push_back(l);
  const uint64_t refused = lengths.size();
  for (uint64_t l = mapped; l <= whole.size(); l += step) lengths.push_back(l);
  const double begin = milliseconds(CLOCK_MONOTONIC);
  const Tally tally = run(lengths.size(), [&](uint64_t i, const std::string &file, Tally &own) {
    write(file, whole.substr(0, lengths[i]));
    meet(file, own);
  });
  tally.print("truncations", (milliseconds(CLOCK_MONOTONIC) - begin) / 1e3);
  expect_contained(tally, lengths.size());
  EXPECT_EQ(tally.outcomes.at("refused by the check"), refused);
  EXPECT_EQ(tally.outcomes.at("accepted"), lengths.size() - refused);
}

// A third each: anywhere in the first 4 KiB, in file and program headers, in the dynamic section
// and the tables of names, symbols and hashes.
TEST_F(HostileFiles, seeded_mutants) {
  const std::string &whole = image_.bytes();
  const auto dynamic = image_.get<Elf64_Phdr>(image_.segment(PT_DYNAMIC));
  const uint64_t headers = image_.header().e_phoff + image_.header().e_phnum * sizeof(Elf64_Phdr);
  const uint64_t tables = image_.offset(image_.value(DT_GNU_HASH));
  const uint64_t tables_end = image_.offset(image_.value(DT_STRTAB)) + image_.value(DT_STRSZ);
  const uint64_t count = full() ? 100000 : kIsSanitized ? 300 : 1500;
  const double begin = milliseconds(CLOCK_MONOTONIC);
  const Tally tally = run(count, [&](uint64_t i, const std::string &file, Tally &own) {
    std::mt19937_64 random(test::seed_or(kSeed) + i);
    std::string bytes = whole;
    for (uint64_t n = random() % 8 + 1; n > 0; --n) {
      const uint64_t place = i % 3 == 0          ? random() % 4096
                             : i % 3 == 1        ? random() % headers
                             : random() % 2 == 0 ? dynamic.p_offset + random() % dynamic.p_filesz
                                                 : tables + random() % (tables_end - tables);
      bytes[place] = static_cast<char>(random());
    }
    write(file, bytes);
    meet(file, own);
  });
  tally.print("mutants", (milliseconds(CLOCK_MONOTONIC) - begin) / 1e3);
  expect_contained(tally, count);
  EXPECT_GT(tally.outcomes.at("refused by the check"), count / 4);
}

}  // namespace
}  // namespace octavo
