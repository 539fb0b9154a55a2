// Ranks as threads over octavo_ranks: bytes on the wire, bits that no timing changes, and N ranks
// against one with the whole batch.
#include <chrono>

#include "octavo/draft/reduction.h"
#include "tests/plugins/msamp_reduction.h"
#include "tests/plugins/owning_host.h"
#include "tests/plugins/rank_threads.h"

namespace octavo::test {
namespace {

class MsampRanks : public MsampReduction {
 protected:
  void expect_all_ok(const std::vector<octavo_status> &answers) {
    for (size_t rank = 0; rank < answers.size(); ++rank)
      EXPECT_EQ(answers[rank], OCTAVO_OK) << "rank " << rank << ": " << request->host.error();
  }
  // All gradients of one rank as one bucket.
  octavo_status reduce(uint32_t rank, const octavo_collective *ranks) {
    const std::vector<octavo_parameter_item> items = group->items(rank, group->all());
    uint64_t buffer = 0, state = 0;
    const octavo_status status = octavo_reduction_bytes(
        group->run(), group->all().data(), group->all().size(), group->world(), &buffer, &state);
    if (status != OCTAVO_OK) return status;
    const AlignedBytes send(buffer), recv(buffer), scratch(state);
    return octavo_reduce_gradients(group->run(), items.data(), items.size(), ranks, send.get(),
                                   recv.get(), scratch.get(), nullptr);
  }
};

TEST_F(MsampRanks, wire_bytes_are_about_a_quarter_of_fp32) {
  const std::vector<std::pair<int64_t, int64_t>> buckets[] = {
      {{256, 256}},
      {{128, 384}, {1, 384}, {384, 128}, {3, 5}},  // odd, so that shards are padded
      {{512, 512}}};
  for (const auto &shapes : buckets) {
    uint64_t elements = 0;
    for (const auto &[rows, cols] : shapes) elements += static_cast<uint64_t>(rows * cols);
    ASSERT_GE(elements, uint64_t{65536});
    for (const uint32_t world : {2U, 4U, 8U}) {
      open(world, kTwoShot, {}, shapes);
      std::vector<uint64_t> sent(world);
      expect_all_ok(run_ranks(world, [&](uint32_t rank, const octavo_collective *ranks) {
        const CountingCollective counting(ranks);
        const octavo_status status = reduce(rank, counting.table());
        sent[rank] = counting.sent();
        return status;
      }));
      const double per_element = static_cast<double>(sent[0]) / static_cast<double>(elements);
      const double fp32 = 2.0 * (world - 1) / world * sizeof(float);
      std::printf("%6llu elements, W = %u: %.4f bytes sent per element and rank, %.4f of fp32\n",
                  static_cast<unsigned long long>(elements), world, per_element,
                  per_element / fp32);
      for (const uint64_t bytes : sent) EXPECT_EQ(bytes, sent[0]);
      // A byte where fp32 has four. The rest is padding of each shard to 16 codes, and four bytes
      // of amax per tensor.
      EXPECT_LE(per_element / fp32, 0.27);
      EXPECT_GE(per_element / fp32, 0.25) << "fewer codes than elements were sent";
    }
  }
}

TEST_F(MsampRanks, threads_give_the_bits_of_stages_by_hand) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{17, 31}, {1, 9}, {64, 48}};
  for (const int one_shot : {kTwoShot, kOneShot}) {
    for (const uint32_t world : {1U, 2U, 3U, 4U}) {
      std::vector<std::vector<uint8_t>> expected;
      // Run 0 is by hand; in the others ranks come late, in another order each time.
      for (uint32_t run = 0; run < 4; ++run) {
        open(world, one_shot, {}, shapes);
        for (uint32_t rank = 0; rank < world; ++rank)
          for (const uint32_t p : group->all())
            group->write(rank, p,
                         some_matrix(shapes[p].first, shapes[p].second, 9 * rank + p,
                                     0.5f + static_cast<float>(rank)));
        if (run == 0) {
          ASSERT_EQ(group->by_hand(), OCTAVO_OK) << request->host.error();
          group->reduce_slots();
        } else {
          expect_all_ok(run_ranks(world, [&](uint32_t rank, const octavo_collective *ranks) {
            std::this_thread::sleep_for(std::chrono::milliseconds((rank + run) % world));
            const octavo_status status = reduce(rank, ranks);
            return status != OCTAVO_OK ? status
                                       : octavo_store_reduce(group->store(rank), ranks, nullptr);
          }));
        }
        auto found = all_bytes();
        for (uint32_t rank = 0; rank < world; ++rank) {
          EXPECT_EQ(found[rank], found[0]) << "rank " << rank << ", run " << run;
          for (const char *name : {"reduce/added", "reduce/saturated"})
            EXPECT_EQ(*group->floats(rank, name), *group->floats(0, name)) << name;
        }
        if (run == 0) expected = found;
        EXPECT_EQ(found, expected) << "W = " << world << ", run " << run;
      }
    }
  }
}

// Whole numbers that E4M3 and E5M2 hold exactly with any power of two as scale, so that nothing but
// the gradient is rounded.
Matrix small_integers(int64_t rows, int64_t cols, uint32_t seed) {
  Matrix m = some_matrix(rows, cols, seed, 1.0f);
  for (float &v : m.v) v = std::round(v * 7);
  return m;
}

double power_of_two_scale(const std::vector<Matrix> &all) {
  float amax = 0;
  for (const Matrix &m : all) amax = std::max(amax, amax_of(m));
  return std::exp2(std::floor(std::log2(448.0 / static_cast<double>(amax))));
}

// Half of the distance between neighbours of E4M3 around v * scale, in units of v: 3 bits behind
// the leading one, the least exponent being -6.
double half_unit(double v, double scale) {
  const double size = std::fabs(v) * scale;
  const int exponent = size > 0 ? std::max(std::ilogb(size), -6) : -6;
  return std::ldexp(1.0, exponent - 3 - 1) / scale;
}

TEST(MsampDataParallel, ranks_equal_one_with_the_whole_batch) {
  constexpr int64_t kM = 16, kN = 20, kK = 24;
  Environment environment;
  // `sqrt` may saturate, which no rounding bound covers; the pre-scale tests look at that.
  for (const char *prescale : {"full", "auto"}) {
    for (const uint32_t world : {2U, 4U}) {
      std::vector<Matrix> exact, own(world), mean(world);
      std::vector<Request> requests(world);
      std::vector<std::unique_ptr<OwningHost>> hosts;
      for (uint32_t rank = 0; rank < world; ++rank) {
        const Matrix x = small_integers(kM, kK, 10 + rank), dy = small_integers(kM, kN, 20 + rank);
        Matrix dw(kN, kK);  // dy^T x: below 2^24, so exact in fp32
        for (int64_t n = 0; n < kN; ++n)
          for (int64_t k = 0; k < kK; ++k)
            for (int64_t m = 0; m < kM; ++m) dw.at(n, k) += dy.at(m, n) * x.at(m, k);
        exact.push_back(dw);
        requests[rank].set("fp8.backend", "msamp").set("fp8.msamp.prescale", prescale);
        requests[rank].set("fp8.msamp.one_shot_bytes", 0);
        hosts.push_back(std::make_unique<OwningHost>(requests[rank]));
        hosts[rank]->add_linear(some_matrix(kN, kK, 1, 0.5f));
        hosts[rank]->seal();
      }
      const auto answers = run_ranks(world, [&](uint32_t rank, const octavo_collective *ranks) {
        OwningHost &host = *hosts[rank];
        Matrix x = small_integers(kM, kK, 10 + rank), dy = small_integers(kM, kN, 20 + rank), y, dx;
        octavo_status status = host.forward(0, x, y);
        if (status == OCTAVO_OK) status = host.backward(0, dy, dx);
        if (status == OCTAVO_OK) status = host.read(0, OCTAVO_ROLE_GRADIENT, own[rank]);
        if (status == OCTAVO_OK) status = host.reduce_gradients(ranks);
        if (status == OCTAVO_OK) status = host.read(0, OCTAVO_ROLE_GRADIENT, mean[rank]);
        return status;
      });
      for (uint32_t rank = 0; rank < world; ++rank) {
        ASSERT_EQ(answers[rank], OCTAVO_OK) << requests[rank].host.error();
        expect_same(mean[rank], mean[0], "the mean of rank " + std::to_string(rank));
      }
      const double factor = std::string(prescale) == "full" ? 1.0 / world : 1.0 / 16;
      const double common = power_of_two_scale(own) * factor;
      double largest_error = 0, largest_bound = 0;
      for (size_t i = 0; i < exact[0].v.size(); ++i) {
        // Rounded are: each rank's gradient into its own slot, that value with the common scale,
        // and their sum. All scales are powers of two, so nothing else is.
        double whole = 0, sum = 0, bound = 0;
        for (uint32_t rank = 0; rank < world; ++rank) {
          const auto dw = static_cast<double>(exact[rank].v[i]);
          const auto slot = static_cast<double>(own[rank].v[i]);
          whole += dw;
          sum += slot;
          const double first = half_unit(dw, power_of_two_scale({exact[rank]}));
          ASSERT_LE(std::fabs(slot - dw), first) << "rank " << rank << ", element " << i;
          bound += first + half_unit(slot, common);
        }
        // The casts may have pushed the sum over a power of two.
        bound += half_unit(std::fabs(sum) + bound, common);
        const double error = std::fabs(static_cast<double>(mean[0].v[i]) - whole / world);
        ASSERT_LE(error, bound / world) << prescale << ", W = " << world << ", element " << i;
        largest_error = std::max(largest_error, error);
        largest_bound = std::max(largest_bound, bound / world);
      }
      const double amax = 448.0 * factor / common;  // what the scale leaves room for
      std::printf("%s, W = %u: largest error %.3g, largest bound %.3g, of at most %.3g\n", prescale,
                  world, largest_error, largest_bound, amax);
      EXPECT_GT(largest_error, 0) << "nothing was rounded, so nothing was tested";
      // Three roundings by half a unit, each at most 2^-4 of an element.
      EXPECT_LT(largest_bound, 3.5 * 0x1p-4 * amax);
    }
  }
}

TEST(MsampShardedStore, refuses_another_number_of_ranks) {
  Environment environment;
  Request request;
  request.set("fp8.backend", "msamp");
  OwningHost host(request, 0, 2);
  host.add_linear(some_matrix(6, 8, 1, 0.5f));
  host.seal();
  const Matrix before = host.read(0, OCTAVO_ROLE_WEIGHT);
  for (const bool publish : {false, true}) {
    RankThreads ranks(3);
    // Refused before the first exchange, or this single thread would wait for the other two.
    const octavo_collective *c = ranks.collective(0);
    EXPECT_EQ(publish ? octavo_store_publish(host.store(), c, nullptr)
                      : octavo_store_reduce(host.store(), c, nullptr),
              OCTAVO_INVALID);
    EXPECT_NE(request.host.error().find("distributed over 2 ranks, the collective has 3"),
              std::string::npos)
        << request.host.error();
  }
  expect_same(host.read(0, OCTAVO_ROLE_WEIGHT), before, "weight");
}

}  // namespace
}  // namespace octavo::test
