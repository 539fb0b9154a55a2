// --bisect: the search alone, and a layer of te whose codes are all 0 by its margin.
#include "samples/train_gpt/run/bisect.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "tests/samples/program_run.h"
#include "tests/samples/tiny_training.h"

namespace gpt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Layers numbered(int count) {
  Layers all;
  for (int i = 0; i < count; ++i) all.push_back("layer" + std::to_string(i));
  return all;
}

bool has(const Layers &layers, const std::string &name) {
  return std::find(layers.begin(), layers.end(), name) != layers.end();
}

TEST(TrainGptBisect, one_layer_among_many) {
  for (const int count : {1, 2, 3, 16, 37}) {
    for (int bad = 0; bad < count; ++bad) {
      const std::string name = "layer" + std::to_string(bad);
      int replays = 1;  // the one without FP8
      const Layers found = search_layers(numbered(count), [&](const Layers &chosen) {
        ++replays;
        return has(chosen, name);
      });
      EXPECT_THAT(found, ElementsAre(name));
      EXPECT_LE(replays, std::ceil(std::log2(count)) + 2) << count << " " << bad;
    }
  }
}

TEST(TrainGptBisect, layers_that_go_wrong_together) {
  for (const auto &[a, b] : {std::pair(0, 1), std::pair(3, 11), std::pair(14, 15)}) {
    const std::string first = "layer" + std::to_string(a), second = "layer" + std::to_string(b);
    const Layers found = search_layers(numbered(16), [&](const Layers &chosen) {
      return has(chosen, first) && has(chosen, second);
    });
    EXPECT_THAT(found, ElementsAre(first, second));
  }
}

TEST(TrainGptBisect, nothing_where_all_is_right) {
  EXPECT_THAT(search_layers(numbered(16), [](const Layers &) { return false; }), ElementsAre());
}

// te but for the head; of one layer, or of none, the scale is 2^30 times too small.
std::string with_margin(const std::string &layer) {
  const std::string path = gpt_test::test_directory() + "/margin.toml";
  gpt_test::write_text(path,
                       "[fp8]\nbackend = \"te\"\n[layers]\nskip = [\"*head*\"]\n"
                       "[[layers.rule]]\nmatch = \"" +
                           layer + "\"\nfp8.te.margin = 30\n");
  return path;
}

// Ten words in turn, which a model of two blocks learns with all of its layers.
std::string ten_words() {
  const char *const words[] = {"the",  "dogs",  "jumps", "quick", "again",
                               "over", "brown", "and",   "lazy",  "fox"};
  std::string all = words[0];
  for (int i = 1; i < 1300; ++i) all += std::string(" ") + words[i % 10];
  return all;
}

gpt_test::Finished search(const std::string &layer) {
  const std::string text = gpt_test::test_directory() + "/words";
  gpt_test::write_text(text, ten_words());
  auto arguments = gpt_test::small({with_margin(layer), "--run", "config", "--bisect", "40",
                                    "--tolerance", "0.02", "--portable", "--threads", "1"});
  for (const auto &[option, value] :
       {std::pair("--text", text.c_str()), {"--layers", "2"}, {"--steps", "60"}})
    arguments = gpt_test::replaced(arguments, option, value);
  return gpt_test::run(arguments);
}

TEST(TrainGptBisect, a_layer_whose_codes_are_all_zero) {
  for (const char *block : {"block0", "block1"}) {
    for (const char *part : {".qkv", ".proj", ".fc1", ".fc2"}) {
      const std::string layer = std::string(block) + part;
      const gpt_test::Finished done = search(layer);
      EXPECT_EQ(done.exit_code, 0) << done.errors;
      EXPECT_THAT(done.output, HasSubstr("\n" + layer + ": enough for a bad step, alone in FP8; "));
      EXPECT_THAT(done.errors, HasSubstr("replay 1: 0 of 8 layers in FP8, loss "));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(gpt_test::test_directory() + "/out"));
}

TEST(TrainGptBisect, no_layer_where_te_is_right) {
  gpt_test::expect_refused(search("none"), {"a step that goes wrong with all layers in FP8"});
}

TEST(TrainGptBisect, refuses_what_it_cannot_search) {
  const auto refused = [](const std::vector<std::string> &more,
                          const std::vector<std::string> &parts) {
    gpt_test::expect_refused(gpt_test::run(gpt_test::small(more)), parts);
  };
  refused({"--run", "te", "fp32", "--bisect", "3"}, {"--bisect", "one run, in FP8", "found:    2"});
  refused({"--run", "fp32", "--bisect", "3"}, {"one run, in FP8", "the first one fp32"});
  refused({"--run", "te", "--bisect", "13"}, {"--bisect", "0 to 12", "13"});
  refused({"--run", "te", "--bisect", "3", "--save", "x"}, {"no --save, --resume or --stop-after"});
  refused({"--run", "te", "--bisect", "3", "--tolerance", "0"}, {"--tolerance", "more than 0"});
  refused({"--run", "te", "--bisect", "3", "--tolerance", "0.5"},
          {"a step that goes wrong with all layers in FP8", "smaller --tolerance"});
}

}  // namespace
}  // namespace gpt
