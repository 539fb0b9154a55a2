// The sections of the page of a training, as HTML.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace octavo {

// What is in <main>; data: as run_page takes it, in valid UTF-8.
std::string page_sections(const nlohmann::json &data);

}  // namespace octavo
