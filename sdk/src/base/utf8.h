// UTF-8 as Unicode defines it: shortest form, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

// At most `limit` bytes of whole characters; every byte that belongs to none becomes '?'.
inline std::string clean_utf8(std::string_view text, size_t limit) {
  std::string clean;
  while (!text.empty()) {
    const size_t length = utf8_character(text);
    const std::string_view next = length == 0 ? std::string_view("?") : text.substr(0, length);
    if (clean.size() + next.size() > limit) break;
    clean += next;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return clean;
}

}  // namespace octavo
