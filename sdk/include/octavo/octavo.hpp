// octavo/octavo.hpp: a header-only C++17 wrapper of the host API in octavo/octavo.h.
//
//   octavo::Run run(octavo::Settings().path("octavo.toml"));    settings.hpp, run.hpp
//   octavo::Added w = run.add_parameter({"fc.weight", N, K});
//   octavo::Added fc = run.add_linear("fc", w.id);              may be declined
//   run.seal();
//   octavo::Store store(run);                                   store.hpp: allocates the slots
//   octavo::Forward forward(run, store, fc.id);                 calls.hpp: built once, called often
//   octavo::LinearCalls calls(run, store, w.id, fc.id, rows);   linear.hpp: with their memory
//   octavo::OptimizerStep step(run, store, {w.id});             optimizer.hpp: where it has one
//   octavo::Memory memory(run);                                 memory.hpp: where calls compute
//
// Setup functions throw octavo::Error, which carries the status and the diagnostics. The run()
// function of a call returns a status instead and does not allocate. Every type is move-only or a
// plain value; destructors close what they own.
//
// Order of destruction: calls, store, run, host, threads. Local variables declared in the opposite
// order, that of their use, are destroyed correctly.
#ifndef OCTAVO_OCTAVO_HPP
#define OCTAVO_OCTAVO_HPP

#include "octavo/hpp/host/linear.hpp"
#include "octavo/hpp/host/optimizer.hpp"
#include "octavo/hpp/host/ranks.hpp"
#include "octavo/hpp/host/staging.hpp"

#endif
