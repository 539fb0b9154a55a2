// octavo env: what a report of a fault needs, and nothing about who makes it.
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "common.h"
#include "sdk/cli/doctor/doctor.h"
#include "sdk/cli/env/private.h"
#include "sdk/cli/page.h"
#include "sdk/src/base/text.h"
#include "sdk/src/base/variables.h"

namespace octavo::cli {
namespace {

using Model = doctor::Json;

std::string system_name() {
  std::ifstream file("/etc/os-release");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("PRETTY_NAME=\"") && line.ends_with("\""))
      return line.substr(13, line.size() - 14);
  return "unknown";
}

std::string c_library() {
  char text[64] = {};
  return confstr(_CS_GNU_LIBC_VERSION, text, sizeof text) > 0 ? text : "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

Model build() {
  Model b = {{"compiler", compiler()}, {"type", OCTAVO_BUILD_TYPE}};
#if defined(NDEBUG)
  b["assertions"] = false;
#else
  b["assertions"] = true;
#endif
  b["sanitizer"] = *OCTAVO_BUILD_SANITIZER == '\0' ? Model() : Model(OCTAVO_BUILD_SANITIZER);
  return b;
}

// The reason of a refusal, without its texts: they may hold paths, names of layers and of files.
Model reason_of(const Model &verdict) {
  Model r = Model::object();
  for (const char *key : {"stage", "reason"})
    if (verdict.contains(key)) r[key] = verdict[key];
  return r;
}

Model plugins_of(const Model &found) {
  Model all = Model::array();
  for (const Model &p : found) {
    Model one = Model::object();
    for (const char *key : {"name", "version", "sha256", "accepted"})
      if (p.contains(key)) one[key] = p[key];
    if (!p["verdicts"].empty()) one["refused"] = reason_of(p["verdicts"][0]);
    all.push_back(one);
  }
  return all;
}

Model describe(const octavo::Settings &settings, const std::string &python) {
  octavo_status status = OCTAVO_OK;
  const Model found = doctor::examine(settings, python, &status);
  utsname system{};
  uname(&system);
  Model j = {{"octavo", found["octavo"]},
             {"abi", concat(OCTAVO_ABI_MAJOR, ".", OCTAVO_ABI_MINOR)},
             {"headers", OCTAVO_ABI_HEADERS},
             {"build", build()},
             {"system", system_name()},
             {"kernel", concat(system.sysname, " ", system.release, " ", system.machine)},
             {"libc", c_library()}};
  if (found.contains("machine")) {
    j["cpu"] = found["machine"]["cpu"];
    j["cuda"] = found["machine"]["cuda"];
  }
  j["runs"] = found["runs"];
  for (const char *key : {"kernels", "speed"})
    if (found.contains(key)) j[key] = found[key];
  if (found.contains("backend"))
    for (const char *key : {"id", "version", "sha256"}) j["backend"][key] = found["backend"][key];
  if (!found["first"].is_null()) {
    j["first_finding"] = {{"severity", found["first"]["severity"]},
                          {"about", found["first"]["about"]}};
    if (found["first"].contains("reason")) j["first_finding"]["reason"] = found["first"]["reason"];
  }
  if (found.contains("plugins")) j["plugins"] = plugins_of(found["plugins"]);
  if (found.contains("python"))
    for (const char *key : {"python", "octavo", "torch"})
      if (found["python"].contains(key)) j["python"][key] = found["python"][key];
  Model variables = Model::object();
  for (const std::string &name : variables_with("OCTAVO_"))
    variables[name] = env::shown_value(name, std::getenv(name.c_str()));
  for (const char *name : {"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"})
    if (std::getenv(name) != nullptr) variables[name] = "(set)";
  j["variables"] = variables;
  return j;
}

std::string words(const Model &j, const char *key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string("-");
}

void print_env(const Model &j) {
  const Page page;
  page.row("octavo",
           words(j, "octavo") + ", ABI " + words(j, "abi") + ", headers " + words(j, "headers"));
  const Model &b = j["build"];
  page.row("build", words(b, "compiler") + ", " + words(b, "type") +
                        (b["assertions"].get<bool>() ? ", with assertions" : "") +
                        (b["sanitizer"].is_null() ? "" : ", sanitizer " + words(b, "sanitizer")));
  page.row("system", words(j, "system") + ", " + words(j, "kernel") + ", " + words(j, "libc"));
  if (j.contains("cpu")) {
    const Model &cpu = j["cpu"];
    std::string features;
    for (const Model &f : cpu["features"]) features += " " + f.get<std::string>();
    page.row("cpu", concat(words(cpu, "model"), ", ", cpu["cores"].get<uint64_t>(), " cores, ",
                           cpu["memory_bytes"].get<uint64_t>() >> 20, " MiB,", features));
    page.row("cuda",
             words(j["cuda"], "text") + (j["cuda"].contains("driver_version")
                                             ? ", version " + words(j["cuda"], "driver_version")
                                             : ""));
    for (const Model &d : j["cuda"]["devices"])
      page.more(concat(words(d, "name"), ", capability ", words(d, "capability"), ", ",
                       d["memory_bytes"].get<uint64_t>() >> 20, " MiB"));
  }
  page.row("runs", words(j, "runs") +
                       (j.contains("backend") ? " by " + words(j["backend"], "id") + " " +
                                                    words(j["backend"], "version")
                                              : "") +
                       ", kernels " + words(j, "kernels") + ", speed class " + words(j, "speed"));
  if (j.contains("first_finding"))
    page.row("finding", words(j["first_finding"], "severity") + " about " +
                            words(j["first_finding"], "about") + ", reason " +
                            words(j["first_finding"], "reason"));
  const char *name = "plugins";
  for (const Model &p : j.contains("plugins") ? j["plugins"] : Model::array()) {
    page.row(name,
             padded(words(p, "name"), 14) + padded(words(p, "version"), 8) +
                 (p["accepted"].get<bool>()
                      ? "accepted"
                      : "refused, reason " + (p.contains("refused") ? words(p["refused"], "reason")
                                                                    : std::string("-"))));
    page.more(words(p, "sha256"));
    name = "";
  }
  if (j.contains("python"))
    page.row("python", words(j["python"], "python") + ", octavo " + words(j["python"], "octavo") +
                           ", torch " + words(j["python"], "torch"));
  name = "variables";
  for (const auto &[variable, value] : j["variables"].items()) {
    page.row(name, variable + " = " + value.get<std::string>());
    name = "";
  }
  if (j["variables"].empty()) page.row(name, "none of Octavo or of the loader");
}

struct Env {
  Request request;
  std::string python;
  bool json = false;
};

}  // namespace

void add_env(CLI::App &app, int &exit) {
  CLI::App *command =
      app.add_subcommand("env", "Print system information for a bug report, with nothing private");
  auto all = std::make_shared<Env>();
  all->request.add_config_options(*command);
  add_python_option(*command, all->python);
  command->add_flag("--json", all->json, "print JSON");
  command->callback([all, &exit] {
    const Model model = describe(all->request.settings(), all->python);
    if (all->json)
      put_json(model);
    else
      print_env(model);
    exit = kOk;
  });
}

}  // namespace octavo::cli
