// An octavo_open_desc with the memory it borrows, and runs that close themselves.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/octavo.h"
#include "tests/support/recording_host.h"

namespace octavo::test {

inline octavo_str borrow(std::string_view s) {
  return {s.data(), s.size()};
}
inline std::string text_of(octavo_str s) {
  return s.data == nullptr ? std::string() : std::string(s.data, s.size);
}

struct CloseRun {
  void operator()(octavo_run *r) const { octavo_close(r); }
};
using RunPtr = std::unique_ptr<octavo_run, CloseRun>;

struct CloseStore {
  void operator()(octavo_store *s) const { octavo_store_close(s); }
};
using StorePtr = std::unique_ptr<octavo_store, CloseStore>;

class Request {
 public:
  Request &path(const std::string &p) {
    path_ = p;
    return *this;
  }
  Request &text(const std::string &toml) {
    text_ = toml;
    has_text_ = true;
    return *this;
  }
  Request &set(const std::string &key, int64_t value) {
    octavo_value v{};
    v.type = OCTAVO_VALUE_INT;
    v.integer = value;
    return add(key, v);
  }
  Request &set(const std::string &key, int value) { return set(key, int64_t{value}); }
  Request &set(const std::string &key, double value) {
    octavo_value v{};
    v.type = OCTAVO_VALUE_REAL;
    v.real = value;
    return add(key, v);
  }
  Request &set(const std::string &key, bool value) {
    octavo_value v{};
    v.type = OCTAVO_VALUE_BOOL;
    v.integer = value ? 1 : 0;
    return add(key, v);
  }
  Request &set(const std::string &key, const char *value) {
    octavo_value v{};
    v.type = OCTAVO_VALUE_TEXT;
    v.text = borrow(texts_.emplace_back(value));
    return add(key, v);
  }
  Request &set(const std::string &key, const std::string &value) { return set(key, value.c_str()); }
  Request &set_value(const std::string &key, const octavo_value &v) { return add(key, v); }
  Request &plugins(const std::string &directory) {
    directories_.push_back(borrow(texts_.emplace_back(directory)));
    return *this;
  }

  octavo_open_desc desc() const {
    octavo_open_desc d{};
    d.size = sizeof(d);
    d.kind = OCTAVO_KIND_OPEN_DESC;
    d.config_path = borrow(path_);
    if (has_text_) d.config_text = borrow(text_);
    d.overrides = overrides_.data();
    d.override_count = overrides_.size();
    d.plugin_dirs = directories_.data();
    d.plugin_dir_count = directories_.size();
    d.host = host.get();
    return d;
  }

  // Opens; `run` is null when the status is not OCTAVO_OK.
  octavo_status open(RunPtr &run) const {
    const octavo_open_desc d = desc();
    octavo_run *raw = nullptr;
    const octavo_status status = octavo_open(&d, &raw);
    run.reset(raw);
    return status;
  }
  RunPtr opened() const {
    RunPtr run;
    open(run);
    return run;
  }

  using Report = octavo_status (*)(const octavo_open_desc *, octavo_str, octavo_line, void *);
  // What octavo_explain, _list, _probe or _check_config prints.
  octavo_status print(Report report, const std::string &format, std::string &out) const {
    const octavo_open_desc d = desc();
    out.clear();
    return report(&d, borrow(format), append_line, &out);
  }
  static void append_line(void *ctx, octavo_str line) {
    static_cast<std::string *>(ctx)->append(line.data, line.size).append("\n");
  }

  RecordingHost host;

 private:
  Request &add(const std::string &key, const octavo_value &value) {
    overrides_.push_back({borrow(texts_.emplace_back(key)), value});
    return *this;
  }
  std::string path_;
  std::string text_;
  bool has_text_ = false;
  std::deque<std::string> texts_;
  std::vector<octavo_option_value> overrides_;
  std::vector<octavo_str> directories_;
};

}  // namespace octavo::test
