// Remedies as exact edits: which line, which words, and that what they leave is TOML.
#include "sdk/src/config/remedy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sdk/src/config/config.h"

namespace octavo {
namespace {

const Source kFile("f.toml",
                   "schema = 1\n"               // 1
                   "[fp8]\n"                    // 2
                   "backend = \"te\"  # one\n"  // 3
                   "preference = [\n"           // 4
                   "  \"a\",\n"                 // 5
                   "  \"b\",\n"                 // 6
                   "]\n"                        // 7
                   "[fp8.tee]\n"                // 8
                   "margin = 1\n"               // 9
                   "\n"                         // 10
                   "[layers]\n");               // 11

TEST(Remedy, replaces_a_value_and_keeps_what_stands_beside_it) {
  EXPECT_EQ(kFile.apply({.key = "fp8.backend", .origin = "f.toml:3:1", .value = "\"auto\""}),
            "replace line 3 of f.toml by `backend = \"auto\"  # one`");
  EXPECT_EQ(kFile.apply({.key = "fp8.preference", .origin = "f.toml:4:1", .value = "[\"te\"]"}),
            "replace lines 4 to 7 of f.toml by `preference = [\"te\"]`");
}

TEST(Remedy, adds_a_key_to_the_innermost_table_that_the_file_has) {
  EXPECT_EQ(kFile.apply({.key = "fp8.fallback", .origin = "default", .value = "[\"bf16\"]"}),
            "add `fallback = [\"bf16\"]` after line 2 of f.toml");
  EXPECT_EQ(kFile.apply({.key = "fp8.require.native", .origin = "default", .value = "true"}),
            "add `require.native = true` after line 2 of f.toml");
  EXPECT_EQ(kFile.apply({.key = "device.kind", .origin = "default", .value = "\"cpu\""}),
            "add `device.kind = \"cpu\"` as the first line of f.toml");
}

TEST(Remedy, renames_keys_and_tables) {
  EXPECT_EQ(kFile.apply({.key = "fp8.tee", .origin = "f.toml:9:1", .rename = "fp8.te"}),
            "replace line 8 of f.toml by `[fp8.te]`");
  EXPECT_EQ(kFile.apply({.key = "fp8.tee.margin", .origin = "f.toml:9:1", .rename = "fp8.tee.x"}),
            "replace line 9 of f.toml by `x = 1`");
  EXPECT_EQ(Source("f.toml", "[layer]\nskip = []\n")
                .apply({.key = "layer.skip", .origin = "f.toml:2:1", .rename = "layers.skip"}),
            "replace line 1 of f.toml by `[layers]`");
  EXPECT_EQ(Source("f.toml", "fp8.tee.x = 1\n")
                .apply({.key = "fp8.tee", .origin = "f.toml:1:9", .rename = "fp8.te"}),
            "replace line 1 of f.toml by `fp8.te.x = 1`");
}

TEST(Remedy, deletes_keys_over_lines_and_whole_tables) {
  EXPECT_EQ(kFile.apply({.key = "fp8.preference", .origin = "f.toml:4:1"}),
            "delete lines 4 to 7 of f.toml");
  EXPECT_EQ(kFile.apply({.key = "fp8.tee", .origin = "f.toml:9:1"}),
            "delete lines 8 to 9 of f.toml");
  EXPECT_EQ(kFile.apply({.line = 3}), "delete line 3 of f.toml");
  EXPECT_EQ(kFile.apply({.line = 99}), "delete line 11 of f.toml");
  EXPECT_EQ(kFile.apply({.value = "a = \"b\"", .line = 3}),
            "replace line 3 of f.toml by `a = \"b\"`");
}

TEST(Remedy, edits_only_what_leaves_toml) {
  // The only place for the key is inside of an inline table, which no whole line can extend.
  const Source inline_table("f.toml", "fp8 = { backend = \"te\" }\n");
  EXPECT_EQ(inline_table.apply({.key = "fp8.fallback", .origin = "default", .value = "[]"}), "");
  EXPECT_EQ(inline_table.apply({.key = "fp8.backend", .origin = "f.toml:1:9", .value = "\"x\""}),
            "replace line 1 of f.toml by `fp8 = { backend = \"x\" }`");
}

TEST(Remedy, origins_that_are_no_file) {
  EXPECT_EQ(kFile.apply({.key = "fp8.backend", .origin = kOverride, .value = "\"te\""}),
            "override `fp8.backend = \"te\"`");
  EXPECT_EQ(kFile.apply({.key = "fp8.x", .origin = kOverride, .rename = "fp8.y"}),
            "override `fp8.y` instead of `fp8.x`");
  EXPECT_EQ(kFile.apply({.key = "fp8.x", .origin = kOverride}), "drop the override `fp8.x`");
  EXPECT_EQ(kFile.apply({.key = "fp8.backend", .origin = "OCTAVO_BACKEND", .value = "\"a b\""}),
            "run `export OCTAVO_BACKEND='a b'`");
  EXPECT_EQ(kFile.apply({.key = "x", .origin = "OCTAVO_FP8_TE_X"}), "run `unset OCTAVO_FP8_TE_X`");
  EXPECT_EQ(kFile.apply({.command = "true"}), "run `true`");
  EXPECT_EQ(Source("", "").apply({.key = "device.kind", .origin = "default", .value = "\"cpu\""}),
            "set `device.kind = \"cpu\"`");
  EXPECT_EQ(kFile.apply({}), "");
}

TEST(Remedy, shell_words) {
  EXPECT_EQ(shell_word("/a/b-c_d.e:f"), "/a/b-c_d.e:f");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace octavo
