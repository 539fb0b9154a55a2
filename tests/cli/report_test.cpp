// octavo report: each kind of log, what its page holds, and what is refused.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/schema.h"

namespace octavo::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class CliReport : public Cli {
 protected:
  Finished report(std::vector<std::string> logs, std::vector<std::string> more = {}) {
    logs.insert(logs.begin(), "report");
    if (more.empty()) more = {"--output", page_};
    logs.insert(logs.end(), more.begin(), more.end());
    return octavo(logs);
  }
  // The data of the page.
  json data() const {
    std::ifstream in(page_);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const std::string mark = "id=\"data\">";
    const size_t begin = text.find(mark) + mark.size();
    return json::parse(text.substr(begin, text.find("</script>", begin) - begin), nullptr, false);
  }
  void expect_refused(const std::string &name, const std::string &text, const std::string &words) {
    const Finished f = report({dir.write(name, text)});
    EXPECT_EQ(f.exit_code, 2) << f.out;
    EXPECT_THAT(f.err, HasSubstr(words));
    EXPECT_THAT(f.err, HasSubstr("expected"));
    EXPECT_FALSE(std::filesystem::exists(page_));
  }

  const std::string page_ = (dir / "page.html");
};

TEST_F(CliReport, an_output_that_is_no_file_is_refused_at_once) {
  const std::string log = dir.write("log.csv", "step,loss\n1,2.0\n");
  ASSERT_EQ(mkfifo(page_.c_str(), 0600), 0);
  const Finished f = report({log});
  EXPECT_EQ(f.exit_code, 2) << f.out;
  EXPECT_THAT(f.err, HasSubstr("page.html exists already"));
}

TEST_F(CliReport, lines_of_json_with_casts_and_texts) {
  const std::string log = dir.write("metrics.jsonl",
                                    R"({"run":"fp32","step":1,"loss":4.0,"tokens_per_s":100}
{"run":"fp32","step":2,"loss":2.0,"validation_loss":2.0,"lr":0.5}
{"run":"te","step":1,"loss":4.0,"octavo/amax/x/up":2.5,"octavo/scale/x/up":8.0,"skipped":true}
{"run":"te","step":1,"operand":"x","tensor":"up","saturated":3,"underflow":0,"sqnr_db":31.5}
{"run":"te","step":2,"loss":2.1,"validation_loss":2.02,"amax":{"x/up":3.5},"reduce":{"prescale":0.5}}

{"run":"te","backend":"te","recipe":"delayed","report":"</script><b>"}
{"run":"te","step":3,"lo)");
  const Finished f = report({log});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  EXPECT_THAT(f.out, HasSubstr("te    te       delayed      2      3.0500      2.0200       1.00"));
  EXPECT_THAT(f.out, HasSubstr("The page: " + page_));
  const json d = data();
  ASSERT_TRUE(d.is_object());
  ASSERT_EQ(d["runs"].size(), 2u);
  const json &te = d["runs"][1];
  EXPECT_EQ(te["step"], json({1, 2}));
  EXPECT_EQ(te["loss"], json({4.0, 2.1}));
  EXPECT_EQ(te["validation"], json({{2, 2.02}}));
  EXPECT_EQ(te["amax"], json({{"x/up", {2.5, 3.5}}}));
  EXPECT_EQ(te["reduce"], json({{"prescale", {nullptr, 0.5}}}));
  EXPECT_EQ(te["scale"], json({{"x/up", {8.0, nullptr}}}));
  EXPECT_EQ(te["skipped_steps"], 1);
  EXPECT_EQ(te["report"], "</script><b>");
  const json &x = te["casts"]["operands"]["x"];
  EXPECT_EQ(x["saturated"], 3.0);
  EXPECT_EQ(x["worst"], json({{"db", 31.5}, {"tensor", "up"}, {"step", 1}}));
  EXPECT_EQ(d["runs"][0]["others"], json({{"lr", {{2, 0.5}}}}));
}

TEST_F(CliReport, the_state_of_a_trainer_and_a_table_of_csv) {
  dir.write("a/trainer_state.json", R"({"log_history":[{"loss":3.0,"step":10,"epoch":0.5},
    {"eval_loss":2.5,"step":10},{"train_loss":2.9,"step":20}]})");
  const std::string csv = dir.write("b/metrics.csv",
                                    "epoch,step,train_loss,val_loss\r\n"
                                    "0,5,3.5,\r\n0,9,,2.75\r\n");
  const Finished f = report({(dir / "a"), csv, (dir / "a")});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const json d = data();
  ASSERT_EQ(d["runs"].size(), 3u);
  EXPECT_EQ(d["runs"][0]["name"], "a");
  EXPECT_EQ(d["runs"][0]["loss"], json({3.0, 2.9}));
  EXPECT_EQ(d["runs"][0]["validation_loss"], 2.5);
  EXPECT_EQ(d["runs"][1]["name"], "b");
  EXPECT_EQ(d["runs"][1]["validation"], json({{9, 2.75}}));
  EXPECT_EQ(d["runs"][2]["name"], (dir / "a") + ": a") << "a name that is taken";
}

TEST_F(CliReport, the_table_as_json) {
  const std::string log = dir.write("metrics.jsonl",
                                    R"({"run":"fp32","step":1,"loss":4.0,"tokens_per_s":100}
{"run":"te","step":1,"loss":5.0}
{"run":"te","step":2,"loss":6.0}
{"run":"te","backend":"te","recipe":"delayed"}
)");
  Finished f = report({log, "--json"});
  ASSERT_EQ(f.exit_code, 0) << f.err;
  const json j = by_schema("report", f);
  EXPECT_EQ(j["page"], page_);
  EXPECT_TRUE(data().is_object());
  ASSERT_EQ(j["runs"].size(), 2u);
  EXPECT_EQ(j["runs"][0], json({{"name", "fp32"},
                                {"backend", nullptr},
                                {"recipe", nullptr},
                                {"steps", 1},
                                {"train_loss", 4.0},
                                {"validation_loss", nullptr},
                                {"to_fp32_percent", 0.0},
                                {"tokens_per_s", 100.0}}));
  EXPECT_EQ(j["runs"][1]["recipe"], "delayed");
  EXPECT_EQ(j["runs"][1]["train_loss"], 5.5);
  EXPECT_EQ(j["runs"][1]["to_fp32_percent"], 37.5);
  f = report({dir.write("log.jsonl", "[1]\n"), "--json"});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_EQ(f.out, "");
}

TEST_F(CliReport, another_file_stays_and_an_older_page_goes) {
  const std::string log = dir.write("metrics.jsonl", "{\"step\":1,\"loss\":1}\n");
  dir.write("page.html", "<html>of somebody else</html>");
  const Finished f = report({log});
  EXPECT_EQ(f.exit_code, 2);
  EXPECT_THAT(f.err, HasSubstr("--force"));
  EXPECT_EQ(report({log}, {"--output", page_, "--force"}).exit_code, 0);
  EXPECT_EQ(report({log}).exit_code, 0) << "our own page is replaced";
  EXPECT_TRUE(data().is_object());
}

TEST_F(CliReport, other_logs_are_refused_by_their_line) {
  expect_refused("log.jsonl", "{\"step\":1,\"loss\":1}\nnothing\n{}\n", "log.jsonl:2: expected an");
  expect_refused("log.jsonl", "[1]\n", "log.jsonl:1: expected an object, found array");
  expect_refused("log.jsonl", "{\"step\":-1}\n", "log.jsonl:1");
  expect_refused("log.jsonl", "{\"run\":7,\"step\":1}\n", "a text as \"run\"");
  expect_refused("log.jsonl", "", "values of steps");
  expect_refused("log.jsonl", "{\"loss\":1}\n", "values of steps");
  expect_refused("log.csv", "epoch,loss\n1,2\n", "a column \"step\"");
  expect_refused("log.csv", "step,loss\n1\n", "log.csv:2: expected 2 fields, found 1");
  expect_refused("log.json", "{}", "log_history");
  const Finished f = report({(dir / "none")});
  EXPECT_EQ(f.exit_code, 2);
  std::filesystem::create_directory((dir / "empty"));
  EXPECT_THAT(report({(dir / "empty")}).err, HasSubstr("trainer_state.json"));
}

}  // namespace
}  // namespace octavo::test
