// Takes texts of plugins in: no byte is read before the stated size is known to be bounded.
#include "sdk/src/base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "sdk/src/base/text.h"

namespace octavo {
namespace {

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    char digits[8];
    std::snprintf(digits, sizeof(digits), "\\x%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

// What stands for the character at the front of a text, of `length` bytes; 0: it is none.
std::string shown(std::string_view front, size_t length) {
  if (length == 0) return hex_of(front.substr(0, 1));
  const std::string_view character = front.substr(0, length);
  if (!is_control(character)) return std::string(character);
  if (character == "\n") return "\\n";
  if (character == "\t") return "\\t";
  return hex_of(character);
}

// U+0080 to U+FFFF; JSON has escaped what is below.
std::string json_escape(std::string_view character) {
  const auto byte = [&](size_t i) { return unsigned{static_cast<unsigned char>(character[i])}; };
  const unsigned point = character.size() == 1 ? byte(0)
                         : character.size() == 2
                             ? (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F)
                             : (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  char digits[8];
  std::snprintf(digits, sizeof(digits), "\\u%04x", point & 0xFFFF);
  return digits;
}

// Each character as `shown` has it, given with its length; 0: it is none.
template <typename Shown>
std::string each_shown(std::string_view text, size_t limit, Shown show) {
  std::string plain;
  while (!text.empty()) {
    const size_t length = utf8_character(text);
    const std::string next = show(text, length);
    if (plain.size() + next.size() > limit) break;
    plain += next;
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return plain;
}

std::string cut_line(std::string_view line, size_t limit) {
  if (line.size() <= limit) return std::string(line);
  size_t front = limit / 2, back = line.size() - limit / 4;
  const auto is_inside = [&](size_t at) {
    return (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80;
  };
  while (is_inside(front)) --front;
  while (back < line.size() && is_inside(back)) ++back;
  return concat(line.substr(0, front), "... (", back - front, " bytes left out) ...",
                line.substr(back));
}

}  // namespace

bool is_control(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2)
    return (byte(0) == 0xC2 && byte(1) < 0xA0) ||  // U+0080 to U+009F
           (byte(0) == 0xD8 && byte(1) == 0x9C);   // U+061C
  if (character.size() != 3 || byte(0) != 0xE2) return false;
  return (byte(1) == 0x80 && byte(2) >= 0x8E && byte(2) <= 0x8F) ||  // U+200E, U+200F
         (byte(1) == 0x80 && byte(2) >= 0xA8 && byte(2) <= 0xAE) ||  // U+2028 to U+202E
         (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);    // U+2066 to U+2069
}

std::string plain_text(std::string_view text, size_t limit) {
  return each_shown(text, limit, shown);
}

std::string plain_lines(std::string_view text, size_t line_limit) {
  std::string plain;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    plain += cut_line(each_shown(text.substr(0, end), SIZE_MAX,
                                 [](std::string_view front, size_t length) {
                                   return front[0] == '\t' ? "\t" : shown(front, length);
                                 }),
                      line_limit);
    text.remove_prefix(end);
    if (text.empty()) break;
    plain += '\n';
    text.remove_prefix(1);
  }
  return plain;
}

std::string plain_json(const std::string &dumped) {
  return each_shown(dumped, SIZE_MAX, [](std::string_view front, size_t length) {
    const std::string_view character = front.substr(0, std::max<size_t>(length, 1));
    const bool stays = character == "\n" || length == 0 || !is_control(character);
    return stays ? std::string(character) : json_escape(character);
  });
}

bool is_readable(octavo_str text) {
  return text.size <= kMaxPluginText && (text.data != nullptr || text.size == 0);
}

std::string take_text(octavo_str text) {
  if (is_readable(text)) return plain_text(view(text), kMaxPluginText);
  return text.data == nullptr
             ? concat("(a text of ", text.size, " bytes at no address)")
             : concat("(a text of ", text.size, " bytes, which is more than ", kMaxPluginText, ")");
}

std::optional<std::string> take_name(octavo_str name) {
  if (!is_readable(name)) return std::nullopt;
  const std::string plain = plain_text(view(name), kMaxPluginText);
  if (plain != view(name)) return std::nullopt;
  return plain;
}

std::string take_words(const char *words) {
  if (words == nullptr) return {};
  return plain_text({words, strnlen(words, kMaxPluginText)}, kMaxPluginText);
}

}  // namespace octavo
