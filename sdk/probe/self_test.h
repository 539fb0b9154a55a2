// One 16 x 16 layer through the plugin on the CPU kernels: does it keep the contract?
#pragma once

#include <functional>
#include <string>

#include "sdk/src/plugin/loader.h"

namespace octavo::probe {

// A host that ignores messages.
const octavo_host *silent_host();

using Say = std::function<void(const std::string &)>;

// Asks for options and a verdict on a session with defaults. False, with a note, when the self-test
// has to be left out: the plugin declines, which is its right.
bool describe(const LoadedPlugin &plugin, const Say &note);

// Opens a session, seals one linear, casts its weight and multiplies twice. Returns the fault
// that was found: an output that is not finite, two outputs that differ, bytes beyond the stated
// sizes. Empty: none. A failure with a status is a note only: hosts get that status, too.
std::string self_test(const LoadedPlugin &plugin, const Say &note);

}  // namespace octavo::probe
