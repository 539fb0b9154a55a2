// The data is in the page twice: as what a reader sees, and as JSON for programs.
#include "sdk/page/run_page.h"

#include "sdk/page/sections.h"

namespace octavo {
namespace {

void put(std::string &page, std::string_view mark, const std::string &text) {
  page.replace(page.find(mark), mark.size(), text);
}

}  // namespace

extern const char *const kRunPage;  // page.html, made a string by the build

std::string run_page(const nlohmann::json &data) {
  // Invalid UTF-8 becomes U+FFFD. In a script element only "</" could end the data early.
  std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string sections = page_sections(nlohmann::json::parse(text));
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos;) text.replace(at, 2, "<\\/");
  std::string page = kRunPage;
  put(page, "{{DATA}}", text);
  put(page, "{{PAGE}}", sections);
  return page;
}

bool is_run_page(std::string_view begin) {
  const std::string_view page = kRunPage;
  return begin.substr(0, page.find("<style>")) == page.substr(0, page.find("<style>"));
}

}  // namespace octavo
