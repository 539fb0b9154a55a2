// A list of what may be shown, not of what may not: a variable that nobody thought of stays hidden.
#include "sdk/cli/env/private.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace octavo::cli::env {
namespace {

constexpr std::string_view kSettings[] = {"OCTAVO_MIXED_PRECISION",    "OCTAVO_BACKEND",
                                          "OCTAVO_FORCE_KERNELS",      "OCTAVO_CUDA_GEMM",
                                          "OCTAVO_CUDA_TUNE",          "OCTAVO_CUDA_GEMM_SMS",
                                          "OCTAVO_CUDA_GEMM_WORKSPACE"};
constexpr std::string_view kPaths[] = {"OCTAVO_PLUGIN_PATH", "OCTAVO_PROBE_HELPER",
                                       "OCTAVO_LIBRARY_DIR", "OCTAVO_CUBLASLT"};
constexpr std::string_view kOptions = "OCTAVO_FP8_";
constexpr size_t kLongestWord = 32;

void add(std::vector<std::string> &to, const char *text) {
  const std::string word = text == nullptr ? "" : text;
  if (!word.empty() && word != "/" && std::find(to.begin(), to.end(), word) == to.end())
    to.push_back(word);
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

void replace_words(std::string &text, const std::string &word, const std::string &by) {
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    const size_t end = at + word.size();
    const bool alone =
        (at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]));
    if (alone) text.replace(at, word.size(), by);
    at += alone ? by.size() : word.size();
  }
}

// Words such as delayed, 0.5 and true; not patterns of layers' names.
bool is_plain(const std::string &value) {
  return !value.empty() && value.size() <= kLongestWord &&
         std::all_of(value.begin(), value.end(),
                     [](char c) { return in_word(c) || c == '.' || c == '-' || c == '+'; });
}

template <typename Names>
bool has(const Names &names, const std::string &name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

Person Person::here() {
  Person p;
  add(p.homes, std::getenv("HOME"));
  add(p.users, std::getenv("USER"));
  add(p.users, std::getenv("LOGNAME"));
  if (const passwd *entry = getpwuid(getuid()); entry != nullptr) {
    add(p.homes, entry->pw_dir);
    add(p.users, entry->pw_name);
  }
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) {
    add(p.hosts, host);
    add(p.hosts, std::string(host).substr(0, std::string(host).find('.')).c_str());
  }
  add(p.hosts, std::getenv("HOSTNAME"));
  return p;
}

std::string without(const Person &person, std::string text) {
  for (const std::string &home : person.homes) replace_words(text, home, "~");
  for (const std::string &host : person.hosts) replace_words(text, host, "HOST");
  for (const std::string &user : person.users) replace_words(text, user, "USER");
  return text;
}

std::string shown_value(const Person &person, const std::string &name, const std::string &value) {
  if ((has(kSettings, name) || name.starts_with(kOptions)) && is_plain(value)) return value;
  if (has(kPaths, name)) return without(person, value);
  return "(set)";
}

}  // namespace octavo::cli::env
