// From the results down to the configuration. What explains a result rather than being one is
// folded.
#include "sdk/page/sections.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "sdk/page/diagnostics.h"
#include "sdk/page/parts.h"

namespace octavo {
namespace {

using nlohmann::json;
using namespace html;

class Page {
 public:
  explicit Page(const json &data) : data_(data), runs_(data.at("runs")) {
    const auto all = [&](const char *key) {
      return std::all_of(runs_.begin(), runs_.end(),
                         [&](const json &r) { return number(r, key).has_value(); });
    };
    ended_ = data.contains("corpus") || all("validation_loss") ? "validation_loss" : "train_loss";
    for (const json &run : runs_)
      if (base_ == nullptr && run.at("name") == "fp32" && number(run, ended_)) base_ = &run;
    has_memory_ = !runs_.empty() && std::all_of(runs_.begin(), runs_.end(), [](const json &r) {
      return !part(r, "memory").empty();
    });
  }

  std::string all() const {
    return header() + results() + difference_chart() + memory() + losses() + skipped() +
           placement() + diagnostics(data_) + negotiation() + sample() + configuration() + next();
  }

 private:
  std::string named(size_t i) const {
    std::string name;
    for (const char c : runs_[i].at("name").get<std::string>())
      name += escaped(std::string(1, c)) + (c == ':' || c == ',' ? "<wbr>" : "");
    return swatch(i) + name;
  }
  std::vector<std::string> labels() const {
    std::vector<std::string> out;
    for (const json &run : runs_) out.push_back(label(run));
    return out;
  }
  // Of the loss by which runs are compared, in percent of the run fp32.
  std::optional<double> difference(const json &run) const {
    const auto loss = number(run, ended_);
    if (base_ == nullptr || !loss) return {};
    return (*loss / *number(*base_, ended_) - 1) * 100;
  }

  std::string header() const {
    std::string title = text(data_, "title");
    std::optional<double> worst;
    size_t fp8 = 0;
    for (const json &run : runs_) {
      const auto d = text(run, "backend").empty() || text(run, "backend") == "host"
                         ? std::nullopt
                         : difference(run);
      if (!d) continue;
      ++fp8;
      if (!worst || std::abs(*d) > std::abs(*worst)) worst = d;
    }
    if (fp8 == 1)
      title = "FP8 ends " + fixed(std::abs(*worst), 2) + "\u00a0% " +
              (*worst >= 0 ? "above" : "below") + " fp32";
    if (fp8 > 1)
      title = std::to_string(fp8) + " FP8 runs end within " + fixed(std::abs(*worst), 2) +
              "\u00a0% of fp32";
    std::string h1 = escaped(title);
    if (const std::string conditions = text(data_, "conditions"); !conditions.empty())
      h1 += " " + element("span", {{"class", "conditions"}}, escaped("(" + conditions + ")"));
    std::string inner = element("p", {{"class", "kicker"}}, escaped(text(data_, "kicker"))) +
                        element("h1", {}, h1) +
                        element("p", {{"class", "lede"}}, escaped(text(data_, "lede")));
    if (data_.value("interrupted", false))
      inner += element("p", {{"class", "banner"}},
                       "The training was interrupted: this page shows what was done until then.");
    return element("header", {}, inner) + "\n";
  }

  std::string results() const {
    std::vector<std::string> head = {"Run",        "Backend", "Recipe",  "Train loss",
                                     "Validation", "To fp32", "Tokens/s"};
    std::vector<std::string> classes = {"run", "extra", "extra",    "num extra",
                                        "num", "num",   "num extra"};
    if (has_memory_) head.push_back("Bytes / param"), classes.push_back("num");
    Rows rows;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const json &run = runs_[i];
      const auto shown = [&](const char *key, const char *none) {
        const auto v = number(run, key);
        return v ? fixed(*v, 4) : std::string(none);
      };
      const auto d = difference(run), speed = number(run, "tokens_per_s");
      rows.push_back({named(i),
                      text(run, "backend").empty() ? kNone : escaped(text(run, "backend")),
                      text(run, "recipe").empty() ? kNone : escaped(text(run, "recipe")),
                      shown("train_loss", kNone),
                      shown("validation_loss", data_.contains("corpus") ? "stopped early" : kNone),
                      !d              ? kNone
                      : &run == base_ ? "0"
                                      : percent(*d),
                      speed ? grouped(*speed) : kNone});
      if (has_memory_) rows.back().push_back(bytes(held(fullest(run)["model"]).first));
    }
    const std::string unit = text(data_, "loss_unit");
    return section("Results",
                   (unit.empty() ? "The" : "Losses in " + unit + "; the") +
                       " train loss is the mean of the last 20 values. Differences are of the " +
                       (ended_ == std::string("validation_loss") ? "validation" : "train") +
                       " loss, relative to the run fp32." +
                       (has_memory_ ? " Bytes: weights, gradients and optimizer states." : ""),
                   card(table(head, rows, classes)));
  }

  std::string difference_chart() const {
    if (base_ == nullptr || runs_.size() < 2) return "";
    Chart c{"difference of the training loss to fp32 in percent", {}, 300, kWide};
    c.fit_from = 0.1, c.reference = {0.0, ""}, c.shows_reference = true, c.value = percent;
    const Values reference = smooth(values_of(base_->at("loss")));
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (&runs_[i] == base_) continue;
      Series s = series_of(runs_[i], i);
      s.x = steps_of(runs_[i].at("step")), s.y = smooth(values_of(runs_[i].at("loss")));
      for (size_t k = 0; k < s.y.size(); ++k) {
        const bool can = s.y[k] && k < reference.size() && reference[k] && *reference[k] != 0;
        s.y[k] = can ? std::optional((*s.y[k] / *reference[k] - 1) * 100) : std::nullopt;
      }
      c.series.push_back(std::move(s));
    }
    return section(
        "Difference to fp32",
        "Smoothed training loss of each run relative to the fp32 run at the same step, in percent. "
        "With the same batches, the arithmetic makes the difference.",
        card(chart(c)));
  }

  std::string losses() const {
    const std::string unit = text(data_, "loss_unit");
    Chart c{"loss" + (unit.empty() ? "" : " in " + unit) + " against step", {}, 400, kWide};
    c.fit_from = 1.0 / 3, c.value = ratio;
    if (data_.contains("corpus"))
      c.reference = {data_["corpus"].at("entropy").get<double>(), "unigram entropy"};
    for (size_t i = 0; i < runs_.size(); ++i) {
      Series s = series_of(runs_[i], i);
      s.x = steps_of(runs_[i].at("step")), s.y = smooth(values_of(runs_[i].at("loss")));
      for (const json &p : runs_[i].at("validation"))
        if (p[1].is_number()) s.marks.emplace_back(p[0].get<double>(), p[1].get<double>());
      c.series.push_back(std::move(s));
    }
    return section("Loss",
                   "Lines: training loss, smoothed. Circles: validation loss. The vertical axis "
                   "fits the last two thirds.",
                   card(chart(c)));
  }

  // ---- memory: {bytes by memory_parts, parameters} of a model or its linears, a rank or all ----
  static const json &fullest(const json &run) {
    const json &memory = run.at("memory");
    return memory.at("ranks").at(memory.at("fullest").get<size_t>());
  }
  static std::string bytes(double v) { return v >= 100 ? grouped(v) : fixed(v, 2); }
  // Per parameter: weights, gradients and optimizer states, and the rest.
  std::pair<double, double> held(const json &use) const {
    std::pair<double, double> sum;
    for (size_t i = 0; i < use.at("bytes").size(); ++i) {
      const std::string name = data_.at("memory_parts").at(i);
      (name == "weight_cache" || name == "FP8 state" ? sum.second : sum.first) +=
          per_parameter(use, i);
    }
    return sum;
  }
  static double per_parameter(const json &use, size_t i) {
    return use.at("bytes")[i].get<double>() / use.at("parameters").get<double>();
  }

  template <class Pick>
  std::string bars(const Pick &pick) const {
    double most = 0;
    for (const json &run : runs_)
      most = std::max(most, held(pick(run)).first + held(pick(run)).second);
    const json &parts = data_.at("memory_parts");
    std::string out, legend;
    std::set<size_t> present;
    for (const json &run : runs_) {
      const json &use = pick(run);
      std::string segments;
      for (size_t i = 0; i < parts.size(); ++i) {
        const double v = per_parameter(use, i);
        if (v <= 0) continue;
        present.insert(i);
        const std::string name = parts[i], value = brief(std::round(v * 100) / 100);
        // A label that would be cut is left to the title.
        const double room = v / most * 700;
        const std::string full = name + " " + value,
                          shown = 7.0 * static_cast<double>(full.size()) < room    ? full
                                  : 8.0 * static_cast<double>(value.size()) < room ? value
                                                                                   : "";
        segments += element("span",
                            {{"style", "width:" + std::to_string(v / most * 100) +
                                           "%;background:var(--m" + std::to_string(i) + ")"},
                             {"title", label(run) + ": " + full + " bytes per parameter"}},
                            escaped(shown));
      }
      const auto [first, rest] = held(use);
      out += element(
          "div", {{"class", "bar"}},
          element("b", {}, escaped(label(run))) + element("div", {}, segments) +
              element("span", {},
                      element("b", {}, bytes(first)) + (rest >= 0.005 ? " + " + bytes(rest) : "")));
    }
    for (const size_t i : present)
      legend += element(
          "span", {},
          element("span",
                  {{"class", "box"}, {"style", "background:var(--m" + std::to_string(i) + ")"}},
                  "") +
              escaped(parts[i].get<std::string>()));
    return out + element("p", {{"class", "legend"}}, legend);
  }

  std::string memory() const {
    if (!has_memory_) return "";
    const double ranks = number(data_, "ranks").value_or(1);
    std::string inner =
        headed("Whole model",
               bars([](const json &r) -> const json & { return fullest(r).at("model"); })) +
        headed("Weights of linear layers only",
               bars([](const json &r) -> const json & { return fullest(r).at("linear"); }));
    if (ranks > 1) {
      inner += headed(
          "Whole model, all " + grouped(ranks) + " ranks together",
          bars([](const json &r) -> const json & { return r.at("memory").at("sum").at("model"); }));
      Rows rows;
      std::vector<std::string> head = labels(), classes(runs_.size() + 1, "num");
      head.insert(head.begin(), "Rank");
      for (size_t rank = 0; rank < runs_[0].at("memory").at("ranks").size(); ++rank) {
        rows.push_back({std::to_string(rank)});
        for (const json &run : runs_)
          rows.back().push_back(
              bytes(held(run.at("memory").at("ranks").at(rank).at("model")).first));
      }
      inner +=
          card(folded("Weights, gradients and states of every rank", table(head, rows, classes)));
    }
    return section(
        "Bytes per parameter",
        "What training holds from step to step, divided by the number of parameters: the program’s "
        "own tensors and the backend’s slots. "
        "At the end of a bar: weights, gradients and optimizer states, + weight caches, scales and "
        "histories. Activations and workspaces are not counted." +
            (ranks > 1
                 ? " Each of the " + grouped(ranks) +
                       " ranks has its own model; the upper bars show the rank that holds most."
                 : ""),
        inner + slots());
  }

  // By the role of the slot, one column a run.
  std::string slots() const {
    std::set<std::string> roles;
    std::vector<std::string> head = {"Role"};
    std::vector<const json *> owners;
    for (const json &run : runs_) {
      if (part(run, "bytes").empty()) continue;
      head.push_back(label(run)), owners.push_back(&run);
      for (const auto &[role, bytes] : run["bytes"].items()) roles.insert(role);
    }
    if (roles.empty()) return "";
    std::vector<std::string> classes(head.size(), "num");
    classes[0] = "run";
    Rows rows;
    for (const std::string &role : roles) {
      rows.push_back({escaped(role)});
      for (const json *run : owners) rows.back().push_back(counted((*run)["bytes"], role.c_str()));
    }
    return card(folded("Bytes that the program allocated for the backend, by the role of the slot",
                       element("p", {{"class", "note"}},
                               "Of all ranks. Tensors that a backend leaves to the program, such "
                               "as the weights of te or the "
                               "biases of msamp, are not in slots: only the bars count them.") +
                           table(head, rows, classes)));
  }

  std::string skipped() const {
    if (std::none_of(runs_.begin(), runs_.end(),
                     [](const json &r) { return number(r, "skipped_steps").has_value(); }))
      return "";
    Rows rows;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const json &run = runs_[i];
      if (number(run, "skipped_steps").value_or(0) == 0 &&
          number(run, "nonfinite_steps").value_or(0) == 0 &&
          number(run, "injected").value_or(0) == 0)
        continue;
      rows.push_back({named(i), grouped(static_cast<double>(run.at("step").size())),
                      counted(run, "nonfinite_steps"), counted(run, "skipped_steps"),
                      counted(run, "injected")});
    }
    if (rows.empty()) return section("Skipped steps", "None: no step was skipped.", "");
    return section("Skipped steps",
                   "A step with a gradient that is infinite or NaN changes no weight. A cast to "
                   "FP8 saturates, so a flag that the cast sets finds such a gradient. "
                   "Injected: infinite gradients of --inject-inf; two can fall into one step.",
                   card(table({"Run", "Steps", "Not finite", "Skipped", "Injected"}, rows,
                              {"run", "num", "num", "num", "num"})));
  }

  std::string placement() const {
    if (runs_.empty() || !std::all_of(runs_.begin(), runs_.end(),
                                      [](const json &r) { return r.contains("placements"); }))
      return "";
    std::string counts;
    std::vector<std::string> head = {"Layer"};
    Rows rows;
    for (const json &p : runs_[0]["placements"])
      rows.push_back({escaped(p.at("layer").get<std::string>())});
    for (size_t i = 0; i < runs_.size(); ++i) {
      size_t fp8 = 0, k = 0;
      head.push_back(label(runs_[i]));
      for (const json &p : runs_[i]["placements"]) {
        const std::string where = p.at("where");
        const bool is_host = where.rfind("host", 0) == 0;
        fp8 += is_host ? 0 : 1;
        if (k < rows.size())
          rows[k++].push_back(
              element("span", {{"title", text(p, "reason")}, {"class", is_host ? "muted" : ""}},
                      escaped(where)));
      }
      counts +=
          element("li", {},
                  named(i) + ": " + std::to_string(fp8) + " of " +
                      std::to_string(runs_[i]["placements"].size()) + " linear layers in FP8");
    }
    for (auto &row : rows) row.resize(head.size());
    return section(
        "Placement",
        "A layer that is skipped, or that a backend declines, keeps the program’s own product.",
        card(element("ul", {{"class", "plain"}}, counts) +
             folded("Every layer", table(head, rows, std::vector<std::string>(head.size())))));
  }

  std::string negotiation() const {
    std::string all;
    for (const json &run : runs_)
      if (!text(run, "report").empty())
        all += folded(label(run), element("pre", {}, escaped(text(run, "report"))));
    return all.empty()
               ? ""
               : section("Negotiation", "What Octavo was asked, what it tried and what it chose.",
                         card(all));
  }

  std::string sample() const {
    for (auto run = runs_.rbegin(); run != runs_.rend(); ++run)
      if (!text(*run, "sample").empty())
        return section("Sample", label(*run) + " continues “" + text(data_, "prompt") + "”.",
                       card(element("pre", {{"class", "text"}},
                                    escaped(text(data_, "prompt") + text(*run, "sample")))));
    return "";
  }

  std::string configuration() const {
    json rows = data_.at("configuration");
    if (data_.contains("corpus")) {
      const json &corpus = data_["corpus"];
      const auto files = [&](const std::string &kind) {
        std::string names = grouped(corpus.at(kind + "_bytes").get<double>()) + " bytes: ";
        for (const std::string path : corpus.at(kind + "_files"))
          names += path.substr(path.rfind('/') + 1) + ", ";
        return names.substr(0, names.size() - 2);
      };
      rows.push_back({"training text", files("train")});
      rows.push_back({"validation text", files("validation")});
      rows.push_back({"split", corpus.at("split")});
    }
    std::string list;
    for (const json &row : rows)
      list += element("dt", {}, escaped(row[0].get<std::string>())) +
              element("dd", {},
                      escaped(row[1].is_string() ? row[1].get<std::string>() : row[1].dump()));
    return section("Configuration", "", card(element("dl", {}, list)));
  }

  std::string next() const {
    static const std::pair<const char *, const char *> kBackends[] = {
        {"te",
         "The recipes of Transformer Engine: FP8 products of linear layers; weights and optimizer "
         "stay as they are."},
        {"msamp",
         "The levels of MS-AMP: also FP8 gradients, and optimizer states in 8 and 16 bits."},
        {"reference", "A backend in plain C that shows how one is written."}};
    std::string list;
    for (const auto &[name, sentence] : kBackends)
      if (std::any_of(runs_.begin(), runs_.end(),
                      [n = name](const json &r) { return text(r, "backend") == n; }))
        list += element("dt", {}, name) + element("dd", {}, sentence);
    return section(
        "Train your own model",
        "octavo doctor shows what this machine can run. In PyTorch two lines convert a model:",
        card(element("pre", {},
                     "import octavo\nmodel, optimizer = octavo.prepare(model, optimizer)") +
             (list.empty() ? "" : element("dl", {{"class", "names"}}, list))));
  }

  const json &data_, &runs_;
  const char *ended_ = "";      // the loss by which runs are compared
  const json *base_ = nullptr;  // the run fp32
  bool has_memory_ = false;
};

}  // namespace

std::string page_sections(const json &data) {
  return Page(data).all();
}

}  // namespace octavo
