/* layout_c.c: the ABI's layout as a C11 compiler sees it; layout_cpp.cpp is its twin in C++. */
#include "layout_check.h"

int main(void) {
  return run_layout_check("C11");
}
