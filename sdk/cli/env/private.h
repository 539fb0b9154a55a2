// What must not be in a text that people paste into a public page.
#pragma once

#include <string>
#include <vector>

namespace octavo::cli::env {

// Whose machine this is, by the environment and the system.
struct Person {
  static Person here();
  std::vector<std::string> homes, users, hosts;
};

// A path or a list of paths, with ~ for the home folder, USER and HOST for these names. Names are
// replaced as whole words: letters and digits around them belong to another word.
std::string without(const Person &person, std::string text);

// The value of a variable of Octavo, where it tells nothing about a person: a setting as it is,
// paths by without(); for any other variable "(set)".
std::string shown_value(const Person &person, const std::string &name, const std::string &value);

}  // namespace octavo::cli::env
