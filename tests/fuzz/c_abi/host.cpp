// Judges diagnostics, lines and statuses.
#include "host.h"

#include "tests/fuzz/expect.h"

namespace octavo::fuzz {

Host::Host() {
  table_.size = sizeof(table_);
  table_.kind = OCTAVO_KIND_HOST;
  table_.abi_major = OCTAVO_ABI_MAJOR;
  table_.abi_minor = OCTAVO_ABI_MINOR;
  table_.ctx = this;
  table_.diagnose = [](void *ctx, const octavo_diagnostic *d) {
    expect(d != nullptr, "a diagnostic");
    static_cast<Host *>(ctx)->take(*d);
  };
  table_.get_extension = [](void *ctx, octavo_str id) -> const void * {
    return view(id) == OCTAVO_PARALLEL_ID ? &static_cast<Host *>(ctx)->parallel_ : nullptr;
  };
  parallel_.size = sizeof(parallel_);
  parallel_.kind = OCTAVO_KIND_PARALLEL;
  // Two ranges, so that splitting is tried without threads.
  parallel_.parallel_for = [](void *, int64_t begin, int64_t end, int64_t,
                              void (*body)(void *, int64_t, int64_t), void *arg) {
    const int64_t middle = begin + (end - begin) / 2;
    if (begin < middle) body(arg, begin, middle);
    if (middle < end) body(arg, middle, end);
    return octavo_status{OCTAVO_OK};
  };
}

void Host::take(const octavo_diagnostic &d) {
  expect(d.size == sizeof(d) && d.kind == OCTAVO_KIND_DIAGNOSTIC, "a whole diagnostic");
  expect(d.severity <= OCTAVO_SEVERITY_ERROR, "a known severity");
  expect(!view(d.domain).empty(), "a diagnostic says who speaks", std::string(view(d.text)));
  if (d.severity != OCTAVO_SEVERITY_ERROR) return;
  last_text_ = view(d.text);
  expect(!last_text_.empty(), "an error has a text", std::string(view(d.domain)));
  last_code_ = d.code;
  ++errors_;
}

void Host::line(void *ctx, octavo_str text) {
  auto &host = *static_cast<Host *>(ctx);
  expect(view(text).find('\n') == std::string_view::npos, "one line a call",
         std::string(view(text)));
  ++host.lines_;
}

void Host::check(const char *name, octavo_status status, bool explains) const {
  const std::string found = std::string(name) + " answered " + std::to_string(status) +
                            ", said: " + (errors_ == 0 ? "nothing" : last_text_);
  expect(any_status_ || (status >= OCTAVO_OK && status <= OCTAVO_INTERNAL), "a defined status",
         found);
  expect(any_status_ || status != OCTAVO_INTERNAL, "no defect of liboctavo or of a plugin", found);
  if (status == OCTAVO_OK || !explains) return;
  expect(errors_ + lines_ > 0, "a failure is explained before it returns", found);
  // A report's lines say why it answers so, after what a plugin said of itself.
  expect(errors_ == 0 || last_code_ == status || any_status_ || lines_ > 0,
         "the last error has the call's status",
         found + " with code " + std::to_string(last_code_));
}

}  // namespace octavo::fuzz
