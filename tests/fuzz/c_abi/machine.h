// What one input does: a few runs and stores, and one operation after the other on any of them.
//
// Arguments that nobody can tell from good ones (a pointer that does not hold what it should, a run
// closed below its store) are the caller's to avoid, so no script makes them; anything else may
// come in any order.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "host.h"
#include "memory.h"
#include "script.h"

namespace octavo::fuzz {

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  uint32_t dtype = OCTAVO_F32;
};

struct OpenRun {
  octavo_run *run = nullptr;
  bool hosted = false;                   // opened with a host
  bool scripted = false;                 // its plugin answers anything
  std::map<uint32_t, Shape> shapes;      // of parameters, by id
  std::map<uint32_t, uint32_t> weights;  // of linears, by id
};

struct OpenStore {
  octavo_store *store = nullptr;
  OpenRun *run = nullptr;
  uint32_t world = 1;
  std::vector<Block> natives;
};

class Machine {
 public:
  explicit Machine(Script &script) : script_(script) {}
  ~Machine();

  // Works through the script.
  void run();

 private:
  // Each of these makes one call, or a few that belong together.
  void open();  // open.cpp
  void close();
  void report();
  void add_parameter();  // model.cpp
  void add_linear();
  void seal();
  void describe();  // a model that fits
  void look();      // look.cpp
  void no_handles();
  void threads();
  void open_store();  // store.cpp
  void use_store();
  void checkpoint();
  void close_store();
  void quantize();  // hot.cpp
  void forward();
  void backward();
  void end_step();
  void fused();
  void step();  // optimizer.cpp
  void transfer();
  void prepare();
  void collective();  // reduction.cpp
  void reduce();

  OpenRun &any_run() { return runs_[script_.below(runs_.size())]; }
  OpenStore &any_store() { return stores_[script_.below(stores_.size())]; }
  // A store whose every native slot has memory, and whose memory is small; null: none.
  OpenStore *ready_store();
  void close_store(OpenStore &s);
  void close_run(OpenRun &r);
  octavo_status add_parameter(OpenRun &r, const std::string &name, const Shape &shape,
                              uint32_t flags, uint32_t defect);
  octavo_status add_linear(OpenRun &r, const std::string &name, uint32_t weight, uint32_t defect);
  // Makes a call on a run, whose host is told why it fails; `whole`: nothing that must be there is
  // null, which OCTAVO_INVALID alone says.
  template <typename Call>
  octavo_status judge(const OpenRun &r, const char *name, Call &&call, bool whole = true) {
    host_.allow_any_status(r.scripted);
    return host_.judge(name, r.hosted && whole, static_cast<Call &&>(call));
  }

  Script &script_;
  Host host_;
  // What one script may still do of what takes nearly all of its time: to search for plugins, check
  // and load them. Calls on what is open are a hundred times as fast.
  int opens_ = 2;
  int reports_ = 1;
  std::array<OpenRun, 2> runs_;
  std::array<OpenStore, 2> stores_;
  // The last ones that were closed; null: none.
  octavo_run *closed_run_ = nullptr;
  octavo_store *closed_store_ = nullptr;
};

// The script that the scripted plugin answers by; null: it answers well.
extern "C" Script *octavo_fuzz_script;

// The folder for files of one input, below the current one.
const std::string &work_folder();
// Says that files may lie there, which are removed before the next input.
void use_work_folder();

}  // namespace octavo::fuzz
