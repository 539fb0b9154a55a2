// octavo/octavo.hpp: threads, ranks, memory and tensors on their way to a device.
#include <gmock/gmock.h>

#include <stdexcept>

#include "octavo/octavo.hpp"

namespace octavo::test {
namespace {

TEST(OctavoHppMeans, ranks_of_one_process_give_collectives) {
  Ranks ranks(2);
  EXPECT_NE(ranks.collective(1), nullptr);
  EXPECT_EQ(ranks.collective(2), nullptr);
  ranks.abort();
  EXPECT_THROW(Ranks(0), Error);
}

TEST(OctavoHppMeans, ranks_run_a_body_each_and_communicate) {
  Ranks ranks(3);
  std::vector<double> means(3);
  ranks.run([&](uint32_t rank) {
    const Collective c = ranks.member(rank);
    EXPECT_EQ(c.rank(), rank);
    EXPECT_EQ(c.world(), 3u);
    means[rank] = c.mean(rank);
    float sum = 1;
    c.all_reduce_sum(&sum, 1);
    EXPECT_EQ(sum, 3.0F);
    EXPECT_TRUE(c.root_says(rank == 0));
  });
  EXPECT_THAT(means, testing::Each(1.0));

  Ranks one(1);
  EXPECT_EQ(one.member(0).table(), nullptr) << "nobody to communicate with";
  int calls = 0;
  one.run([&](uint32_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(OctavoHppMeans, the_first_exception_of_the_ranks_comes_out) {
  Ranks ranks(3);
  const auto body = [&](uint32_t rank) {
    if (rank == 1) throw std::runtime_error("a full disk");
    ranks.member(rank).mean(1);  // rank 1 never comes
  };
  try {
    ranks.run(body);
    FAIL() << "expected an exception";
  } catch (const std::runtime_error &error) {
    EXPECT_STREQ(error.what(), "a full disk");
  }
}

// On the CPU the device's memory is the host's, so nothing is copied; train_gpt's tests run the
// rest on a device that the CPU plays.
TEST(OctavoHppMeans, tensors_are_staged_in_place_where_the_device_works_on_host_memory) {
  const octavo::Run run(Settings().set("fp8.backend", "reference"));
  const Memory memory(run);
  Staging staging(memory);
  Array<float> x(8);
  EXPECT_EQ(staging.in(x.data(), 2, 4).data, x.data());
  EXPECT_EQ(staging.out(x.data(), 2, 4).data, x.data());
  EXPECT_EQ(staging.in(nullptr, 2, 4).data, nullptr);
  staging.finish();
  TwinArray twin(memory, 4);
  EXPECT_EQ(twin.twin.device(), twin.host.data());
  EXPECT_EQ(DeviceCollective(memory, nullptr).table(), nullptr);
  Ranks ranks(2);
  const octavo_collective *inner = ranks.collective(0);
  EXPECT_EQ(DeviceCollective(memory, inner).table(), inner);
}

TEST(OctavoHppMeans, loops_of_the_host_cover_their_range_once) {
  const Threads threads(3);
  std::vector<int> hits(1000);
  threads.for_ranges(1000, 7, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
  });
  EXPECT_EQ(hits, std::vector<int>(1000, 1));
}

TEST(OctavoHppMeans, arrays_are_aligned_and_zero) {
  Array<float> values(3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(values.data()) % 256, 0u);
  EXPECT_EQ(values.bytes(), 12u);
  values[2] = 7;
  values.grow(2);
  EXPECT_EQ(values[2], 7) << "it was large enough";
  values.grow(4);
  EXPECT_EQ(values[2], 0) << "new memory";
  values.release();
  EXPECT_EQ(values.data(), nullptr);
  EXPECT_EQ(values.size(), 0u);
}

}  // namespace
}  // namespace octavo::test
