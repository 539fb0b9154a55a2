// The rows of one weight on several ranks, and the verbs of octavo.shard/1 that bring its codes
// together again. All ranks are one host: what one of them must not see is another's tensor.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host.h"

namespace octavo::conformance {

// What the backend answers for shards of this many rows; nothing if it refuses them.
std::optional<octavo_shard_plan> shard_plan(Session &s, uint32_t parameter, int64_t rows);

class Shards {
 public:
  // The ranks that have rows, and one that has none. Copies the weight.
  Shards(Host &host, const octavo_shard_plan &plan);
  Shards(const Shards &) = delete;
  Shards &operator=(const Shards &) = delete;

  // measure, cast and place, of the last rank first. Each must succeed and repeat; behind the fence
  // it fails when host code of the backend touches memory.
  void gather(bool is_fenced);
  // place of packets that do not have all rows.
  octavo_status place_too_few();

  const std::string &name() const { return name_; }

 private:
  octavo_shard_call call(size_t rank, void *const *slots);
  octavo_gathered_call gathered(void *const *slots) const;
  std::vector<void *> slots(bool writes) const;
  void run(const std::string &what, bool is_fenced, const std::function<octavo_status()> &call);

  Host &host_;
  const octavo_shard &table_;
  const octavo_shard_plan plan_;
  std::vector<Matrix> shards_;
  uint8_t *packets_, *workspace_;
  float *amax_;  // of each rank, then combined
  std::string name_;
};

}  // namespace octavo::conformance
