// How the program ends when an exception reaches main.
#pragma once

namespace octavo::standalone {

// Call it first. From then on, an allocation of C++ that finds no memory ends the program with a
// message and kExitShort: destructors of nlohmann/json and the iterators of directories cannot go
// on without. The last checkpoint is whole at any time. program: a literal.
void end_without_memory(const char *program);

// Says on standard error what is short and what to do; returns kExitShort.
int ended_by_shortage(const char *program, const char *what) noexcept;

// In a catch block: says on standard error what happened, and returns the exit code. Allocates
// nothing, so that a shortage of memory can be said, too.
int ended_by_exception(const char *program) noexcept;

}  // namespace octavo::standalone
