// Comments are wrapped by words; a file gets its name when it is complete.
#include "sdk/cli/toml_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <type_traits>

#include "sdk/cli/text_layout.h"
#include "sdk/src/base/failure.h"
#include "sdk/src/file/atomic_file.h"

namespace octavo::cli {
namespace {

constexpr const char *kWriteDomain = "octavo.write";
constexpr size_t kCommentColumns = 100;

void add_comment(std::string &out, const std::string &comment) {
  if (comment.empty()) return;
  for (const std::string &line : split_lines(comment))
    for (const std::string &part : wrapped(line, kCommentColumns - 2)) out += "# " + part + "\n";
}

std::string table_of(const std::string &key) {
  const size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

[[noreturn]] void cannot_write(const std::string &path, int error) {
  throw Failure(OCTAVO_INVALID, kWriteDomain, path, ": cannot be written: ", std::strerror(error),
                "; check the folder and its permissions, or name another file with --output");
}

}  // namespace

std::string toml_text(const std::string &head, const std::vector<TomlLine> &lines,
                      std::vector<size_t> *places) {
  std::vector<std::string> tables = {""};
  for (const TomlLine &line : lines) {
    bool known = false;
    for (const std::string &table : tables) known = known || table == table_of(line.key);
    if (!known) tables.push_back(table_of(line.key));
  }
  std::string out;
  add_comment(out, head);
  if (places != nullptr) places->assign(lines.size(), 0);
  for (const std::string &table : tables) {
    if (!table.empty()) out += "\n[" + table + "]\n";
    for (size_t i = 0; i < lines.size(); ++i) {
      if (table_of(lines[i].key) != table) continue;
      add_comment(out, lines[i].comment);
      if (places != nullptr)
        (*places)[i] = static_cast<size_t>(std::count(out.begin(), out.end(), '\n')) + 1;
      out += lines[i].key.substr(table.empty() ? 0 : table.size() + 1) + " = " +
             show(lines[i].value) + "\n";
    }
  }
  return out;
}

nlohmann::json json_of_value(const TomlValue &value) {
  return std::visit(
      [](const auto &one) -> nlohmann::json {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, OtherToml>)
          return one.kind;
        else
          return one;
      },
      value);
}

void refuse_existing(const std::string &path, bool force) {
  std::error_code error;
  const auto state = std::filesystem::symlink_status(path, error);
  if (state.type() == std::filesystem::file_type::not_found) return;
  if (std::filesystem::is_directory(path, error))
    throw Failure(OCTAVO_INVALID, kWriteDomain, path,
                  ": expected the name of a file, found a directory; name a file with --output");
  if (!force)
    throw Failure(
        OCTAVO_INVALID, kWriteDomain, path,
        " exists already; use --force to overwrite it, or --output to write another file");
}

void write_file(const std::string &path, const std::string &text, bool force) {
  refuse_existing(path, force);
  AtomicFile draft(path, 0666);
  if (draft.file() < 0 || !draft.write(text.data(), text.size()) || fsync(draft.file()) != 0 ||
      !draft.close())
    cannot_write(path, errno);
  // A link, unlike a new name, never replaces a file that came into being meanwhile.
  if (!force && link(draft.name().c_str(), path.c_str()) == 0) return;
  if (!force && errno == EEXIST) refuse_existing(path, force);
  if (!draft.commit()) cannot_write(path, errno);  // or a file system without links
}

}  // namespace octavo::cli
