// A Config as the octavo_open_desc that liboctavo takes; owns what the latter points at.
#pragma once

#include <octavo/octavo.h>

#include <vector>

#include "octavo/torch/config.h"
#include "text.h"

namespace octavo::torch {

class OpenRequest {
 public:
  // Borrows both.
  OpenRequest(const Config &config, const octavo_host *host, const octavo_device &device)
      : desc_(make<octavo_open_desc>(OCTAVO_KIND_OPEN_DESC)) {
    for (const auto &[key, value] : config.overrides)
      overrides_.push_back({view(key), to_value(value)});
    for (const std::string &directory : config.plugin_dirs) directories_.push_back(view(directory));
    desc_.config_path = view(config.path);
    if (!config.text.empty()) desc_.config_text = view(config.text);
    desc_.overrides = overrides_.data();
    desc_.override_count = overrides_.size();
    desc_.plugin_dirs = directories_.data();
    desc_.plugin_dir_count = directories_.size();
    desc_.device = device;
    desc_.host = host;
  }
  OpenRequest(const OpenRequest &) = delete;
  OpenRequest &operator=(const OpenRequest &) = delete;

  const octavo_open_desc *desc() const { return &desc_; }

 private:
  static octavo_value to_value(const Value &given) {
    octavo_value value = {};
    if (const auto *b = std::get_if<bool>(&given)) {
      value.type = OCTAVO_VALUE_BOOL;
      value.integer = *b ? 1 : 0;
    } else if (const auto *i = std::get_if<int64_t>(&given)) {
      value.type = OCTAVO_VALUE_INT;
      value.integer = *i;
    } else if (const auto *r = std::get_if<double>(&given)) {
      value.type = OCTAVO_VALUE_REAL;
      value.real = *r;
    } else {
      value.type = OCTAVO_VALUE_TEXT;
      value.text = view(std::get<std::string>(given));
    }
    return value;
  }

  octavo_open_desc desc_;
  std::vector<octavo_option_value> overrides_;
  std::vector<octavo_str> directories_;
};

// Appends lines of text to the std::string that `ctx` points to.
inline void append_line(void *ctx, octavo_str line) {
  *static_cast<std::string *>(ctx) += text(line) + "\n";
}

}  // namespace octavo::torch
