// JSON by the events of nlohmann's parser, so that depth is bounded and no key goes unseen.
#include <nlohmann/json.hpp>

#include "sdk/cli/imports/found.h"
#include "sdk/src/base/failure.h"

namespace octavo::cli::imports {
namespace {

class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonReader(const std::string &text, std::string file) : text_(text), file_(std::move(file)) {}
  std::vector<Found> take() { return std::move(found_); }

  bool null() override { return scalar("null", true); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return scalar(std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return scalar(std::to_string(value)); }
  bool number_float(double, const std::string &written) override { return scalar(written); }
  bool string(std::string &value) override { return scalar(value); }
  bool binary(nlohmann::json::binary_t &) override { return false; }
  bool start_object(size_t) override {
    if (!levels_.empty() && levels_.back().is_list) scalar("{...}");
    return enter(false);
  }
  bool key(std::string &name) override {
    Level &level = levels_.back();
    for (const std::string &other : level.seen)
      if (other == name) fail(path(name) + ": expected each key once, found it twice");
    level.seen.push_back(name);
    level.open = path(name);
    return true;
  }
  bool end_object() override {
    const Level level = levels_.back();
    levels_.pop_back();
    if (level.seen.empty() && !level.key.empty() && !level.ignored) {
      Found f;
      f.key = level.key;
      f.is_empty = true;
      found_.push_back(f);
    }
    return true;
  }
  bool start_array(size_t) override {
    if (levels_.empty()) fail("expected an object, found a list");
    const bool nested = levels_.back().is_list || levels_.back().ignored;
    enter(true);
    if (nested) return true;
    Found f;
    f.key = levels_.back().key;
    f.is_list = true;
    found_.push_back(f);
    return true;
  }
  bool end_array() override {
    levels_.pop_back();
    return true;
  }
  bool parse_error(size_t at, const std::string &, const nlohmann::json::exception &e) override {
    const size_t end = at == 0 ? 0 : std::min(at - 1, text_.size());
    const std::string words = e.what();
    const size_t colon = words.find(": ");
    throw Failure(OCTAVO_INVALID, kImportDomain, place_at(file_, text_, end), ": not valid JSON: ",
                  colon == std::string::npos ? words : words.substr(colon + 2));
  }

 private:
  struct Level {
    std::string key;
    bool is_list = false;
    bool ignored = false;  // within a list
    std::string open = {};
    std::vector<std::string> seen = {};
  };

  [[noreturn]] void fail(const std::string &words) const {
    throw Failure(OCTAVO_INVALID, kImportDomain, file_, ": ", words);
  }
  std::string path(const std::string &name) const {
    return levels_.back().key.empty() ? name : levels_.back().key + "." + name;
  }
  bool enter(bool is_list) {
    if (levels_.size() >= kMostDepth)
      fail(concat("expected at most ", kMostDepth, " levels, found more"));
    Level level{levels_.empty()          ? ""
                : levels_.back().is_list ? levels_.back().key
                                         : levels_.back().open,
                is_list, !levels_.empty() && (levels_.back().is_list || levels_.back().ignored)};
    levels_.push_back(std::move(level));
    return true;
  }
  bool scalar(const std::string &value, bool is_null = false) {
    if (levels_.empty()) fail("expected an object, found only a value");
    const Level &level = levels_.back();
    if (level.ignored) return true;
    if (level.is_list) {
      found_.back().items.push_back(value);
      return true;
    }
    Found f;
    f.key = level.open;
    f.text = value;
    f.is_null = is_null;
    found_.push_back(f);
    return true;
  }

  const std::string &text_;
  std::string file_;
  std::vector<Level> levels_;
  std::vector<Found> found_;
};

}  // namespace

std::vector<Found> read_json(const std::string &text, const std::string &file) {
  JsonReader reader(text, file);
  nlohmann::json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace octavo::cli::imports
