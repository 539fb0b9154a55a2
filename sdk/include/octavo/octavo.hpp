// octavo/octavo.hpp: the host side in C++17. Header only, over octavo/octavo.h.
//
//   octavo::Run run(octavo::Settings().path("octavo.toml"));    settings.hpp, run.hpp
//   octavo::Added w = run.add_parameter({"fc.weight", N, K});
//   octavo::Added fc = run.add_linear("fc", w.id);              declined: stays with the host
//   run.seal();
//   octavo::Store store(run);                                   store.hpp: allocates the slots
//   octavo::Forward forward(run, store, fc.id);                 calls.hpp: built once, called often
//
// Setup throws octavo::Error with the status and the diagnostics; a call's run() gives the status
// instead and allocates nothing. Everything is move-only or a plain value; destructors close.
//
// What must not go wrong: destroy in the order calls, store, run, host, threads. Locals that are
// declared in the order of use do.
#ifndef OCTAVO_OCTAVO_HPP
#define OCTAVO_OCTAVO_HPP

#include "octavo/hpp/host/calls.hpp"

#endif
