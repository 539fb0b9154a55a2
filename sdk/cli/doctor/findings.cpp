// The order of what is wrong: what keeps FP8 from running, then what was asked for and does not
// happen, then what would refuse the next plugin.
#include <string>

#include "sdk/cli/doctor/doctor.h"
#include "sdk/src/base/text.h"

namespace octavo::cli::doctor {
namespace {

// Of a verdict of a report, with the edit or the command that carries out its remedy.
Json finding(const char *severity, const char *about, const Json &verdict) {
  Json f = {{"severity", severity}, {"about", about}};
  for (const char *key : {"reason", "text", "evidence", "remedy", "apply", "page"})
    if (verdict.contains(key)) f[key] = verdict[key];
  return f;
}

Json finding(const char *severity, const char *about, const std::string &text,
             const std::string &apply) {
  Json f = {{"severity", severity}, {"about", about}, {"text", text}};
  if (!apply.empty()) f["apply"] = apply;
  return f;
}

void add_run(Json &all, const Json &j, const Json &report) {
  const bool refused = report.contains("first_refusal");
  if (report["runs"].is_null())
    all.push_back(finding("error", "run", report["first_refusal"]));
  else if (report["runs"] != "fp8" && refused)
    all.push_back(finding("error", "run", report["first_refusal"]));
  else if (report["runs"] != "fp8")
    all.push_back(finding(
        "error", "run",
        "the configuration sets \"" + text_of(report, "runs") + "\", so nothing runs in FP8",
        text_of(j, "to_fp8")));
  else if (refused)
    all.push_back(finding("warning", "run", report["first_refusal"]));
  if (report.contains("warnings"))
    for (const Json &text : report["warnings"])
      all.push_back(finding("warning", "run", text.get<std::string>(), ""));
}

void add_plugins(Json &all, const Json &j, const Json &report) {
  const std::string known = report.contains("first_refusal")
                                ? text_of(report["first_refusal"], "candidate")
                                : std::string();
  if (!j.contains("plugins")) return;
  for (const Json &p : j["plugins"]) {
    if (p["accepted"].get<bool>() || p["name"] == known || p["verdicts"].empty()) continue;
    Json f = finding("warning", "plugin", p["verdicts"][0]);
    f["text"] = "plugin " + text_of(p, "name") + ": " + text_of(p["verdicts"][0], "text");
    all.push_back(f);
  }
}

// A folder whose plugins are refused is the reason for that already.
void add_folders(Json &all, const Json &trust) {
  for (const Json &folder : trust["folders"]) {
    const std::string problem = text_of(folder, "problem");
    bool told = problem.empty();
    for (const Json &f : all) told = told || text_of(f, "evidence") == problem;
    if (!told)
      all.push_back(
          finding("warning", "folder",
                  "plugins in " + text_of(folder, "directory") + " would be refused: " + problem,
                  text_of(folder, "apply")));
  }
}

void add_cache(Json &all, const Json &cache) {
  const std::string problem = text_of(cache, "problem");
  if (problem.empty()) return;
  Json f = finding("warning", "cache", "each process tries other people's plugins anew: " + problem,
                   text_of(cache, "apply"));
  f["remedy"] = cache["remedy"];
  all.push_back(f);
}

// The machine has a GPU or a driver, and no GPU computes FP8; or one of several cannot.
void add_gpu(Json &all, const Json &j) {
  const Json &cuda = j["machine"]["cuda"];
  const std::string text = text_of(cuda, "fp8"), remedy = text_of(cuda, "remedy");
  const auto add = [&](const std::string &what, const std::string &repair) {
    all.push_back({{"severity", "warning"},
                   {"about", "gpu"},
                   {"text", what},
                   {"evidence", text_of(cuda, "text")},
                   {"remedy", repair}});
  };
  if (j.contains("gpu_refusal")) {
    all.push_back(finding("warning", "gpu", j["gpu_refusal"]));
  } else if (!remedy.empty()) {
    for (const Json &f : all)
      if (text_of(f, "text").ends_with(text)) return;
    const std::string edit = text_of(cuda, "apply");
    add(edit.empty() ? "the GPU cannot be used: " + text
                     : "the GPU is idle, since device.kind is \"cpu\"",
        remedy);
    if (!edit.empty()) all.back()["apply"] = edit;
  }
  std::string fit;
  for (const Json &d : cuda["devices"])
    if (!d.contains("lacks")) fit += (fit.empty() ? "cuda:" : " or cuda:") + d["index"].dump();
  for (const Json &d : cuda["devices"])
    if (d.contains("lacks"))
      add("GPU " + d["index"].dump() + " cannot be used: " + text_of(d, "lacks"),
          "place your model on " + fit);
}

void add_umask(Json &all, const Json &trust) {
  if (trust["mode"] == "dev") return;
  const std::string mask = text_of(trust, "umask");
  const bool closed = (std::stoul(mask, nullptr, 8) & 022U) == 022U;
  if (!closed)
    all.push_back(finding("warning", "umask",
                          "umask " + mask +
                              " lets the group or others write to plugins that are built or "
                              "copied now; plugins.trust = \"" +
                              text_of(trust, "mode") + "\" refuses such files",
                          "run `umask 022`"));
}

void add_python(Json &all, const Json &j) {
  const Json &python = j["python"];
  if (const std::string problem = text_of(python, "problem"); !problem.empty()) {
    all.push_back(finding("warning", "python", text_of(python, "program") + ": " + problem, ""));
    return;
  }
  const std::string theirs = text_of(python, "octavo"), ours = text_of(j, "octavo");
  if (theirs != ours)
    all.push_back(finding("warning", "python",
                          text_of(python, "program") + " has octavo " + theirs +
                              ", and this program is octavo " + ours,
                          ""));
  if (python.contains("problems"))
    for (const Json &problem : python["problems"])
      all.push_back(finding("warning", "python",
                            text_of(python, "program") + ": " + text_of(problem, "text"),
                            text_of(problem, "apply")));
  const Json *cuda = j.contains("machine") ? &j["machine"]["cuda"] : nullptr;
  const bool has_gpu = cuda != nullptr && cuda->contains("devices") && !(*cuda)["devices"].empty();
  if (const std::string torch = text_of(python, "torch");
      has_gpu && torch.size() > 4 && torch.compare(torch.size() - 4, 4, "+cpu") == 0)
    all.push_back(finding("warning", "python",
                          text_of(python, "program") + ": expected a torch for CUDA, since this " +
                              "machine has a GPU, found " + torch + ", which computes on the CPU",
                          ""));
}

}  // namespace

std::string text_of(const Json &j, const char *key) {
  return j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : std::string();
}

Json findings_of(const Json &j, const Json &report) {
  Json all = Json::array();
  add_run(all, j, report);
  add_plugins(all, j, report);
  if (j.contains("trust")) add_folders(all, j["trust"]);
  if (j.contains("python")) add_python(all, j);
  if (j.contains("machine")) add_gpu(all, j);
  if (j.contains("cache")) add_cache(all, j["cache"]);
  if (j.contains("trust")) add_umask(all, j["trust"]);
  return all;
}

}  // namespace octavo::cli::doctor
