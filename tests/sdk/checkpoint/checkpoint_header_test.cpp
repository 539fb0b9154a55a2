// The parser of safetensors headers: what it takes, and what it refuses with which words.
#include "sdk/src/checkpoint/checkpoint_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "octavo/tensor.h"
#include "sdk/src/base/failure.h"

namespace octavo {
namespace {

std::string refusal(const std::string &json, uint64_t data_bytes) {
  try {
    parse_header(json, data_bytes, "f");
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    EXPECT_EQ(std::string(f.domain()), "octavo.state");
    EXPECT_EQ(f.text().rfind("f: expected", 0) == 0 || f.text().rfind("f: tensor", 0) == 0, true)
        << f.text();
    return f.text();
  }
  return "accepted";
}

std::string entry(const std::string &name, const std::string &dtype, const std::string &shape,
                  const std::string &offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(CheckpointHeader, takes_what_the_format_allows) {
  const std::string json = R"({ "b" : {"shape":[2,3],"data_offsets":[4,10],"dtype":"F8_E5M2"},)" +
                           entry("empty", "F32", "[0,7]", "[4,4]") + "," +
                           entry("scalar", "F32", "[]", "[0,4]") +
                           R"(,"__metadata__":{"k":"v","":""}}  )";
  const CheckpointHeader h = parse_header(json, 10, "f");
  EXPECT_EQ(h.tensors.size(), 3u);
  EXPECT_EQ(h.tensors.at("b").dtype, "F8_E5M2");
  EXPECT_THAT(h.tensors.at("b").shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(h.tensors.at("b").begin, 4u);
  EXPECT_EQ(h.tensors.at("b").end, 10u);
  EXPECT_EQ(h.data_bytes(), 10u);
  EXPECT_EQ(*h.text("k"), "v");
  EXPECT_EQ(h.text("other"), nullptr);
  EXPECT_EQ(parse_header("{}", 0, "f").tensors.size(), 0u);
}

TEST(CheckpointHeader, refuses_what_is_not_a_header) {
  for (const char *json :
       {"", " {}", "[]", "{", "{}x", "{}{}", "{\"a\"}", "nul", "{\"a\":1}", "{\"a\":[]}",
        "{\"a\":\"b\"}", "{\"a\":null}", "{\"a\":true}", "{\"__metadata__\":\"x\"}",
        "{\"__metadata__\":{\"a\":1}}", "{\"__metadata__\":{\"a\":{}}}",
        "{\"__metadata__\":{\"a\":[\"b\"]}}", "{\"__metadata__\":[]}", "{\"\xff\":{}}"})
    EXPECT_THAT(refusal(json, 0), testing::HasSubstr("expected")) << json;
}

TEST(CheckpointHeader, refuses_entries_that_are_not_tensors) {
  const std::pair<std::string, const char *> wrong[] = {
      {R"("a":{"dtype":"U8","shape":[1]})", "fewer than the three"},
      {R"("a":{})", "fewer than the three"},
      {R"("a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]})", "\"dtype\" twice"},
      {R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1})", "found \"x\""},
      {entry("a", "U8", "[1.0]", "[0,1]"), "a fraction"},
      {entry("a", "U8", "[-1]", "[0,1]"), "a negative number"},
      {entry("a", "U8", "[1e0]", "[0,1]"), "a fraction"},
      {entry("a", "U8", "[[1]]", "[0,1]"), "a list"},
      {entry("a", "U8", "1", "[0,1]"), "a number"},
      {entry("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), "a number"},
      {entry("a", "U8", "[1]", "[0]"), "expected 2 data_offsets, found 1"},
      {entry("a", "U8", "[1]", "[0,1,1]"), "expected 2 data_offsets, found 3"},
      {entry("a", "U9", "[1]", "[0,1]"), "found \"U9\""},
      {entry("a", "u8", "[1]", "[0,1]"), "found \"u8\""},
      {R"("a":{"dtype":["U8"],"shape":[1],"data_offsets":[0,1]})", "a list"},
      {R"("a":{"dtype":"U8","shape":"1","data_offsets":[0,1]})", "a text"},
      {R"("a":{"dtype":{},"shape":[1],"data_offsets":[0,1]})", "an object"},
      {entry("a", "U8", "[18446744073709551616]", "[0,1]"), "a fraction"},
  };
  for (const auto &[text, word] : wrong)
    EXPECT_THAT(refusal("{" + text + "}", 1), testing::HasSubstr(word)) << text;
}

TEST(CheckpointHeader, refuses_duplicates) {
  const std::string a = entry("a", "U8", "[1]", "[0,1]");
  EXPECT_THAT(refusal("{" + a + "," + a + "}", 1), testing::HasSubstr("\"a\" twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0),
              testing::HasSubstr("\"k\" twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), testing::HasSubstr("twice"));
}

TEST(CheckpointHeader, refuses_bytes_that_do_not_fit) {
  const auto two = [](const char *first, const char *second) {
    return "{" + entry("a", "F32", "[2]", first) + "," + entry("b", "F16", "[3]", second) + "}";
  };
  EXPECT_EQ(refusal(two("[0,8]", "[8,14]"), 14), "accepted");
  EXPECT_EQ(refusal(two("[6,14]", "[0,6]"), 14), "accepted") << "order and alignment are free";
  EXPECT_THAT(refusal(two("[0,8]", "[8,14]"), 15),
              testing::HasSubstr("14 bytes of data, found 15"));
  EXPECT_THAT(refusal(two("[0,8]", "[8,14]"), 13),
              testing::HasSubstr("14 bytes of data, found 13"));
  EXPECT_THAT(refusal(two("[0,8]", "[7,13]"), 14), testing::HasSubstr("start at data byte 8"));
  EXPECT_THAT(refusal(two("[0,8]", "[9,15]"), 15), testing::HasSubstr("start at data byte 8"));
  EXPECT_THAT(refusal(two("[1,9]", "[9,15]"), 15), testing::HasSubstr("start at data byte 0"));
  EXPECT_THAT(refusal(two("[0,8]", "[0,6]"), 8), testing::HasSubstr("start at data byte 6"));
  EXPECT_THAT(refusal(two("[0,9]", "[9,15]"), 15), testing::HasSubstr("expected 8 bytes"));
  EXPECT_THAT(refusal(two("[8,0]", "[8,14]"), 14), testing::HasSubstr("expected 8 bytes"));
  EXPECT_THAT(refusal("{" + entry("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}", 0),
              testing::HasSubstr("fewer than 2^64 bytes"));
}

TEST(CheckpointHeader, deep_nesting_ends_at_the_first_level_that_no_header_has) {
  EXPECT_THAT(refusal("{\"a\":" + std::string(1000000, '['), 0), testing::HasSubstr("a list"));
}

TEST(CheckpointHeader, what_is_written_reads_back) {
  CheckpointHeader h;
  h.metadata = {{"a \"quoted\" key", "line\nbreak, \xc3\xa4"}, {"empty", ""}};
  h.tensors["codes"] = {"F8_E4M3", {3, 5}, 0, 0};
  h.tensors["half"] = {"F16", {1, 3}, 0, 0};
  h.tensors["floats"] = {"F32", {2, 1}, 0, 0};
  h.tensors["count"] = {"I32", {1, 1}, 0, 0};
  lay_out(h);
  EXPECT_EQ(h.tensors["count"].begin, 0u);
  EXPECT_EQ(h.tensors["floats"].begin, 4u);
  EXPECT_EQ(h.tensors["half"].begin, 12u);
  EXPECT_EQ(h.tensors["codes"].begin, 18u);
  EXPECT_EQ(h.data_bytes(), 33u);
  for (size_t extra = 0; extra < 9; ++extra) {
    h.metadata["empty"] = std::string(extra, 'x');
    const std::string bytes = write_header(h, "f");
    EXPECT_EQ(bytes.size() % 8, 0u);
    uint64_t length = 0;
    for (size_t i = 0; i < 8; ++i)
      length |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    ASSERT_EQ(length, bytes.size() - 8);
    const CheckpointHeader back = parse_header(std::string_view(bytes).substr(8), 33, "f");
    EXPECT_EQ(back.metadata, h.metadata);
    ASSERT_EQ(back.tensors.size(), h.tensors.size());
    for (const auto &[name, t] : h.tensors) {
      EXPECT_EQ(back.tensors.at(name).dtype, t.dtype);
      EXPECT_EQ(back.tensors.at(name).shape, t.shape);
      EXPECT_EQ(back.tensors.at(name).begin, t.begin);
      EXPECT_EQ(back.tensors.at(name).end, t.end);
    }
  }
}

TEST(CheckpointHeader, numbers_of_its_texts) {
  CheckpointHeader h;
  h.metadata["n"] = "18446744073709551615";
  EXPECT_EQ(number_text(h, "n", "f"), UINT64_MAX);
  for (const char *wrong : {"", "x", "7x", "7 ", " 7", "-1", "7.0", "18446744073709551616"}) {
    h.metadata["n"] = wrong;
    try {
      number_text(h, "n", "f");
      ADD_FAILURE() << wrong << ": accepted";
    } catch (const Failure &f) {
      EXPECT_EQ(f.text(), std::string("f: expected a number as n, found \"") + wrong +
                              "\"; the file is damaged: restore it");
    }
  }
}

TEST(CheckpointHeader, every_dtype_of_a_slot_has_a_name) {
  for (const uint32_t dtype : {OCTAVO_I32, OCTAVO_U8, OCTAVO_F16, OCTAVO_F32, OCTAVO_BF16,
                               OCTAVO_E4M3FN, OCTAVO_E5M2, OCTAVO_E8M0FNU}) {
    ASSERT_NE(checkpoint_dtype(dtype), nullptr) << dtype;
    EXPECT_EQ(checkpoint_dtype_bytes(checkpoint_dtype(dtype)), OCTAVO_DTYPE_BITS(dtype) / 8)
        << dtype;
  }
  EXPECT_EQ(checkpoint_dtype(0), nullptr);
  EXPECT_EQ(checkpoint_dtype_bytes(""), 0u);
}

}  // namespace
}  // namespace octavo
