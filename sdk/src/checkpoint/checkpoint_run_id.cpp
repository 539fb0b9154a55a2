// Drawn from the system's source of random numbers.
#include "sdk/src/checkpoint/checkpoint_run_id.h"

#include <sodium.h>

#include "sdk/src/checkpoint/checkpoint_texts.h"
#include "sdk/src/ranks/process_ranks.h"

namespace octavo {
namespace {

constexpr size_t kIdBytes = 16;
constexpr size_t kMostIdLetters = 64;

const std::string &id_of_process() {
  static const std::string id = [] {
    unsigned char bytes[kIdBytes];
    randombytes_buf(bytes, sizeof(bytes));
    char hex[2 * kIdBytes + 1];
    return std::string(sodium_bin2hex(hex, sizeof(hex), bytes, sizeof(bytes)));
  }();
  return id;
}

}  // namespace

std::string run_id_of(const octavo_store &store) {
  const Config &config = store.run().negotiation().config;
  const std::string &given = config[key::kCheckpointRunId];
  if (given.empty()) {
    if (!process_has_world(store.world()))
      fail_checkpoint(OCTAVO_INVALID, "octavo_store_save", "expected all ", store.world(),
                      " ranks in this process, or checkpoint.run_id, found neither; draw a random "
                      "text at the start, send it to every rank, and set checkpoint.run_id to it "
                      "before the run is opened");
    return id_of_process();
  }
  if (given.size() > kMostIdLetters ||
      given.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != std::string::npos)
    fail_checkpoint(
        OCTAVO_INVALID, "checkpoint.run_id",
        concat("expected 1 to ", kMostIdLetters, " letters, digits and _ . -, found \"", given,
               "\" (", config.origin(key::kCheckpointRunId), "); choose another text"));
  return given;
}

}  // namespace octavo
