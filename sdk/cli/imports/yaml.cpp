// YAML by the events of yaml-cpp: they still know anchors, aliases and tags, which nodes do not.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>
#include <utility>

#include "sdk/cli/imports/found.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::imports {
namespace {

class YamlReader : public YAML::EventHandler {
 public:
  explicit YamlReader(std::string file) : file_(std::move(file)) {}
  std::vector<Found> take() { return std::move(found_); }

  void OnDocumentStart(const YAML::Mark &) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark &mark, YAML::anchor_t anchor) override {
    plain(mark, "", anchor);
    scalar(mark, "", true);
  }
  void OnAlias(const YAML::Mark &mark, YAML::anchor_t) override {
    fail(mark, "expected a value, found an alias (*name); write the value itself");
  }
  void OnScalar(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                const std::string &value) override {
    plain(mark, tag, anchor);
    const bool unquoted = tag == "?";
    scalar(mark, value,
           unquoted && (value.empty() || value == "~" || value == "null" || value == "Null" ||
                        value == "NULL"));
  }
  void OnSequenceStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    plain(mark, tag, anchor);
    if (levels_.empty()) fail(mark, "expected keys with values, found a list");
    const std::string key = next_key(mark);
    enter(mark, {key, {}, true, is_inside_list()});
    if (levels_.size() > 1 && levels_[levels_.size() - 2].in_list) return;
    Found f = at(mark);
    f.key = key;
    f.is_list = true;
    add(std::move(f));
  }
  void OnSequenceEnd() override { levels_.pop_back(); }
  void OnMapStart(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    plain(mark, tag, anchor);
    if (!levels_.empty() && levels_.back().in_list) {
      scalar(mark, "{...}", false);
      enter(mark, {levels_.back().key, {}, false, true});
      return;
    }
    enter(mark, {levels_.empty() ? "" : next_key(mark), {}, false, is_inside_list()});
    levels_.back().start = mark;
  }
  void OnMapEnd() override {
    const Level level = levels_.back();
    levels_.pop_back();
    if (!level.seen.empty() || level.key.empty() || level.ignored) return;
    Found f = at(level.start);
    f.key = level.key;
    f.is_empty = true;
    add(std::move(f));
  }

 private:
  struct Level {
    std::string key;                // of this map or list
    std::vector<std::string> seen;  // keys of this map
    bool in_list = false;
    bool ignored = false;   // a map within a list, which no setting of FP8 has
    std::string open = {};  // the key whose value comes next
    bool has_key = false;
    bool is_repeated = false;  // the open key came before
    YAML::Mark open_mark = {};
    YAML::Mark start = {};
  };

  [[noreturn]] void fail(const YAML::Mark &mark, const std::string &words) const {
    throw Failure(OCTAVO_INVALID, kImportDomain, file_, ":", mark.line + 1, ":", mark.column + 1,
                  ": ", words);
  }
  bool is_inside_list() const { return !levels_.empty() && levels_.back().ignored; }
  static Found at(const YAML::Mark &mark) {
    Found f;
    f.line = static_cast<size_t>(mark.line) + 1;
    f.column = static_cast<size_t>(mark.column) + 1;
    return f;
  }
  void plain(const YAML::Mark &mark, const std::string &tag, YAML::anchor_t anchor) const {
    if (anchor != 0) fail(mark, "expected a value, found an anchor (&name); remove it");
    if (!tag.empty() && tag != "?" && tag != "!")
      fail(mark, "expected a plain value, found the tag " + tag +
                     "; write [true, false, false] for a tuple, and the value itself otherwise");
  }
  void enter(const YAML::Mark &mark, Level level) {
    if (levels_.size() >= kMostDepth)
      fail(mark, concat("expected at most ", kMostDepth, " levels, found more"));
    levels_.push_back(std::move(level));
  }
  // Takes the key that was open.
  std::string next_key(const YAML::Mark &mark) {
    Level &level = levels_.back();
    if (level.in_list) return level.key;
    if (!level.has_key) fail(mark, "expected a text as a key, found a list or more keys");
    if (level.is_repeated) fail(mark, "expected " + level.open + " once, found it twice");
    level.has_key = false;
    return level.open;
  }
  void scalar(const YAML::Mark &mark, const std::string &value, bool is_null) {
    if (levels_.empty()) fail(mark, "expected keys with values, found only a text");
    Level &level = levels_.back();
    if (level.in_list) {
      for (Found &f : found_)
        if (f.key == level.key) f.items.push_back(value);
      return;
    }
    if (!level.has_key) {
      for (const std::string &other : level.seen) level.is_repeated |= other == value;
      level.seen.push_back(value);
      level.open = level.key.empty() ? value : level.key + "." + value;
      level.open_mark = mark;
      level.has_key = true;
      return;
    }
    const bool is_repeated = std::exchange(level.is_repeated, false);
    Found f = at(mark);
    f.key = next_key(mark);
    f.text = value;
    f.is_null = is_null;
    if (is_repeated) return repeat(mark, f);
    add(std::move(f));
  }
  // Accelerate's files have the same line twice; two values are another matter.
  void repeat(const YAML::Mark &mark, const Found &again) const {
    for (const Found &f : found_)
      if (f.key == again.key && !f.is_list && f.text == again.text && f.is_null == again.is_null)
        return;
    fail(mark, again.key + ": expected one value, found a second one for the same key");
  }
  void add(Found f) {
    if (levels_.back().ignored) return;
    for (auto level = levels_.rbegin(); level != levels_.rend() && f.key_line == 0; ++level)
      if (level->open == f.key) {
        f.key_line = static_cast<size_t>(level->open_mark.line) + 1;
        f.key_column = static_cast<size_t>(level->open_mark.column) + 1;
      }
    found_.push_back(std::move(f));
  }

  std::string file_;
  std::vector<Level> levels_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<Found> read_yaml(const std::string &text, const std::string &file) {
  std::istringstream in(text);
  YamlReader reader(file);
  try {
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(reader)) return {};
    YamlReader second(file);
    if (parser.HandleNextDocument(second) && !second.take().empty())
      throw Failure(OCTAVO_INVALID, kImportDomain, file,
                    ": expected one document, found a second after ---; keep one of them");
  } catch (const YAML::Exception &e) {
    throw Failure(OCTAVO_INVALID, kImportDomain, file, ":", e.mark.line + 1, ":", e.mark.column + 1,
                  ": not valid YAML: ", e.msg);
  }
  return reader.take();
}

}  // namespace octavo::cli::imports
