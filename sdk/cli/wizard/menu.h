// A list in the terminal, in which arrow keys choose.
#pragma once

#include <string>
#include <vector>

namespace octavo::cli::wizard {

struct Row {
  std::string text;
  bool can_be_chosen = true;
};

// Standard input and output are one terminal that obeys escape sequences.
bool has_keys();

// Shows the rows, of which one can be chosen, and returns the index of the one that Enter took; it
// begins at `initial`. Up and Down, or k and j, move over those that can be chosen; a digit goes to
// that row, of the ones that can be. -1: the input ended, Escape or q. Ctrl-C ends the program, as
// everywhere. The terminal is as before when this returns.
int choose(const std::vector<Row> &rows, size_t initial);

}  // namespace octavo::cli::wizard
