// One pass over the bytes that knows texts, comments and brackets of TOML, and nothing else.
#include "sdk/src/config/toml.h"

#include <cstdint>

#include "sdk/src/base/failure.h"
#include "sdk/src/config/remedy.h"

namespace octavo {
namespace {

constexpr int kMaxDots = 256;
constexpr int kMaxBrackets = 16;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

class Guard {
 public:
  Guard(std::string_view text, const std::string &name, const char *domain)
      : text_(text), name_(name), domain_(domain) {}

  void run() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      check_control(c);
      if (c == '\n') {
        end_line();
      } else if (!quote_.empty()) {
        in_text(c);
      } else if (!in_comment_) {
        outside(c);
      }
    }
  }

 private:
  template <typename... Part>
  [[noreturn]] void refuse(const Part &...text) const {
    throw Failure(OCTAVO_INVALID, domain_, name_, ":", line_, ":", at_ - line_start_ + 1,
                  ": not valid TOML: ", text...)
        .with_fix({.line = line_});
  }

  void check_control(char c) const {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7F)
      refuse("expected text, found the control character ", byte);
  }

  void end_line() {
    ++line_;
    line_start_ = at_ + 1;
    dots_ = 0;
    in_comment_ = false;
    in_word_ = false;
    if (quote_.empty() && !in_list()) at_value_ = false;
    // A text in single quotes of its kind ends with its line; the parser refuses it.
    if (quote_.size() == 1) {
      quote_ = {};
      trims_ = false;
    }
  }

  static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

  // TOML++ asks whether a character is white space, which is undefined for some that no rule
  // refuses.
  void refuse_beyond_ascii(char c, const char *where) const {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) refuse("expected ASCII ", where, ", found the byte ", byte);
  }

  void in_text(char c) {
    if (trims_) {
      if (is_blank(c)) return;
      refuse_beyond_ascii(c, "after a backslash and white space");
      trims_ = false;
    }
    if (c == '\\' && quote_[0] == '"') {
      const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\n';
      trims_ = is_blank(next) || next == '\n';
      if (trims_) return;
      // What is escaped never ends the text.
      check_control(text_[++at_]);
      refuse_beyond_ascii(next, "after a backslash");
    } else if (text_.substr(at_, quote_.size()) == quote_) {
      at_ += quote_.size() - 1;
      // Up to two more quotes belong to the text that they end.
      if (quote_.size() == 3)
        while (at_ + 1 < text_.size() && text_[at_ + 1] == quote_[0]) ++at_;
      quote_ = {};
    }
  }

  bool in_list() const { return (lists_ & 1) != 0; }

  // Where values are, and whether one without quotes is being written. TOML++ reads on to the end
  // of such a word, whatever it holds, so no text may begin inside of it.
  void follow(char c, bool letter, bool blank) {
    const bool quote = c == '"' || c == '\'';
    if (quote && in_word_)
      refuse("expected a comma or the end of the line after a value, found a quote");
    if (c == ' ' && in_word_) check_time();
    if (c == '=') at_value_ = true;
    if (c == ',') at_value_ = in_list();
    if (blank || c == ',' || c == ']' || c == '}' || c == '#') {
      in_word_ = false;
    } else if (at_value_ && (letter || c == '_' || c == '-' || c == '+' || c == '.' || c == ':')) {
      if (!in_word_) word_ = at_;
      in_word_ = true;
    }
  }

  // A time may follow a date after one space. TOML++ takes what follows its first digit for
  // more of it, even a space or the end of the line, and reads on from there. Its dates may have
  // underscores anywhere.
  void check_time() {
    const auto digit = [&](size_t at) {
      return at < text_.size() && text_[at] >= '0' && text_[at] <= '9';
    };
    std::string word(text_.substr(word_, at_ - word_));
    std::erase(word, '_');
    if (word.size() != 10 || word[4] != '-' || word[7] != '-' || !digit(at_ + 1)) return;
    if (digit(at_ + 2)) return;
    ++at_;
    refuse("expected an hour of two digits after a date, found one");
  }

  void outside(char c) {
    static constexpr std::string_view kMarks = "_-+.:,=[]{}#\"' \t\r";
    const auto byte = static_cast<unsigned char>(c);
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && kMarks.find(c) == std::string_view::npos) {
      if (byte < 0x80) refuse("expected a key or a value, found the character '", c, "'");
      refuse("expected ASCII outside of texts and comments, found the byte ", byte);
    }
    const bool blank = is_blank(c);
    if (after_bracket_ && !blank) {
      after_bracket_ = c == '#';  // a comment is between a bracket and its value
      if (c == '=' || c == ',' || c == '.' || c == ':' || c == '}')
        refuse("expected a value or a name after \"[\", found '", c, "'");
    }
    follow(c, letter, blank);
    switch (c) {
      case '#': in_comment_ = true; break;
      case '.':
        if (++dots_ > kMaxDots) refuse("expected at most 256 dots in a line, found more");
        break;
      case '[':
      case '{':
        after_bracket_ = c == '[';
        if (++brackets_ > kMaxBrackets)
          refuse("expected at most 16 brackets inside each other, found more");
        // A header's brackets and an inline table hold keys, a list holds values.
        lists_ = lists_ << 1 | (c == '[' && at_value_ ? 1 : 0);
        at_value_ = in_list();
        break;
      case ']':
      case '}':
        if (brackets_ > 0) --brackets_;
        lists_ >>= 1;
        at_value_ = true;
        break;
      case '"':
      case '\'': {
        const std::string_view three = text_.substr(at_, 3);
        const bool is_long = three == "\"\"\"" || three == "'''";
        // TOML++ reads two of the three as a key without characters.
        if (is_long && !at_value_) refuse("expected a key on one line, found a text of several");
        quote_ = is_long ? three : text_.substr(at_, 1);
        at_ += quote_.size() - 1;
        break;
      }
      default: break;
    }
  }

  std::string_view text_;
  const std::string &name_;
  const char *domain_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  size_t line_start_ = 0;
  std::string_view quote_;  // that the open text ends with; empty outside of texts
  bool trims_ = false;      // inside a text, after a backslash at the end of a line
  bool in_comment_ = false;
  bool after_bracket_ = false;
  bool at_value_ = false;  // and not where keys are
  bool in_word_ = false;   // a value without quotes, which began at word_
  size_t word_ = 0;
  int brackets_ = 0;
  uint32_t lists_ = 0;  // a bit for each open bracket: whether it is a list's; the innermost last
  int dots_ = 0;
};

}  // namespace

std::string_view guard_toml(std::string_view text, const std::string &name, const char *domain) {
  if (text.size() > kMostTomlBytes)
    throw Failure(OCTAVO_INVALID, domain, name, ": expected at most 1 MiB of TOML, found more")
        .with_fix({.command = "mv " + shell_word(name) + " " + shell_word(name + ".large") +
                              " && touch " + shell_word(name)});
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  Guard(text, name, domain).run();
  return text;
}

}  // namespace octavo
