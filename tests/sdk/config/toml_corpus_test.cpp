// Inputs with which TOML parsers have gone wrong: each file of toml_corpus (packed in tests/data)
// is accepted or refused as its name promises, and nothing is read outside of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sdk/src/base/failure.h"
#include "sdk/src/config/toml.h"
#include "tests/support/temp_dir.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> corpus() {
  std::vector<fs::path> files;
  for (const auto &entry : fs::directory_iterator(OCTAVO_TOML_CORPUS)) files.push_back(entry);
  std::sort(files.begin(), files.end());
  return files;
}

// "" when the text is accepted. The text is at the end of a block of its own, so that a sanitizer
// sees every byte that is read after it.
std::string refusal_of(const std::string &text) {
  const std::vector<char> block(text.begin(), text.end());
  try {
    parse_toml(std::string_view(block.data(), block.size()), "f.toml", "octavo.config");
    return {};
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_INVALID);
    return f.text();
  }
}

TEST(TomlCorpus, every_file_is_accepted_or_refused_as_its_name_says) {
  int accepted = 0;
  int refused = 0;
  for (const fs::path &file : corpus()) {
    const std::string name = file.filename();
    const std::string refusal = refusal_of(test::read_text(file));
    if (name.starts_with("accept_")) {
      EXPECT_EQ(refusal, "") << name;
      ++accepted;
    } else {
      ASSERT_TRUE(name.starts_with("refuse_")) << name;
      EXPECT_THAT(refusal, testing::MatchesRegex("f\\.toml:[0-9]+:[0-9]+: .+")) << name;
      ++refused;
    }
  }
  EXPECT_GE(accepted, 30);
  EXPECT_GE(refused, 70);
}

TEST(TomlCorpus, every_beginning_of_every_file_gets_an_answer) {
  for (const fs::path &file : corpus()) {
    const std::string text = test::read_text(file);
    for (size_t size = 0; size < std::min<size_t>(text.size(), 600); ++size)
      refusal_of(text.substr(0, size));
  }
}

TEST(TomlCorpus, the_guard_names_the_place) {
  const auto text_of = [](std::string_view text) -> std::string {
    try {
      guard_toml(text, "f.toml", "octavo.config");
      return {};
    } catch (const Failure &f) {
      return f.text();
    }
  };
  EXPECT_EQ(text_of("a = 1\nb = [=\n"),
            "f.toml:2:6: not valid TOML: expected a value or a name after \"[\", found '='");
  EXPECT_EQ(text_of("a = 1\n b = &\n"),
            "f.toml:2:6: not valid TOML: expected a key or a value, found the character '&'");
  EXPECT_EQ(text_of("a = 2024-01-01 7\n"),
            "f.toml:1:16: not valid TOML: expected an hour of two digits after a date, found one");
  // No dates: another mark, or none, in place of theirs.
  EXPECT_EQ(text_of("a = 2024-01.01 7\n"), "");
  EXPECT_EQ(text_of("a = 2024.01-01 7\n"), "");
  EXPECT_EQ(text_of("a = 2024-01-01  7\n"), "");
  EXPECT_EQ(text_of("\xEF\xBB\xBF\xEF\xBB\xBF"),
            "f.toml:1:1: not valid TOML: expected ASCII outside of texts and comments, found the "
            "byte 239");
  EXPECT_EQ(text_of(std::string_view("# \0\n", 4)),
            "f.toml:1:3: not valid TOML: expected text, found the control character 0");
  EXPECT_EQ(text_of("a" +
                    [] {
                      std::string dots;
                      for (int i = 0; i < 257; ++i) dots += ".a";
                      return dots;
                    }()),
            "f.toml:1:514: not valid TOML: expected at most 256 dots in a line, found more");
  EXPECT_EQ(text_of("a = " + std::string(17, '[')),
            "f.toml:1:21: not valid TOML: expected at most 16 brackets inside each other, found "
            "more");
  EXPECT_EQ(text_of("a = " + std::string(16, '[') + std::string(16, ']') + "\nb = [[]]\n"), "");
}

TEST(TomlCorpus, one_byte_order_mark_is_taken_off) {
  EXPECT_EQ(guard_toml("\xEF\xBB\xBFx = 1", "f.toml", "octavo.config"), "x = 1");
  EXPECT_EQ(guard_toml("x = 1", "f.toml", "octavo.config"), "x = 1");
}

}  // namespace
}  // namespace octavo
