// The page: one row a part, the findings, and the first thing to fix on the last line.
#include <filesystem>

#include "sdk/cli/doctor/doctor.h"
#include "sdk/cli/page.h"
#include "sdk/src/base/text.h"

namespace octavo::cli::doctor {
namespace {

std::string str(const Json &j, const char *key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

std::string mebibytes(const Json &bytes) {
  return concat(bytes.get<uint64_t>() >> 20, " MiB");
}

void print_machine(const Page &page, const Json &j) {
  if (!j.contains("machine")) {
    page.row("machine", "not looked at: the environment is wrong, see below");
    return;
  }
  const Json &cpu = j["machine"]["cpu"], &cuda = j["machine"]["cuda"];
  page.row("machine", concat(str(cpu, "model"), ", ", cpu["cores"].get<uint64_t>(), " cores, ",
                             mebibytes(cpu["memory_bytes"])));
  std::string features;
  for (const Json &f : cpu["features"])
    features += (features.empty() ? "" : " ") + f.get<std::string>();
  page.more(features.empty() ? "no vector units that kernels choose by" : features);
  page.row("kernels", j.contains("kernels") ? str(j, "kernels") + ", speed class " + str(j, "speed")
                                            : "none: no device was opened");
  page.row("gpu",
           str(cuda, "text") +
               (cuda.contains("driver_version") ? ", version " + str(cuda, "driver_version") : ""));
  for (const Json &d : cuda["devices"])
    page.more(concat(d["index"].get<int>(), ": ", str(d, "name"), ", capability ",
                     str(d, "capability"), ", ", mebibytes(d["free_bytes"]), " of ",
                     mebibytes(d["memory_bytes"]), " free"));
  if (!cuda["devices"].empty()) page.more("FP8: " + str(cuda, "fp8"));
  if (j["machine"].contains("loader"))
    for (const auto &[name, value] : j["machine"]["loader"].items())
      page.row("loader", name + " = " + value.get<std::string>());
}

void print_python(const Page &page, const Json &j) {
  if (!j.contains("python")) {
    page.row("python", "not looked at; --python python3 asks that one");
    return;
  }
  const Json &python = j["python"];
  page.row("python", str(python, "program") +
                         (python.contains("python") ? ", Python " + str(python, "python") : "") +
                         ", octavo " +
                         (python.contains("octavo") ? str(python, "octavo") : "none") + ", torch " +
                         (str(python, "torch").empty() ? "none" : str(python, "torch")));
}

void print_plugins(const Page &page, const Json &j) {
  if (!j.contains("plugins")) return;
  const char *name = "plugins";
  for (const Json &p : j["plugins"]) {
    std::string text =
        concat(padded(str(p, "name"), 14), padded(str(p, "version"), 8),
               p["accepted"].get<bool>() ? "accepted, " : "refused, ", str(p, "how"));
    page.row(name, text);
    name = "";
    for (const Json &v : p["verdicts"]) page.more("  " + str(v, "text"));
  }
  if (j["plugins"].empty()) page.row(name, "none was found");
}

void print_trust(const Page &page, const Json &j) {
  if (j.contains("trust")) {
    const Json &t = j["trust"];
    page.row("trust", concat(str(t, "mode"), " (", str(t, "origin"), "), ", t["pins"].get<size_t>(),
                             " pins, ", t["keys"].get<size_t>(), " keys, ",
                             t["locked"].get<bool>() ? "locked" : "not locked", ", umask ",
                             str(t, "umask")));
    const char *name = "folders";
    for (const Json &f : t["folders"]) {
      page.row(name, str(f, "directory") + (f.contains("ignored")
                                                ? " (ignored: " + str(f, "ignored") + ")"
                                            : f.contains("problem") ? " (refused)"
                                                                    : ""));
      name = "";
    }
  }
  if (!j.contains("cache")) return;
  const Json &c = j["cache"];
  page.row("cache", c.contains("problem")
                        ? "not used: " + str(c, "problem")
                        : concat(c["results"].get<size_t>(), " results, ", c["stale"].get<size_t>(),
                                 " stale, in ", str(c, "directory")));
}

void print_run(const Page &page, const Json &j) {
  page.row("config", str(j, "config") + (j.contains("without_configuration")
                                             ? "; what is above was looked at without it"
                                             : ""));
  // A file is read where it is named, never because it is here.
  if (str(j, "config") == "(no file)" && std::filesystem::exists("octavo.toml"))
    page.more("octavo doctor octavo.toml looks at the one in this folder");
  if (j["runs"].is_null())
    page.row("runs", "nothing");
  else if (j.contains("backend"))
    page.row("runs", str(j, "runs") + " by " + str(j["backend"], "id") + " " +
                         str(j["backend"], "version") + " on " + str(j, "device"));
  else
    page.row("runs", str(j, "runs") + " on " + str(j, "device"));
}

}  // namespace

void print_page(const Json &j) {
  const Page page;
  page.row("octavo", str(j, "octavo"));
  print_machine(page, j);
  print_python(page, j);
  print_plugins(page, j);
  print_trust(page, j);
  print_run(page, j);
  for (const Json &f : j["findings"]) {
    page.row(str(f, "severity"), str(f, "text"));
    if (f.contains("evidence")) page.more("found: " + str(f, "evidence"));
    if (f.contains("page")) page.more("see " + str(f, "page"));
  }
  const Json &first = j["first"];
  if (first.is_null())
    page.unbroken("fix first", "nothing is wrong: FP8 runs here");
  else if (first.contains("apply"))
    page.unbroken("fix first", str(first, "apply"));
  else
    page.unbroken("fix first",
                  first.contains("remedy") ? str(first, "remedy") : str(first, "text"));
}

}  // namespace octavo::cli::doctor
