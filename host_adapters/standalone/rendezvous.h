// How processes that torchrun started find each other: its environment, and bytes of rank 0 for all
// of them over TCP.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace octavo::standalone {

// This process among those of RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT.
struct Place {
  uint32_t rank = 0, world = 1;
  int local_rank = 0;
  std::string address;
  // MASTER_PORT, or the next one where torchrun's own store has that
  // (TORCHELASTIC_USE_AGENT_STORE).
  uint16_t port = 0;
};
// Throws UserError for a variable that is missing or no such number; `origin` asked for the engine.
Place place_of_torchrun(const std::string &origin);

struct Letter {
  bool is_error = false;  // the text then says what rank 0 could not do
  std::string text;
};
// What rank 0 passes, on every rank, once all of them have asked for it. Throws UserError when that
// takes longer, for two processes with one rank, and for another program at the port.
Letter letter_of_root(const Place &place, const Letter &mine, std::chrono::seconds deadline);

}  // namespace octavo::standalone
