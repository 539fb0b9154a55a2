// Puts the data as JSON into the page, which draws itself.
#include "sdk/page/run_page.h"

#include <fstream>
#include <string_view>

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

bool is_run_page(const std::string &path) {
  std::string begin(std::string_view(kRunPage).find("<style>"), '\0');
  std::ifstream(path, std::ios::binary)
      .read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return std::string_view(kRunPage).substr(0, begin.size()) == begin;
}

}  // namespace octavo
