// One call of several linears, in two ways: by octavo.grouped/1, and by a call of the backend for
// each of them. Both ways share tensors and slots; each has saved and workspaces of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host.h"

namespace octavo::conformance {

struct GroupSpec {
  std::vector<uint32_t> linears;
  std::vector<int64_t> rows;  // of each
  uint32_t dtype = OCTAVO_F32;
  int64_t gap = 0;
  uint32_t flags = 0;       // of backward
  bool evaluates = false;   // and nothing is saved
  bool is_complete = true;  // false: no bias, dx and db
};

class Group {
 public:
  Group(Host &host, const GroupSpec &spec, uint64_t seed);
  Group(const Group &) = delete;
  Group &operator=(const Group &) = delete;

  // Forward and backward; all must succeed. Behind the fence it fails when host code of the backend
  // touches memory.
  void together(bool is_fenced);
  void one_by_one();
  // Fills all that both ways overwrite with a byte.
  void scribble(uint8_t pattern);
  // The raw verbs, on other lists: both must answer OCTAVO_INVALID.
  void expect_refused(const char *fault, const std::vector<uint32_t> &linears,
                      const std::vector<int64_t> &offsets, uint32_t count);

  const std::vector<int64_t> &offsets() const { return offsets_; }
  const std::string &name() const { return name_; }

 private:
  struct Lists {
    std::vector<std::vector<void *>> all;
    std::vector<void *const *> pointers;
  };
  struct Own {
    uint8_t *saved, *forward_workspace, *backward_workspace;
  };

  int64_t m() const { return offsets_.back(); }
  octavo_grouped_plan plan() const;
  uint8_t *allocate(const octavo_extent &extent, int64_t rows, Use use, const char *what);
  Lists lists(uint32_t verb) const;
  octavo_grouped_forward_call forward_call(const Lists &lists);
  octavo_grouped_backward_call backward_call(const Lists &lists);
  void run(uint32_t verb, const char *what, bool is_fenced,
           const std::function<octavo_status()> &call);

  Host &host_;
  const Session &s_;
  const octavo_grouped &table_;
  GroupSpec spec_;
  std::vector<int64_t> offsets_;
  Matrix x_, y_, dy_, dx_, bias_, db_;
  octavo_grouped_plan plan_{};
  uint8_t *saved_ = nullptr, *forward_workspace_ = nullptr, *backward_workspace_ = nullptr;
  std::vector<Own> own_;
  std::vector<octavo_tensor *> dw_;
  std::string name_;
};

}  // namespace octavo::conformance
