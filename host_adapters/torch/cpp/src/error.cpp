// octavo::torch::Error, also for what fails in the core.
#include "octavo/torch/error.h"

#include <c10/util/Exception.h>
#include <sysexits.h>

#include <filesystem>
#include <ios>
#include <string_view>

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

int exit_code(const std::exception &error) {
  constexpr int kRestart = EX_TEMPFAIL, kFiles = EX_IOERR;
  if (const auto *own = dynamic_cast<const Error *>(&error)) {
    switch (own->status()) {
      case OCTAVO_FAILED_DEVICE: return kRestart;
      case OCTAVO_NO_RESOURCE: return kFiles;
      case OCTAVO_INTERNAL: return EX_SOFTWARE;
      default: return EX_CONFIG;
    }
  }
  if (dynamic_cast<const c10::DistError *>(&error) != nullptr) return kRestart;
  if (dynamic_cast<const std::ios_base::failure *>(&error) != nullptr ||
      dynamic_cast<const std::filesystem::filesystem_error *>(&error) != nullptr)
    return kFiles;
  const std::string_view text = error.what();  // of torch's transport, and of a short file
  for (const char *of_gloo : {"/gloo/", "caused pair closure"})
    if (text.find(of_gloo) != std::string_view::npos) return kRestart;
  return text.find("inline_container") != std::string_view::npos ? kFiles : 1;
}

}  // namespace octavo::torch

void octavo::core::raise(octavo_status status, const std::string &what) {
  std::vector<octavo::torch::Diagnostic> all;
  for (Said &said : take_diagnostics())
    if (said.severity >= OCTAVO_SEVERITY_WARNING)
      all.push_back({said.code, said.severity, std::move(said.domain), std::move(said.text)});
  throw octavo::torch::Error(status, what, std::move(all));
}
