// The page: one row a part, the findings, and the first thing to fix on the last line.
#include <filesystem>

#include "sdk/cli/doctor/doctor.h"
#include "sdk/cli/text_layout.h"
#include "sdk/src/base/text.h"

namespace octavo::cli::doctor {
namespace {

std::string mebibytes(const Json &bytes) {
  return concat(bytes.get<uint64_t>() >> 20, " MiB");
}

void print_machine(const TextLayout &page, const Json &j) {
  if (!j.contains("machine")) {
    page.row("machine", "not looked at: the environment is wrong, see below");
    return;
  }
  const Json &cpu = j["machine"]["cpu"], &cuda = j["machine"]["cuda"];
  page.row("machine", concat(text_of(cpu, "model"), ", ", cpu["cores"].get<uint64_t>(), " cores, ",
                             mebibytes(cpu["memory_bytes"])));
  std::string features;
  for (const Json &f : cpu["features"])
    features += (features.empty() ? "" : " ") + f.get<std::string>();
  page.more(features.empty() ? "no vector units that kernels choose by" : features);
  page.row("kernels", j.contains("kernels")
                          ? text_of(j, "kernels") + ", speed class " + text_of(j, "speed")
                          : "none: no device was opened");
  page.row("gpu", text_of(cuda, "text") + (cuda.contains("driver_version")
                                               ? ", version " + text_of(cuda, "driver_version")
                                               : ""));
  for (const Json &d : cuda["devices"])
    page.more(concat(d["index"].get<int>(), ": ", text_of(d, "name"), ", capability ",
                     text_of(d, "capability"), ", ", mebibytes(d["free_bytes"]), " of ",
                     mebibytes(d["memory_bytes"]), " free"));
  if (!cuda["devices"].empty()) page.more("FP8: " + text_of(cuda, "fp8"));
  if (j["machine"].contains("loader"))
    for (const auto &[name, value] : j["machine"]["loader"].items())
      page.row("loader", name + " = " + value.get<std::string>());
}

void print_python(const TextLayout &page, const Json &j) {
  if (!j.contains("python")) {
    page.row("python", "not checked (use --python python3)");
    return;
  }
  const Json &python = j["python"];
  page.row("python",
           (python.contains("program") ? text_of(python, "program") + ", " : "") +
               (python.contains("python") ? "Python " + text_of(python, "python") + ", " : "") +
               "octavo " + (python.contains("octavo") ? text_of(python, "octavo") : "none") +
               ", torch " + (text_of(python, "torch").empty() ? "none" : text_of(python, "torch")));
}

void print_plugins(const TextLayout &page, const Json &j) {
  if (!j.contains("plugins")) return;
  const char *name = "plugins";
  for (const Json &p : j["plugins"]) {
    const std::string how =
        p.contains("refused") ? "reason " + text_of(p["refused"], "reason") : text_of(p, "how");
    page.row(name, concat(padded(text_of(p, "name"), 14), padded(text_of(p, "version"), 8),
                          p["accepted"].get<bool>() ? "accepted" : "refused",
                          how.empty() ? "" : ", ", how));
    name = "";
    if (!p.contains("how")) page.more(text_of(p, "sha256"));
    for (const char *texts : {"warnings", "notes"})
      if (p.contains(texts))
        for (const Json &text : p[texts]) page.more("  " + text.get<std::string>());
    if (!p.contains("verdicts")) continue;
    for (const Json &v : p["verdicts"]) {
      page.more("  " + text_of(v, "text"));
      if (v.contains("remedy")) page.more("  remedy: " + text_of(v, "remedy"));
    }
  }
  if (j["plugins"].empty()) page.row(name, "none was found");
}

void print_trust(const TextLayout &page, const Json &j) {
  if (j.contains("trust")) {
    const Json &t = j["trust"];
    page.row("trust", concat(text_of(t, "mode"), " (", text_of(t, "origin"), "), ",
                             t["pins"].get<size_t>(), " pins, ", t["keys"].get<size_t>(), " keys, ",
                             t["locked"].get<bool>() ? "locked" : "not locked", ", umask ",
                             text_of(t, "umask")));
    const char *name = "folders";
    for (const Json &f : t["folders"]) {
      page.row(name, text_of(f, "directory") + (f.contains("ignored")
                                                    ? " (ignored: " + text_of(f, "ignored") + ")"
                                                : f.contains("problem") ? " (refused)"
                                                                        : ""));
      name = "";
    }
  }
  if (!j.contains("cache")) return;
  const Json &c = j["cache"];
  page.row("cache", c.contains("problem")
                        ? "not used: " + text_of(c, "problem")
                        : concat(c["results"].get<size_t>(), " results, ", c["stale"].get<size_t>(),
                                 " stale, in ", text_of(c, "directory")));
}

void print_config(const TextLayout &page, const Json &j) {
  page.row("config", text_of(j, "config") + (j.contains("without_configuration")
                                                 ? "; what is above was looked at without it"
                                                 : ""));
  // A file is read where it is named, never because it is here.
  if (text_of(j, "config") == "(no file)" && std::filesystem::exists("octavo.toml"))
    page.more("octavo doctor octavo.toml looks at the one in this folder");
}

void print_run(const TextLayout &page, const Json &j) {
  const std::string device = text_of(j, "device");
  const std::string on = device.empty() ? "" : " on " + device;
  if (j["runs"].is_null())
    page.row("runs", "nothing");
  else if (j.contains("backend"))
    page.row("runs", text_of(j, "runs") + " by " + text_of(j["backend"], "id") + " " +
                         text_of(j["backend"], "version") + on);
  else
    page.row("runs", text_of(j, "runs") + on);
}

// The device that was looked at, which is the CPU unless device.kind names a GPU.
std::string where_of(const Json &j) {
  const std::string device = text_of(j, "device");
  if (!device.starts_with("cpu")) return device.starts_with("cuda") ? "the GPU" : device;
  return "the CPU, emulated (not faster)";
}

// Whoever asks for a device wants it to work, before the edit that does without it.
std::string repair_of(const Json &j, const Json &first) {
  if (!j.contains("machine")) return {};
  const std::string text = text_of(first, "text");
  const Json &cuda = j["machine"]["cuda"];
  std::string remedy = text == text_of(cuda, "fp8") ? text_of(cuda, "remedy") : std::string();
  for (const Json &p : j["plugins"])
    for (const Json &v : p["verdicts"])
      if (text == "kernels " + text_of(p, "name") + ": " + text_of(v, "text"))
        remedy = text_of(v, "remedy");
  return remedy.empty() ? remedy : remedy + "; or ";
}

}  // namespace

void print_page(const Json &j) {
  const TextLayout page;
  page.row("octavo", text_of(j, "octavo"));
  print_machine(page, j);
  print_python(page, j);
  print_plugins(page, j);
  print_trust(page, j);
  print_config(page, j);
  print_run(page, j);
  for (const Json &f : j["findings"]) {
    page.row(text_of(f, "severity"), text_of(f, "text"));
    if (f.contains("evidence")) page.more("found: " + text_of(f, "evidence"));
    if (f.contains("page")) page.more("see " + text_of(f, "page"));
  }
  const Json &first = j["first"];
  if (first.is_null())
    page.unbroken("fix first", "nothing is wrong: FP8 runs on " + where_of(j));
  else if (first.contains("apply"))
    page.unbroken("fix first", repair_of(j, first) + text_of(first, "apply"));
  else
    page.unbroken("fix first",
                  first.contains("remedy") ? text_of(first, "remedy") : text_of(first, "text"));
}

void print_anonymous(const Json &j) {
  const TextLayout page;
  page.row("octavo", text_of(j, "octavo") + ", ABI " + text_of(j, "abi") + ", headers " +
                         text_of(j, "headers"));
  const Json &b = j["build"];
  page.row("build", text_of(b, "compiler") + ", " + text_of(b, "type") +
                        (b["assertions"].get<bool>() ? ", with assertions" : "") +
                        (b["sanitizer"].is_null() ? "" : ", sanitizer " + text_of(b, "sanitizer")));
  page.row("system",
           text_of(j, "system") + ", " + text_of(j, "kernel") + ", " + text_of(j, "libc"));
  print_machine(page, j);
  if (j.contains("python")) print_python(page, j);
  print_plugins(page, j);
  print_run(page, j);
  if (const Json &first = j["first"]; !first.is_null())
    page.row("finding",
             text_of(first, "severity") + " about " + text_of(first, "about") +
                 (first.contains("reason") ? ", reason " + text_of(first, "reason") : ""));
  const char *name = "variables";
  for (const auto &[variable, value] : j["variables"].items()) {
    page.row(name, variable + " = " + value.get<std::string>());
    name = "";
  }
  if (j["variables"].empty()) page.row(name, "none of Octavo or of the loader");
}

}  // namespace octavo::cli::doctor
