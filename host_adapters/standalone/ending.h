// How a program ends: by an exception that reaches main, by a signal, or with text that nobody got.
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

// The first SIGINT (Ctrl-C), SIGTERM or SIGHUP asks the training to stop after its step, the second
// one ends the program. One that was ignored at the start, as nohup has it, stays ignored.
void catch_interrupts();
bool interrupted();
// The signal, 0: none; and as if it had come here, for one that came to another rank.
int interrupt_signal();
void interrupt(int signal);
// What the program ends with: 128 and the signal's number after an interrupt, else 0.
int exit_code();

// Throws UserError if standard output was not written. A terminal that hung up takes no more text:
// after a signal its code says what happened.
void expect_written_output();

}  // namespace octavo::standalone
