// A program that asks for memory before main, which heap_before_main.c must notice.
#include <string>

namespace {
const std::string text(100, 'x');
}

int main() {
  return text.size() == 100 ? 0 : 1;
}
