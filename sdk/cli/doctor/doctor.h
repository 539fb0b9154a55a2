// What `octavo doctor` finds, as JSON made of the reports of liboctavo, and its page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "octavo/hpp/host/settings.hpp"

namespace octavo::cli::doctor {

using Json = nlohmann::ordered_json;

// docs/doctor.schema.json describes it. python: the program to ask; empty: none.
// *status: what octavo_open would answer.
Json examine(const octavo::Settings &settings, const std::string &python, octavo_status *status);

// Versions, build, system and variables: what a report of a fault needs next to the rest.
Json versions_and_system();
// Variables that begin with OCTAVO_, and those of the system's loader; "(set)" where the value may
// be private.
Json variables();

// What may be published of examine(): nothing about who asks.
Json anonymous(const Json &model);

// A text of an object; empty where there is none.
std::string text_of(const Json &j, const char *key);

// What is wrong, worst first: an array of {severity, about, text, evidence, remedy, apply, page}.
// `j`: the model so far; `report`: that of octavo_explain.
Json findings_of(const Json &j, const Json &report);

// What this Python has: {program, python, octavo, package, torch}, or {program, problem}.
Json ask_python(const std::string &program);

void print_page(const Json &model);
void print_anonymous(const Json &model);

}  // namespace octavo::cli::doctor
