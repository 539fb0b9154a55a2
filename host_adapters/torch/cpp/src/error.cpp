// octavo::torch::Error, also for what fails in the core.
#include "octavo/torch/error.h"

#include "host_adapters/torch/core/error.h"
#include "host_adapters/torch/core/host.h"

namespace octavo::torch {
namespace {

std::string with_diagnostics(const std::string &text, const std::vector<Diagnostic> &said) {
  std::string all = text;
  for (const Diagnostic &d : said) all += "\n  " + d.domain + ": " + d.text;
  return all;
}

}  // namespace

Error::Error(octavo_status status, const std::string &text, std::vector<Diagnostic> diagnostics)
    : std::runtime_error(with_diagnostics(text, diagnostics)),
      status_(status),
      diagnostics_(std::move(diagnostics)) {}

Error::~Error() = default;

}  // namespace octavo::torch

void octavo::core::raise(octavo_status status, const std::string &what) {
  std::vector<octavo::torch::Diagnostic> all;
  for (Said &said : take_diagnostics())
    if (said.severity >= OCTAVO_SEVERITY_WARNING)
      all.push_back({said.code, said.severity, std::move(said.domain), std::move(said.text)});
  throw octavo::torch::Error(status, what, std::move(all));
}
