// Lines are cut to the width of the terminal, so that the cursor knows how far up the list begins.
#include "sdk/cli/wizard/menu.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "sdk/cli/text_layout.h"
#include "sdk/src/base/utf8.h"

namespace octavo::cli::wizard {
namespace {

constexpr int kEscapeMs = 50;  // the rest of an arrow key's bytes is there by then

enum class Key { kUp, kDown, kEnter, kEnd, kInterrupt, kDigit, kOther };

// Keys come one by one, without an echo, and Ctrl-C is a key.
class RawInput {
 public:
  RawInput() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawInput() { tcsetattr(STDIN_FILENO, TCSADRAIN, &before_); }
  RawInput(const RawInput &) = delete;
  RawInput &operator=(const RawInput &) = delete;

  // -1: the input ended.
  static int byte() {
    unsigned char c = 0;
    ssize_t got = 0;
    do got = read(STDIN_FILENO, &c, 1);
    while (got < 0 && errno == EINTR);
    return got == 1 ? c : -1;
  }
  static bool has_more() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, kEscapeMs) == 1;
  }

 private:
  termios before_{};
};

// digit: of Key::kDigit.
Key read_key(int *digit) {
  const int c = RawInput::byte();
  if (c == '\r' || c == '\n') return Key::kEnter;
  if (c == 'k') return Key::kUp;
  if (c == 'j') return Key::kDown;
  if (c == 3) return Key::kInterrupt;
  if (c < 0 || c == 4 || c == 'q') return Key::kEnd;
  if (c >= '1' && c <= '9') {
    *digit = c - '0';
    return Key::kDigit;
  }
  if (c != 27) return Key::kOther;
  if (!RawInput::has_more()) return Key::kEnd;
  const int kind = RawInput::byte();
  if (kind != '[' && kind != 'O') return Key::kOther;
  int last = RawInput::byte();
  while (last >= '0' && last <= ';') last = RawInput::byte();  // parameters of other keys
  return last == 'A' ? Key::kUp : last == 'B' ? Key::kDown : Key::kOther;
}

std::string cut(const std::string &text) {
  const size_t columns = page_columns() - 1;
  size_t end = 0;
  for (size_t shown = 0; shown < columns && end < text.size(); ++shown)
    end += std::max<size_t>(1, utf8_character(std::string_view(text).substr(end)));
  return text.substr(0, end);
}

void draw(const std::vector<Row> &rows, size_t at, bool again) {
  std::string out = again ? "\x1b[" + std::to_string(rows.size()) + "A" : "";
  for (size_t i = 0; i < rows.size(); ++i) {
    const char *style = i == at ? "\x1b[7m" : rows[i].can_be_chosen ? "" : "\x1b[2m";
    out += "\r\x1b[K" + std::string(style) + cut((i == at ? "> " : "  ") + rows[i].text) +
           (*style == '\0' ? "" : "\x1b[0m") + "\n";
  }
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
}

// The next row in that direction, or the same.
size_t moved(const std::vector<Row> &rows, size_t at, int direction) {
  for (size_t next = at + static_cast<size_t>(direction); next < rows.size();
       next += static_cast<size_t>(direction))
    if (rows[next].can_be_chosen) return next;
  return at;
}

size_t numbered(const std::vector<Row> &rows, size_t at, int digit) {
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].can_be_chosen && --digit == 0) return i;
  return at;
}

}  // namespace

bool has_keys() {
  const char *kind = std::getenv("TERM");
  return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0 && kind != nullptr &&
         *kind != '\0' && std::string_view(kind) != "dumb";
}

int choose(const std::vector<Row> &rows, size_t initial) {
  size_t at = initial;
  bool is_interrupted = false;
  {
    const RawInput raw;
    draw(rows, at, false);
    for (int digit = 0; !is_interrupted;) {
      switch (read_key(&digit)) {
        case Key::kUp: at = moved(rows, at, -1); break;
        case Key::kDown: at = moved(rows, at, 1); break;
        case Key::kDigit: at = numbered(rows, at, digit); break;
        case Key::kEnter: return static_cast<int>(at);
        case Key::kEnd: return -1;
        case Key::kInterrupt: is_interrupted = true; break;
        case Key::kOther: break;
      }
      draw(rows, at, true);
    }
  }
  std::raise(SIGINT);
  return -1;
}

}  // namespace octavo::cli::wizard
