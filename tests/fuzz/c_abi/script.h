// The bytes of one input as a sequence of choices. Behind its end every choice is 0, which always
// means the well-formed one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace octavo::fuzz {

class Script {
 public:
  Script(const uint8_t *data, size_t size) : at_(data), end_(data + size) {}

  bool is_over() const { return at_ == end_; }
  // What no choice has taken yet.
  std::basic_string_view<uint8_t> rest() const { return {at_, static_cast<size_t>(end_ - at_)}; }
  uint8_t byte() { return at_ == end_ ? 0 : *at_++; }
  // 0 to n - 1.
  uint32_t below(uint32_t n) { return byte() % n; }
  uint32_t word() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) value = value << 8 | byte();
    return value;
  }
  // Which one of `n` things is wrong with a call, counted from 1; mostly none: 0.
  uint32_t defect(uint32_t n) {
    const uint8_t choice = byte();
    return choice < 192 ? 0 : 1 + (choice - 192) % n;
  }
  // A count of rows or columns: small ones, those at which code changes its way, and impossible
  // ones.
  int64_t extent() {
    static constexpr int64_t kOdd[] = {0,
                                       -1,
                                       127,
                                       128,
                                       129,
                                       INT64_MAX,
                                       INT64_MIN,
                                       INT64_MAX / 2,
                                       int64_t{1} << 32,
                                       int64_t{1} << 62};
    const uint8_t choice = byte();
    return choice < 224 ? 1 + choice % 40 : kOdd[choice % std::size(kOdd)];
  }
  // A number of which the small ones are more likely.
  uint32_t id() {
    const uint8_t choice = byte();
    return choice < 240 ? choice % 6 : choice < 248 ? word() : 0xFFFFFFFFu;
  }
  // Up to 15 letters, or any bytes.
  std::string text() {
    const uint8_t choice = byte();
    std::string out;
    for (int i = 0; i < (choice & 15); ++i) {
      const char c = static_cast<char>(byte());
      out += choice < 224 ? static_cast<char>('a' + (c & 15)) : c;
    }
    return out;
  }
  double real() {
    static constexpr double kOdd[] = {
        0, 1, -1, 0.5, 1e308, -1e-320, __builtin_nan(""), __builtin_inf()};
    return kOdd[below(std::size(kOdd))];
  }

 private:
  const uint8_t *at_;
  const uint8_t *end_;
};

}  // namespace octavo::fuzz
