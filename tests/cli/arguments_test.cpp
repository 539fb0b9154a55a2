// Any words as arguments: the program ends by itself, with a code that the manual names, and says
// why where it did nothing. OCTAVO_ARGUMENT_LISTS: how many lists, 200 by default.
#include <filesystem>
#include <random>
#include <regex>

#include "tests/cli/cli.h"
#include "tests/support/seed.h"

namespace octavo::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class CliArguments : public Cli {
 protected:
  CliArguments() : outer_(std::filesystem::current_path()) {
    environment.set("HOME", dir / "home");
    environment.set("TMPDIR", dir.path());
    std::filesystem::create_directory(dir / "work");
    std::filesystem::current_path(dir / "work");
  }
  ~CliArguments() override { std::filesystem::current_path(outer_); }

  // What the help of the program and of a command names: the words of lines that begin with `what`.
  std::vector<std::string> named(const std::string &help, const char *what) const {
    const std::regex words(what);
    std::vector<std::string> found;
    for (std::sregex_iterator at(help.begin(), help.end(), words), end; at != end; ++at)
      found.push_back((*at)[1]);
    return found;
  }
  std::string help_of(std::vector<std::string> command) {
    command.emplace_back("--help");
    return octavo(command).out;
  }

 private:
  std::filesystem::path outer_;
};

std::vector<std::string> odd_words(const std::string &directory) {
  return {"",
          "0",
          "-1",
          "18446744073709551616",
          "1e999",
          "nan",
          "true",
          "=",
          "x=",
          "=1",
          "fp8.backend=fake",
          "fp8.te.recipe=mx",
          "fp8.te.margin=1e9",
          "fp8=[",
          "plugins.trust=dev",
          "plugins.trust=\"",
          "fake",
          "te",
          ".",
          "/",
          "/dev/null",
          "/nothing/here",
          directory + "/plugins",
          directory + "/plugins/fake.octavo-plugin.toml",
          "octavo.toml",
          "-",
          "--",
          "---",
          "-h",
          "[",
          "{}",
          "'\"",
          "%s%n",
          "\n",
          "\x1b[2J",
          "\xff\xfe",
          "\xc3\xa9",
          std::string(5000, 'a')};
}

std::string shown(const std::vector<std::string> &words) {
  std::string all = "octavo";
  for (const std::string &word : words) {
    all += " '";
    for (const char c : word.substr(0, 60)) {
      const bool is_plain = c >= ' ' && c <= '~';
      all += is_plain ? std::string(1, c) : "\\x" + std::to_string(static_cast<uint8_t>(c));
    }
    all += "'";
  }
  return all;
}

TEST_F(CliArguments, seeds_are_whole_numbers) {
  for (const char *command : {"try", "verify"}) {
    for (const char *seed : {"", "-1", "5x", "18446744073709551616"}) {
      const Finished f = octavo({"plugin", command, "te", "--seed", seed});
      EXPECT_EQ(f.exit_code, 2) << command << " " << seed;
      EXPECT_THAT(f.err, HasSubstr("expected a whole number from 0 to 2^64 - 1, found"));
    }
  }
}

TEST_F(CliArguments, any_words_end_with_a_code_and_a_reason) {
  const char *wanted = std::getenv("OCTAVO_ARGUMENT_LISTS");
  const int lists = wanted == nullptr ? 200 : std::atoi(wanted);
  std::vector<std::vector<std::string>> commands;
  for (const std::string &command : named(help_of({}), "\n  ([a-z][a-z-]+)  ")) {
    commands.push_back({command});
    for (const std::string &below : named(help_of({command}), "\n  ([a-z][a-z-]+)  "))
      commands.push_back({command, below});
  }
  ASSERT_GE(commands.size(), 20U);
  std::vector<std::vector<std::string>> options;
  std::vector<std::string> all_options;
  for (const std::vector<std::string> &command : commands) {
    options.push_back(named(help_of(command), "(--[a-z][a-z-]*)"));
    all_options.insert(all_options.end(), options.back().begin(), options.back().end());
  }
  ASSERT_GE(all_options.size(), 80U);
  const std::vector<std::string> odd = odd_words(dir.path());
  std::mt19937_64 random(seed_or(11));
  const auto one_of = [&](const auto &all) { return all[random() % all.size()]; };
  std::map<int, int> codes;
  for (int i = 0; i < lists; ++i) {
    const size_t command = random() % commands.size();
    std::vector<std::string> words;
    if (random() % 16 != 0) words = commands[command];
    for (size_t left = random() % 6; left > 0; --left) {
      const uint64_t kind = random() % 8;
      if (kind < 3 && !options[command].empty())
        words.push_back(one_of(options[command]));
      else if (kind == 3)
        words.push_back(one_of(all_options));
      else
        words.push_back(one_of(odd));
    }
    const Finished f = octavo(words);
    ++codes[f.exit_code];
    EXPECT_TRUE(f.exit_code >= 0 && f.exit_code <= 4) << shown(words) << ": " << f.exit_code;
    EXPECT_TRUE(f.exit_code == 0 || !(f.err + f.out).empty()) << shown(words);
    for (const char *slip : {"internal error", "terminate called", "std::", "basic_string"})
      EXPECT_THAT(f.err, Not(HasSubstr(slip))) << shown(words);
  }
  EXPECT_GT(codes[0], 0);
  EXPECT_GT(codes[2], lists / 4);
}

}  // namespace
}  // namespace octavo::test
