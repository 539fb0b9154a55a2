// octavo_threads: every index exactly once, whoever calls and however many threads there are.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "octavo/octavo.h"
#include "tests/support/param_name.h"

namespace {

struct CloseThreads {
  void operator()(octavo_threads *t) const { octavo_threads_close(t); }
};
using Threads = std::unique_ptr<octavo_threads, CloseThreads>;

Threads open_threads(uint32_t count) {
  octavo_threads *raw = nullptr;
  EXPECT_EQ(octavo_threads_open(count, &raw), OCTAVO_OK);
  return Threads(raw);
}

struct Visits {
  explicit Visits(int64_t first, size_t count) : begin(first), seen(count) {}
  int64_t begin;
  std::vector<std::atomic<int>> seen;
  std::atomic<int> short_chunks{0};
  int64_t grain = 1;
};

void visit(void *arg, int64_t begin, int64_t end) {
  auto *v = static_cast<Visits *>(arg);
  if (end - begin < v->grain) v->short_chunks.fetch_add(1);
  for (int64_t i = begin; i < end; ++i) v->seen[static_cast<size_t>(i - v->begin)].fetch_add(1);
}

octavo_status cover(const octavo_parallel *p, Visits &v, int64_t grain) {
  v.grain = grain;
  return p->parallel_for(p->ctx, v.begin, v.begin + static_cast<int64_t>(v.seen.size()), grain,
                         visit, &v);
}

class ThreadsTest : public testing::TestWithParam<uint32_t> {};

TEST_P(ThreadsTest, covers_the_range_exactly_once) {
  const Threads t = open_threads(GetParam());
  const octavo_parallel *p = octavo_threads_parallel(t.get());
  ASSERT_NE(p, nullptr);
  EXPECT_EQ(p->size, sizeof(octavo_parallel));
  EXPECT_EQ(p->kind, uint32_t{OCTAVO_KIND_PARALLEL});
  for (size_t size : {1u, 2u, 7u, 64u, 1000u, 4097u}) {
    for (int64_t grain : {0, 1, 3, 100, 100000}) {
      for (int64_t begin : {-5, 0, 12}) {
        Visits v(begin, size);
        ASSERT_EQ(cover(p, v, grain), OCTAVO_OK);
        for (size_t i = 0; i < size; ++i)
          ASSERT_EQ(v.seen[i].load(), 1) << size << " " << grain << " index " << i;
        EXPECT_LE(v.short_chunks.load(), 1);  // only the last one may be shorter than the grain
      }
    }
  }
}

TEST_P(ThreadsTest, empty_and_reversed_ranges_call_nobody) {
  const Threads t = open_threads(GetParam());
  const octavo_parallel *p = octavo_threads_parallel(t.get());
  Visits v(0, 4);
  EXPECT_EQ(p->parallel_for(p->ctx, 3, 3, 1, visit, &v), OCTAVO_OK);
  EXPECT_EQ(p->parallel_for(p->ctx, 3, 1, 1, visit, &v), OCTAVO_OK);
  for (const auto &seen : v.seen) EXPECT_EQ(seen.load(), 0);
}

TEST_P(ThreadsTest, body_is_needed) {
  const Threads t = open_threads(GetParam());
  const octavo_parallel *p = octavo_threads_parallel(t.get());
  EXPECT_EQ(p->parallel_for(p->ctx, 0, 4, 1, nullptr, nullptr), OCTAVO_INVALID);
}

// Plain, unsynchronized writes of the bodies are visible to the caller afterwards.
TEST_P(ThreadsTest, results_are_visible_to_the_caller) {
  const Threads t = open_threads(GetParam());
  const octavo_parallel *p = octavo_threads_parallel(t.get());
  std::vector<int64_t> out(10000);
  for (int round = 1; round <= 20; ++round) {
    auto body = [](void *arg, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        (*static_cast<std::vector<int64_t> *>(arg))[static_cast<size_t>(i)] += i;
    };
    ASSERT_EQ(p->parallel_for(p->ctx, 0, 10000, 1, body, &out), OCTAVO_OK);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<int64_t>(i) * round);
  }
}

TEST_P(ThreadsTest, two_callers_at_once) {
  const Threads t = open_threads(GetParam());
  const octavo_parallel *p = octavo_threads_parallel(t.get());
  std::atomic<int> wrong{0};
  auto caller = [&] {
    for (int round = 0; round < 50; ++round) {
      Visits v(0, 513);
      if (cover(p, v, 4) != OCTAVO_OK) ++wrong;
      for (const auto &seen : v.seen)
        if (seen.load() != 1) ++wrong;
    }
  };
  std::thread first(caller);
  std::thread second(caller);
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Counts, ThreadsTest, testing::Values(1u, 2u, 5u, 0u),
                         octavo::test::kNameOfValue);

TEST(Threads, wrong_arguments) {
  octavo_threads *raw = nullptr;
  EXPECT_EQ(octavo_threads_open(1, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_threads_open(5000, &raw), OCTAVO_INVALID);
  EXPECT_EQ(raw, nullptr);
  EXPECT_EQ(octavo_threads_parallel(nullptr), nullptr);
  octavo_threads_close(nullptr);
}

TEST(Threads, opened_and_closed_many_times) {
  for (int i = 0; i < 50; ++i) {
    const Threads t = open_threads(3);
    Visits v(0, 17);
    if (i % 2 == 0) {
      EXPECT_EQ(cover(octavo_threads_parallel(t.get()), v, 1), OCTAVO_OK);
    }
  }
}

}  // namespace
