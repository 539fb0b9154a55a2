// Names of parametrised tests as ctest shows them: readable, and the same in every run. Without one
// gtest shows the parameter's bytes or its number.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <string>
#include <type_traits>

namespace octavo::test {

// The text with _ for what a test's name may not contain: te:recipe=mx is te_recipe_mx.
inline std::string name_of_text(std::string text) {
  for (char &c : text)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return text;
}

// For INSTANTIATE_TEST_SUITE_P: a parameter that is a text or a number.
inline constexpr auto kNameOfValue = [](const auto &info) {
  if constexpr (std::is_convertible_v<decltype(info.param), std::string>) {
    return name_of_text(info.param);
  } else {
    return name_of_text(testing::PrintToString(info.param));
  }
};

}  // namespace octavo::test
