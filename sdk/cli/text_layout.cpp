// Widths are counted in characters, not in bytes.
#include "sdk/cli/text_layout.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "sdk/cli/common.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli {

size_t page_columns() {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? std::clamp<size_t>(size.ws_col, 24, 120) : 80;
}

size_t columns_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string padded(std::string text, size_t columns) {
  const size_t now = columns_of(text);
  return now >= columns ? text : text.append(columns - now, ' ');
}

std::vector<std::string> wrapped(const std::string &text, size_t columns) {
  std::vector<std::string> lines = {""};
  bool first = true;
  for (const std::string &word : split(text, ' ')) {
    if (!first && columns_of(lines.back()) + 1 + columns_of(word) > columns)
      lines.push_back(word);
    else
      lines.back() += (first ? "" : " ") + word;
    first = false;
  }
  return lines;
}

void TextLayout::line(const std::string &text) const {
  print_line(plain_text(text, SIZE_MAX).c_str());
}

void TextLayout::row(const std::string &name, const std::string &text) const {
  std::string front = name;
  for (const std::string &whole : split_lines(text))
    for (const std::string &part :
         wrapped(plain_text(whole, SIZE_MAX), page_columns() - kRowIndent)) {
      line(padded(front, kRowIndent) + part);
      front.clear();
    }
}

void TextLayout::unbroken(const std::string &name, const std::string &text) const {
  line(padded(name, kRowIndent) + text);
}

}  // namespace octavo::cli
