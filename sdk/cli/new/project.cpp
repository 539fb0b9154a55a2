// A folder is written next to its place under another name, and moved there when it is complete.
#include "project.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::pair<std::string, std::string>>;

// Of every/ci.yml.in.
constexpr const char *kPrefixOfCi = "/opt/octavo";
constexpr const char *kIndentOfCi = "          ";

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Every occurrence of `from` that is a whole word. How many there were.
int replace_word(std::string &text, const std::string &from, const std::string &to) {
  int count = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const size_t end = at + from.size();
    const bool whole = (at == 0 || !is_word(text[at - 1]) || !is_word(from.front())) &&
                       (end == text.size() || !is_word(text[end]) || !is_word(from.back()));
    if (whole) text.replace(at, from.size(), to);
    count += whole ? 1 : 0;
    at += whole ? to.size() : from.size();
  }
  return count;
}

// Every occurrence of @NAME@, where NAME is the first of a pair.
std::string filled(std::string text, const Words &values) {
  for (const auto &[name, value] : values) {
    const std::string from = "@" + name + "@";
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
      text.replace(at, from.size(), value);
      at += value.size();
    }
  }
  return text;
}

// What cargo accepts as the name of a package.
bool is_package(const std::string &name) {
  const auto may_follow = [](char c) { return is_word(c) || c == '-'; };
  return !(name.front() >= '0' && name.front() <= '9') &&
         std::all_of(name.begin(), name.end(), may_follow);
}

// The build of this tree has its own; the others are what builds of a sample leave in it.
bool is_of_a_build(const std::string &place) {
  return place == "CMakeLists.txt" || place == "Cargo.lock" || place.starts_with("target/") ||
         place.starts_with("build/");
}

std::string lines(const std::vector<std::string> &all, const std::string &indent) {
  std::string text;
  for (const std::string &line : all) text += (text.empty() ? "" : "\n" + indent) + line;
  return text;
}

std::string read(const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.eof() && !file.good()) throw std::runtime_error(path.string() + ": cannot be read");
  return all;
}

// The place of an installed file of the project.
std::string place_of(const std::string &file) {
  if (file == "gitignore.in") return ".gitignore";
  if (file == "ci.yml.in") return ".github/workflows/ci.yml";
  return file.substr(0, file.size() - std::strlen(".in"));
}

class Files {
 public:
  explicit Files(Words values) : values_(std::move(values)) {}

  void add_sample(const fs::path &folder, const Words &words) {
    std::vector<int> found(words.size());
    for (const auto &entry : fs::recursive_directory_iterator(folder)) {
      std::string place = fs::relative(entry.path(), folder).string();
      if (!entry.is_regular_file() || is_of_a_build(place)) continue;
      std::string content = read(entry.path());
      for (size_t i = 0; i < words.size(); ++i) {
        const std::string to = filled(words[i].second, values_);
        found[i] += replace_word(content, words[i].first, to);
        found[i] += replace_word(place, words[i].first, to);
      }
      put(place, content);
    }
    for (size_t i = 0; i < words.size(); ++i)
      if (found[i] == 0)
        throw std::runtime_error(folder.string() + ": expected the word " + words[i].first +
                                 " in the sample, found none; install Octavo again");
    std::string sources;
    for (const auto &[place, content] : files_) {
      const std::string suffix = fs::path(place).extension().string();
      if (suffix == ".c" || suffix == ".cpp" || suffix == ".rs")
        sources += (sources.empty() ? "" : " ") + place;
    }
    values_.emplace_back("SOURCES", sources);
  }

  void add_project(const fs::path &folder) {
    for (const auto &entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        put(place_of(fs::relative(entry.path(), folder).string()),
            filled(read(entry.path()), values_));
  }

  std::map<std::string, std::string> take() { return std::move(files_); }

 private:
  void put(const std::string &place, const std::string &content) {
    if (!files_.emplace(place, content).second)
      throw WrongProject("expected a name that leaves every file its own, found two files " +
                         place + "; choose another name");
  }

  Words values_;
  std::map<std::string, std::string> files_;
};

[[noreturn]] void fail(const fs::path &path, int error) {
  throw std::runtime_error(path.string() + ": " + std::strerror(error));
}

}  // namespace

std::string class_of(const std::string &name) {
  std::string all;
  bool starts = true;
  for (const char c : name) {
    const bool letter = is_word(c) && c != '_';
    if (letter) all += starts && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    starts = !letter;
  }
  const bool begins = !all.empty() && !(all.front() >= '0' && all.front() <= '9');
  return begins ? all : "Plugin" + all;
}

std::vector<std::string> commands(const Language &language, const std::string &prefix) {
  std::vector<std::string> all = language.build->commands;
  for (std::string &command : all) command = filled(command, {{"PREFIX", prefix}});
  return all;
}

std::map<std::string, std::string> project_files(const Language &language, const std::string &name,
                                                 const fs::path &data, const std::string &prefix) {
  for (const fs::path &folder :
       {data / "samples" / language.sample, data / "new" / language.project, data / "new/every"})
    if (!fs::is_directory(folder))
      throw std::runtime_error("expected the folder " + folder.string() +
                               " of the installation, found none; install Octavo again");
  const Build &build = *language.build;
  if (build.is_cargo && !is_package(name))
    throw WrongProject(
        "expected a name that cargo accepts: letters, digits, _ and -, no digit "
        "first, found " +
        name + "; choose another name");
  Words values = language.values;
  values.emplace_back("COMMANDS", lines(commands(language, prefix), ""));
  values.emplace_back("CI_COMMANDS", lines(commands(language, kPrefixOfCi), kIndentOfCi));
  values.emplace_back("PACKAGES", build.packages);
  values.emplace_back("IGNORED", build.ignored);
  values.emplace_back("NAME", name);
  values.emplace_back("CLASS", class_of(name));
  Files files(values);
  files.add_sample(data / "samples" / language.sample, language.words);
  files.add_project(data / "new" / language.project);
  files.add_project(data / "new/every");
  return files.take();
}

void write_project(const fs::path &folder, const std::map<std::string, std::string> &files) {
  const fs::path parent = folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  std::error_code error;
  if (!fs::is_directory(parent, error))
    throw WrongProject("expected the folder " + parent.string() + " to exist, found none");
  if (fs::symlink_status(folder, error).type() != fs::file_type::not_found)
    throw WrongProject("expected a folder that does not exist yet, found " + folder.string() +
                       "; choose another name or --dir");
  std::string draft = (parent / ("." + folder.filename().string() + ".XXXXXX")).string();
  if (mkdtemp(draft.data()) == nullptr) fail(parent, errno);
  try {
    const mode_t mask = umask(0);  // mkdtemp leaves others out
    umask(mask);
    fs::permissions(draft, static_cast<fs::perms>(0777U & ~mask));
    for (const auto &[place, content] : files) {
      const fs::path path = fs::path(draft) / place;
      fs::create_directories(path.parent_path());
      std::ofstream file(path, std::ios::binary);
      file << content;
      file.close();
      if (!file) fail(path, errno);
    }
    // Never onto what somebody else has put there meanwhile, not even an empty folder.
    if (renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, folder.c_str(), RENAME_NOREPLACE) != 0)
      fail(folder, errno);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(draft, ignored);
    throw;
  }
}

}  // namespace octavo::cli
