// A program that ends while a run, its store, threads and ranks are open.
//
// Usage: ends_open <directory with the zoo's fake plugin> <way>. Ways: return, exit, quick_exit;
// atexit and destructor close there, after main; thread ends while another thread uses the run;
// fork ends a child in the same state first.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "octavo/octavo.h"
#include "tests/support/sleeping_threads.h"

namespace {

octavo_run *run = nullptr;
octavo_store *store = nullptr;
octavo_threads *threads = nullptr;
octavo_ranks *ranks = nullptr;

octavo_str borrow(const std::string &s) {
  return {s.data(), s.size()};
}

bool open_all(const std::string &directory) {
  octavo_option_value values[2] = {};
  values[0].name = OCTAVO_STR("plugins.trust");
  values[0].value.type = OCTAVO_VALUE_TEXT;
  values[0].value.text = OCTAVO_STR("dev");
  values[1].name = OCTAVO_STR("fp8.backend");
  values[1].value.type = OCTAVO_VALUE_TEXT;
  values[1].value.text = OCTAVO_STR("fake");
  const octavo_str place = borrow(directory);
  octavo_open_desc d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_OPEN_DESC;
  d.overrides = values;
  d.override_count = 2;
  d.plugin_dirs = &place;
  d.plugin_dir_count = 1;
  return octavo_open(&d, &run) == OCTAVO_OK && octavo_seal(run) == OCTAVO_OK &&
         octavo_store_open(run, &store) == OCTAVO_OK &&
         octavo_threads_open(3, &threads) == OCTAVO_OK && octavo_ranks_open(2, &ranks) == OCTAVO_OK;
}

void close_all() {
  octavo_close(run);
  octavo_store_close(store);
  octavo_threads_close(threads);
  octavo_ranks_close(ranks);
}

// Made before liboctavo is first called, so it ends after whatever liboctavo registered.
struct Last {
  bool closes = false;
  ~Last() {
    if (closes) close_all();
  }
} last;

std::atomic<bool> is_used{false};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 3 || !open_all(argv[1])) return 2;
  const std::string way = argv[2];
  std::puts("open");
  std::fflush(stdout);
  if (way == "exit") std::exit(0);
  if (way == "quick_exit") std::quick_exit(0);
  if (way == "atexit") return std::atexit(close_all);
  last.closes = way == "destructor";
  if (way == "thread") {
    std::thread([] {
      for (;;) {
        octavo_run_slot_count(run);
        is_used = true;
      }
    }).detach();
    while (!is_used) std::this_thread::yield();
  }
  if (way == "fork") {
    if (!octavo::test::wait_for_sleeping_threads()) return 4;
    const pid_t child = fork();
    if (child == 0) return 0;
    int status = 1;
    if (waitpid(child, &status, 0) != child || status != 0) return 3;
  }
  return 0;
}
