// Reports: what was asked, what was tried and why, what runs; as text, tree or JSON.
#pragma once

#include <string>
#include <string_view>

#include "sdk/src/run/run.h"

namespace octavo {

enum class Format { kText, kTree, kJson };

// Throws Failure(OCTAVO_INVALID) for anything but "text", "tree" and "json".
Format parse_format(std::string_view name);

// Sends text to the caller line by line.
class Lines {
 public:
  Lines(octavo_line line, void *ctx) : line_(line), ctx_(ctx) {}
  void operator()(const std::string &text) const;  // may hold several lines
  // The same for a terminal: each line as plain_text.
  Lines for_terminal() const {
    Lines all(*this);
    all.is_terminal_ = true;
    return all;
  }

 private:
  octavo_line line_;
  void *ctx_;
  bool is_terminal_ = false;
};

// What a report is about: a negotiation or a run, plugins, the machine with its probes, options,
// and what octavo.toml may hold.
enum class View { kRun, kPlugins, kHardware, kConfig, kSchema };

// `run` adds layers and memory to View::kRun; null without one.
void write_report(View view, const Negotiation &n, const octavo_run *run, Format format,
                  const Lines &lines);
// The report when the configuration is wrong, so that nothing was negotiated, or when a check could
// not be made, so that the negotiation ended.
void write_problem(const octavo_open_desc &desc, const Verdict &problem, Format format,
                   const Lines &lines);

}  // namespace octavo
