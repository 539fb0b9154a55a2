// Values as TOML, without its parser.
#include <cmath>
#include <sstream>

#include "sdk/src/config/toml.h"

namespace octavo {
namespace {

// A basic string: quotes, backslashes and control characters are escaped.
std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      static constexpr char kHex[] = "0123456789ABCDEF";
      out += std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace

std::string kind_of(const TomlValue &value) {
  static const char *const kinds[] = {"an integer", "a real number", "a boolean", "a text",
                                      "a list of texts"};
  if (const auto *other = std::get_if<OtherToml>(&value)) return other->kind;
  return kinds[value.index()];
}

std::string show(const TomlValue &value) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // a text that is cut short would be another value
  if (const auto *i = std::get_if<int64_t>(&value)) {
    out << *i;
  } else if (const auto *f = std::get_if<double>(&value)) {
    out.precision(9);
    out << *f;
    if (std::isfinite(*f) && out.str().find_first_of(".e") == std::string::npos) out << ".0";
  } else if (const auto *b = std::get_if<bool>(&value)) {
    out << (*b ? "true" : "false");
  } else if (const auto *s = std::get_if<std::string>(&value)) {
    out << quoted(*s);
  } else if (const auto *list = std::get_if<std::vector<std::string>>(&value)) {
    out << '[';
    for (size_t n = 0; n < list->size(); ++n) out << (n ? ", " : "") << quoted((*list)[n]);
    out << ']';
  } else {
    out << std::get<OtherToml>(value).kind;
  }
  return out.str();
}

std::string dotted(const std::vector<std::string> &path) {
  std::string text;
  for (const std::string &part : path) {
    const bool plain = part.find('.') == std::string::npos;
    text += (text.empty() ? "" : ".") + (plain ? part : '"' + part + '"');
  }
  return text;
}

}  // namespace octavo
