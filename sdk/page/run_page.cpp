// Puts the data as JSON into the page, which draws itself.
#include "sdk/page/run_page.h"

namespace octavo {

extern const char *const kRunPage;  // page.html, made a string by the build

std::string run_page(const nlohmann::json &data) {
  // In a script element only "</" could end the data early; invalid UTF-8 becomes U+FFFD.
  std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (size_t at = 0; (at = text.find("</", at)) != std::string::npos;) text.replace(at, 2, "<\\/");
  std::string page = kRunPage;
  const std::string mark = "{{DATA}}";
  return page.replace(page.find(mark), mark.size(), text);
}

bool is_run_page(std::string_view begin) {
  const std::string_view page = kRunPage;
  return begin.substr(0, page.find("<style>")) == page.substr(0, page.find("<style>"));
}

}  // namespace octavo
