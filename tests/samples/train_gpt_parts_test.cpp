// The parts of train_gpt against plain double arithmetic, and the rules of text and run names.
//
// Tolerances are derived beside each number.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/loops.h"
#include "host_adapters/standalone/simd.h"
#include "samples/train_gpt/model/corpus.h"
#include "samples/train_gpt/model/optimizer.h"
#include "samples/train_gpt/octavo/octavo_run.h"
#include "samples/train_gpt/run/metrics.h"
#include "samples/train_gpt/run/terminal.h"
#include "samples/train_gpt/run/trainer.h"
#include "tests/samples/child_program.h"

namespace gpt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<const Simd *> levels_of_this_machine() {
  std::vector<const Simd *> levels = {&kSimdBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels.push_back(&kSimdAvx2);
  if (__builtin_cpu_supports("avx512f")) levels.push_back(&kSimdAvx512);
#endif
  return levels;
}

std::vector<float> random_values(size_t count, uint64_t stream) {
  Random random(5, stream);
  std::vector<float> values(count);
  for (float &v : values) v = static_cast<float>(random.normal());
  return values;
}

TEST(Gemm, matches_double_for_every_edge_and_transposition) {
  const Threads threads(2);
  for (const auto &[m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {7, 9, 5}, {13, 33, 300}, {64, 48, 256}, {25, 70, 513}}) {
    const std::vector<float> a = random_values(static_cast<size_t>(m * k), 1);
    const std::vector<float> b = random_values(static_cast<size_t>(k * n), 2);
    std::vector<float> scratch(static_cast<size_t>(gemm_scratch(k, n)));
    for (int shape = 0; shape < 4; ++shape) {
      const Matrix left =
          (shape & 1) != 0 ? row_major(a.data(), k, m).transposed() : row_major(a.data(), m, k);
      const Matrix right =
          (shape & 2) != 0 ? row_major(b.data(), n, k).transposed() : row_major(b.data(), k, n);
      // Two columns of padding, which must stay as they are.
      std::vector<float> c(static_cast<size_t>(m * (n + 2)), 99.0f);
      gemm(&threads, left, right, c.data(), n + 2, scratch.data());
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0.0;
          double size = 0.0;
          for (int64_t p = 0; p < k; ++p) {
            const double term =
                static_cast<double>(left.data[i * left.row_stride + p * left.col_stride]) *
                static_cast<double>(right.data[p * right.row_stride + j * right.col_stride]);
            sum += term;
            size += std::fabs(term);
          }
          // k products and k additions, each with a relative error of at most 2^-24.
          EXPECT_NEAR(c[static_cast<size_t>(i * (n + 2) + j)], sum,
                      size * static_cast<double>(2 * k) * 0x1p-24)
              << m << "x" << n << "x" << k << " shape " << shape << " at " << i << "," << j;
        }
        EXPECT_EQ(c[static_cast<size_t>(i * (n + 2) + n)], 99.0f);
        EXPECT_EQ(c[static_cast<size_t>(i * (n + 2) + n + 1)], 99.0f);
      }
    }
  }
}

TEST(Gemm, gives_equal_bits_for_every_number_of_threads) {
  const int64_t m = 61, n = 83, k = 517;
  const std::vector<float> a = random_values(static_cast<size_t>(m * k), 3);
  const std::vector<float> b = random_values(static_cast<size_t>(k * n), 4);
  std::vector<float> scratch(static_cast<size_t>(gemm_scratch(k, n)));
  auto product = [&](const Threads *threads) {
    std::vector<float> c(static_cast<size_t>(m * n));
    gemm(threads, row_major(a.data(), m, k), row_major(b.data(), k, n), c.data(), n,
         scratch.data());
    return c;
  };
  const std::vector<float> alone = product(nullptr);
  for (const uint32_t count : {1u, 2u, 3u}) {
    const Threads threads(count);
    EXPECT_EQ(product(&threads), alone) << count << " threads";
  }
}

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(Simd, gelu_and_its_slope_match_double) {
  std::vector<float> x = random_values(1003, 5);
  for (float &v : x) v *= 4.0f;
  x[0] = 0.0f;
  x[1] = 40.0f;
  x[2] = -40.0f;
  const std::vector<float> dy(x.size(), 1.0f);
  for (const Simd *level : levels_of_this_machine()) {
    std::vector<float> y(x.size()), dx(x.size());
    level->gelu_forward(x.data(), y.data(), static_cast<int64_t>(x.size()));
    level->gelu_backward(x.data(), dy.data(), dx.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = static_cast<double>(x[i]);
      const double h = 1e-5;
      const double slope = (gelu(v + h) - gelu(v - h)) / (2.0 * h);
      // The gate is wrong by a few 2^-24 times its argument, which matters up to |2u| of about 16.
      EXPECT_NEAR(y[i], gelu(v), std::max(1.0, std::fabs(v)) * 32.0 * 0x1p-24) << level->name;
      // The slope sums terms up to 0.5 x inner, inner up to 1.6 (1 + 0.14 x^2) while s(1-s) fades.
      EXPECT_NEAR(dx[i], slope, 64.0 * 0x1p-24 + 1e-9) << level->name << " at " << v;
    }
  }
}

TEST(Simd, softmax_matches_double_and_survives_extremes) {
  for (const Simd *level : levels_of_this_machine()) {
    for (const int64_t count : {1, 3, 8, 17, 256}) {
      std::vector<float> row = random_values(static_cast<size_t>(count), 6);
      for (float &v : row) v = v * 30.0f + 1000.0f;
      const float top = *std::max_element(row.begin(), row.end());
      double sum = 0.0;
      for (const float v : row) sum += std::exp(static_cast<double>(v - top));
      std::vector<float> result = row;
      const float log_sum = level->softmax_row(result.data(), count);
      EXPECT_NEAR(log_sum, static_cast<double>(top) + std::log(sum), 1100.0 * 0x1p-23);
      for (size_t i = 0; i < row.size(); ++i) {
        const double expected = std::exp(static_cast<double>(row[i] - top)) / sum;
        // The reduced argument is wrong by 2^-24 |x|, |x| < 88; the rest is a few roundings.
        EXPECT_NEAR(result[i], expected, expected * 100.0 * 0x1p-24 + 1e-37) << level->name;
      }
    }
  }
}

TEST(Precision, bf16_rounds_to_nearest_even) {
  EXPECT_EQ(round_bf16(1.0f), 1.0f);
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f), 1.0f);                       // a tie, down to even
  EXPECT_EQ(round_bf16(1.0f + 3.0f * 0x1p-8f), 1.0f + 0x1p-6f);      // a tie, up to even
  EXPECT_EQ(round_bf16(1.0f + 0x1p-8f + 0x1p-20f), 1.0f + 0x1p-7f);  // above a tie
  EXPECT_EQ(round_bf16(-1.0f - 0x1p-8f - 0x1p-20f), -1.0f - 0x1p-7f);
  EXPECT_EQ(round_bf16(std::numeric_limits<float>::max()), INFINITY);
  EXPECT_EQ(round_bf16(-INFINITY), -INFINITY);
  EXPECT_TRUE(std::isnan(round_bf16(std::numeric_limits<float>::quiet_NaN())));
}

TEST(LearningRate, ends_where_it_is_asked_to) {
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.0, 10, 100), 1.0);
  EXPECT_NEAR(learning_rate(1.0, 0.0, 55, 100), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, 0.0, 100, 100), 0.0, 1e-12);
  EXPECT_GT(learning_rate(1.0, 0.0, 99, 100), 0.0) << "the last step moves the weights, too";
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 1.0, 77, 100), 1.0);
}

TEST(LearningRate, warms_up_and_falls_to_a_tenth) {
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.1, 0, 100), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.1, 9, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(1.0, 0.1, 10, 100), 1.0);
  EXPECT_NEAR(learning_rate(1.0, 0.1, 55, 100), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(1.0, 0.1, 100, 100), 0.1, 1e-12);
  EXPECT_GT(learning_rate(1.0, 0.1, 0, 1), 0.0);
}

TEST(RunSpec, takes_a_name_with_settings_apart) {
  const RunSpec spec = parse_run("te:recipe=current,margin=-1");
  EXPECT_EQ(spec.kind, RunSpec::Kind::kBackend);
  EXPECT_EQ(spec.backend, "te");
  EXPECT_THAT(spec.settings, ElementsAre(std::pair<std::string, std::string>("recipe", "current"),
                                         std::pair<std::string, std::string>("margin", "-1")));
  EXPECT_EQ(parse_run("fp32").kind, RunSpec::Kind::kFp32);
  EXPECT_EQ(parse_run("bf16").kind, RunSpec::Kind::kBf16);
  EXPECT_EQ(parse_run("config").kind, RunSpec::Kind::kConfig);
}

TEST(RunSpec, refuses_what_cannot_be_a_run) {
  for (const char *name : {"", "FP32", "te:", "te:recipe", "te:=x", "te:recipe=", "te:a=b,",
                           "fp32:a=b", "config:", "a b"}) {
    EXPECT_THROW(parse_run(name), UserError) << name;
  }
}

TEST(Corpus, holds_out_about_a_tenth_in_whole_files) {
  const std::string directory = gpt_test::test_directory() + "/text";
  std::filesystem::create_directories(directory);
  for (int i = 10; i < 30; ++i) {
    gpt_test::write_text(directory + "/" + std::to_string(i),
                         std::string(static_cast<size_t>(1000 + 37 * i), static_cast<char>(i)));
  }
  const Corpus corpus = load_corpus({directory}, 64);
  const double share = static_cast<double>(corpus.validation.size()) /
                       static_cast<double>(corpus.validation.size() + corpus.train.size());
  EXPECT_GT(share, 0.05);
  EXPECT_LT(share, 0.2);
  EXPECT_EQ(corpus.validation_files.size() + corpus.train_files.size(), 20u);
  for (const unsigned char byte : corpus.validation) {
    EXPECT_EQ(std::count(corpus.train.begin(), corpus.train.end(), byte), 0) << "a file was split";
    if (HasFailure()) break;
  }
  EXPECT_NEAR(corpus.unigram_entropy, std::log(20.0), 0.1);
}

TEST(Corpus, leaves_symbolic_links_out_and_splits_a_single_file) {
  const std::string directory = gpt_test::test_directory() + "/text";
  std::filesystem::create_directories(directory);
  gpt_test::write_text(directory + "/one", gpt_test::some_text(5000));
  std::filesystem::create_symlink(directory + "/one", directory + "/two");
  const Corpus corpus = load_corpus({directory}, 64);
  EXPECT_EQ(corpus.train.size(), 4500u);
  EXPECT_EQ(corpus.validation.size(), 500u);
  EXPECT_THAT(corpus.split, HasSubstr("one file"));
}

TEST(Corpus, batches_depend_on_seed_and_step_alone) {
  const std::string path = gpt_test::test_directory() + "/text";
  gpt_test::write_text(path, gpt_test::some_text(5000));
  const Corpus corpus = load_corpus({path}, 16);
  const Batch batch = training_batch(corpus, 4, 16, 1, 7);
  EXPECT_EQ(batch.tokens, training_batch(corpus, 4, 16, 1, 7).tokens);
  EXPECT_NE(batch.tokens, training_batch(corpus, 4, 16, 2, 7).tokens);
  EXPECT_NE(batch.tokens, training_batch(corpus, 4, 16, 1, 8).tokens);
  for (size_t i = 0; i + 1 < 16; ++i) EXPECT_EQ(batch.targets[i], batch.tokens[i + 1]);

  int64_t windows = 0;
  for (const Batch &b : validation_batches(corpus, 4, 16, 100)) windows += b.sequences;
  EXPECT_EQ(windows, (500 - 1) / 16);
  EXPECT_EQ(validation_batches(corpus, 4, 16, 3).size(), 3u);
}

TEST(Metrics, numbers_that_are_not_finite_become_null) {
  StepRecord record;
  record.loss = NAN;
  record.skipped = true;
  const nlohmann::json parsed = nlohmann::json::parse(to_json("a", record).dump());
  EXPECT_TRUE(parsed["loss"].is_null());
  EXPECT_EQ(parsed["skipped"], true);
  EXPECT_FALSE(parsed.contains("validation_loss"));
}

TEST(Table, aligns_text_left_and_numbers_right) {
  EXPECT_EQ(table({{"run", "loss"}, {"a", "1.5"}, {"longer", "10.25"}}, 1, false),
            "run      loss\n-------------\na         1.5\nlonger  10.25\n");
  EXPECT_EQ(grouped(1234567), "1 234 567");
  EXPECT_EQ(grouped(123), "123");
}

// What a run keeps for its page, against sums over all of its steps.
TEST(RunResult, a_long_run_keeps_no_more_than_a_short_one) {
  RunResult result;
  Options options;
  options.steps = 50000;
  MetricsLog log("");
  Progress progress(true);
  double saturated = 0.0, seconds = 0.0;
  for (int64_t step = 1; step <= options.steps; ++step) {
    StepRecord record;
    record.step = step;
    record.loss = 1.0 / static_cast<double>(step);
    record.tokens_per_s = static_cast<double>(1 + step % 7);
    record.telemetry = {{"amax", {{"x/up", step}}}};
    if (step % 10000 == 0) record.validation = 2.0;
    record.casts = {{"x", "up", 1.0, 1.0, static_cast<double>(step % 3), 0.0, 30.0}};
    record.casts[0].sqnr_db = step == 30001 ? 19.0 : 30.0;
    saturated += record.casts[0].saturated;
    seconds += 1.0 / record.tokens_per_s;
    keep_step(result, std::move(record), log, progress);
    ASSERT_LE(result.steps.size(), kMostSteps) << step;
    ASSERT_EQ(result.steps.back().step, step);
  }
  summarize(result, options);
  EXPECT_GT(result.steps.size(), kMostSteps / 4);
  int64_t before = 0, validations = 0;
  for (const StepRecord &record : result.steps) {
    EXPECT_TRUE(record.step % result.every == 0 || record.validation) << record.step;
    EXPECT_LT(std::exchange(before, record.step), record.step);
    validations += record.validation ? 1 : 0;
  }
  EXPECT_EQ(validations, 5);
  EXPECT_EQ(result.validation_loss, 2.0);
  double loss = 0.0;
  for (int64_t step = options.steps - 19; step <= options.steps; ++step)
    loss += 1.0 / static_cast<double>(step) / 20.0;
  EXPECT_EQ(result.train_loss, loss);
  EXPECT_EQ(result.tokens_per_s, static_cast<double>(options.steps) / seconds);
  const nlohmann::json &x = result.casts["operands"]["x"];
  EXPECT_EQ(x["saturated"], saturated);
  EXPECT_EQ(x["worst"], nlohmann::json({{"db", 19.0}, {"tensor", "up"}, {"step", 30001}}));
  EXPECT_LE(result.casts["step"].size(), kMostSteps);
  EXPECT_EQ(x["sqnr_db"].size(), result.casts["step"].size());
}

}  // namespace
}  // namespace gpt
