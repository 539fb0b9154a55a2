// Ranks of one training as objects of a test, and the weights that each of them forwards with.
#ifndef TESTS_SAMPLES_REPLICA_GROUP_H
#define TESTS_SAMPLES_REPLICA_GROUP_H

#include <memory>
#include <string>
#include <vector>

#include "samples/train_gpt/run/trainer.h"
#include "tests/samples/tiny_training.h"

namespace gpt {

// The bytes of every weight that a rank forwards with: its own tensors, and the backend's slots.
inline std::vector<unsigned char> weight_bytes(Replica &replica) {
  std::vector<unsigned char> all;
  auto add = [&](const void *data, size_t bytes) {
    const auto *p = static_cast<const unsigned char *>(data);
    all.insert(all.end(), p, p + bytes);
  };
  for (const Parameter *p : replica.model().parameters()) {
    if (p->value.size() > 0) {
      add(p->value.data(), p->value.bytes());
      continue;
    }
    OctavoRun &run = replica.octavo();
    const octavo_slot *codes = run.slot(OCTAVO_OWNER_PARAMETER, p->id, OCTAVO_ROLE_WEIGHT);
    const octavo_slot *scale = octavo_run_slot(run.get(), codes->scale_slot);
    for (const octavo_slot *slot : {codes, scale}) {
      add(run.store()->address(slot->id),
          static_cast<size_t>(slot->rows * slot->cols) * OCTAVO_DTYPE_BITS(slot->dtype) / 8);
    }
  }
  return all;
}

// A group of replicas, each with one thread. Members die in the reverse order.
struct Group {
  Group(const std::string &run, const Options &options_, uint32_t count)
      : options(options_), corpus(tiny_corpus(options_)), ranks(count) {
    for (uint32_t rank = 0; rank < count; ++rank) {
      hosts.push_back(std::make_unique<OctavoHost>(threads));
      replicas.push_back(std::make_unique<Replica>(parse_run(run), options, threads, *hosts.back(),
                                                   ranks.member(rank)));
    }
  }

  Options options;
  Corpus corpus;
  Threads threads{1};
  octavo::Ranks ranks;
  std::vector<std::unique_ptr<OctavoHost>> hosts;
  std::vector<std::unique_ptr<Replica>> replicas;
};

}  // namespace gpt

#endif
