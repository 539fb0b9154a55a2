// Output for people: rows with a name in front, wrapped between words to the columns of a page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace octavo::cli {

// Those of the terminal, from 24 to 120; 80 where stdout is none.
size_t page_columns();
// Where the text of a row begins.
inline constexpr size_t kRowIndent = 11;

// Columns that a terminal needs for UTF-8 of which each character has one.
size_t columns_of(std::string_view text);
// `text`, with blanks up to this many columns.
std::string padded(std::string text, size_t columns);

// Lines of at most `columns`, broken between words: at least one, which may be empty. A word that
// is longer, such as a path, has a line of its own and is not broken, so that it can be pasted.
std::vector<std::string> wrapped(const std::string &text, size_t columns);

// What follows is printed to stdout as it is added, without control characters.
class TextLayout {
 public:
  void row(const std::string &name, const std::string &text) const;
  // Below a row: indented as its text.
  void more(const std::string &text) const { row("", text); }
  // A command or an edit: one line, whatever its length, so that it can be pasted.
  void unbroken(const std::string &name, const std::string &text) const;
  void line(const std::string &text = {}) const;
};

}  // namespace octavo::cli
