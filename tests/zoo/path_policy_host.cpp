// A host that can be copied anywhere, run as another user, or made set-gid: it explains the backend
// `fake` as JSON. liboctavo is linked into it, so that nothing else has to lie in the right place.
//
//   path_policy_host <user or -> <config or -> <trust or -> [plugin directory]...
//
// Exit code 0: the plugin was loaded and accepted; 1: it was not; 2: another failure.
#include <grp.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/request.h"

namespace {

bool become(const char *user) {
  if (std::strcmp(user, "-") == 0) return true;
  const auto id = static_cast<uid_t>(std::atoi(user));
  return setgroups(0, nullptr) == 0 && setresgid(id, id, id) == 0 && setresuid(id, id, id) == 0;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 4 || !become(argv[1])) return 2;
  octavo::test::Request request;
  // The helper would have to lie beside each copy; OCTAVO_PROBE_HELPER names one where it is meant.
  const bool is_tried = std::getenv("OCTAVO_PROBE_HELPER") != nullptr;
  request.set("fp8.backend", "fake").set("plugins.probe", is_tried ? "always" : "never");
  if (std::strcmp(argv[2], "-") != 0) request.path(argv[2]);
  if (std::strcmp(argv[3], "-") != 0) request.set("plugins.trust", argv[3]);
  for (int i = 4; i < argc; ++i) request.plugins(argv[i]);
  std::string report;
  const octavo_status status = request.print(octavo_explain, "json", report);
  std::fputs(report.c_str(), stdout);
  for (const octavo::test::Diagnostic &d : request.host.all())
    std::fprintf(stderr, "%s\n", d.text.c_str());
  return status == OCTAVO_OK ? 0 : status == OCTAVO_UNSUPPORTED ? 1 : 2;
}
