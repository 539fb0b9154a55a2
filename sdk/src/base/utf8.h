// UTF-8 as Unicode defines it (shortest form, no surrogates, nothing above U+10FFFF), and the texts
// of plugins, which are data: checked, bounded and without control characters before they are kept.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/abi.h"

namespace octavo {

// Bytes of the character that `text` starts with; 0: it starts with none, or is empty.
inline size_t utf8_character(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80   ? 1
                        : byte(0) < 0xC2 ? 0
                        : byte(0) < 0xE0 ? 2
                        : byte(0) < 0xF0 ? 3
                        : byte(0) < 0xF5 ? 4
                                         : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if ((byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xED && byte(1) > 0x9F) ||
      (byte(0) == 0xF0 && byte(1) < 0x90) || (byte(0) == 0xF4 && byte(1) > 0x8F))
    return 0;
  return length;
}

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// Whether a terminal or a reader would take the character as a command instead of showing it: the
// control characters of ASCII and of Latin-1, and those that turn the direction of writing.
bool is_control(std::string_view character);

// `text` with its lines and tabs, where all else that commands a terminal is an escape. A line of
// more than `line_limit` bytes is cut in its middle: its ends hold the place and the remedy.
std::string plain_lines(std::string_view text, size_t line_limit);
// The same of JSON, whose escapes are \u202e.
std::string plain_json(const std::string &dumped);

// `text` as one line that can be shown anywhere: control characters and bytes that are no UTF-8 as
// \n, \t or \x1b. What needs more than `limit` bytes is cut after a whole character.
std::string plain_text(std::string_view text, size_t limit);

// Bytes that liboctavo reads of one text of a plugin, or of a name.
constexpr size_t kMaxPluginText = 4096;

// Whether the size that a plugin's text states is one to read.
bool is_readable(octavo_str text);

// A text of a plugin, as plain_text: the one way of it into liboctavo. One that is not readable is
// not touched; its size is shown instead.
std::string take_text(octavo_str text);

// The same for a name, which must be as it is: nothing when take_text would have to change it.
std::optional<std::string> take_name(octavo_str name);

// "what() of an exception", which ends with a zero byte, as take_text.
std::string take_words(const char *words);

}  // namespace octavo
