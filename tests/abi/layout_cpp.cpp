/* layout_cpp.cpp: the ABI's layout as a C++ compiler sees it; layout_c.c is its twin in C. */
#include <type_traits>

#include "layout_check.h"

/* The three that cross the border most often; offsetof is defined for standard layout only. */
static_assert(std::is_standard_layout_v<octavo_tensor> && std::is_trivial_v<octavo_tensor>);
static_assert(std::is_standard_layout_v<octavo_slot> && std::is_trivial_v<octavo_slot>);
static_assert(std::is_standard_layout_v<octavo_forward_call>);

int main() {
  return run_layout_check("C++");
}
