// threads: two threads on one session, with own saved, workspaces, gradients and accumulators.
//
// First the threads take turns at every kernel, which shows what calls share between two kernels.
// Then they run freely and meet before every call, so that calls really overlap. A thread
// sanitizer, when the program is built with one, turns hidden writes into failures even where the
// bits come out right.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "all_checks.h"
#include "host.h"
#include "report.h"

namespace octavo::conformance {
namespace {

constexpr int kThreads = 2;
constexpr int kRounds = 4;
constexpr uint64_t kTurns = 6;  // the first in strict alternation

// What one thread owns, and the batches it runs, one after the other.
struct Worker {
  std::vector<Batch *> batches;
  Accumulators own;
  std::string failure;
};

void run_worker(Host &host, Worker &worker, std::atomic<int> *waiting, int rounds) {
  int calls = 0;
  const auto meet = [&] {
    if (waiting == nullptr) return;
    ++calls;
    waiting->fetch_add(1);
    while (waiting->load() < calls * kThreads) std::this_thread::yield();
  };
  Call call;
  call.own = &worker.own;
  call.flags = OCTAVO_BACKWARD_OVERWRITE;
  for (int round = 0; round < rounds; ++round) {
    for (Batch *batch : worker.batches) {
      for (const bool forward : {true, false}) {
        meet();
        if (!worker.failure.empty()) continue;
        try {
          forward ? host.forward(*batch, call) : host.backward(*batch, call);
        } catch (const std::exception &failure) {
          worker.failure = failure.what();
        }
      }
    }
  }
}

// y, dx, db, dw and the accumulators of a worker.
std::vector<std::vector<uint8_t>> results(Host &host, const Worker &worker) {
  std::vector<std::vector<uint8_t>> all;
  for (const Batch *b : worker.batches) {
    for (const Matrix *m : {&b->y, &b->dx, &b->db}) all.push_back(bytes_of(*m));
    if (b->dw.tensor.data != nullptr) all.push_back(bytes_of(b->dw));
  }
  for (const auto &[slot, memory] : worker.own) {
    all.emplace_back(memory, memory + host.bytes(slot));
  }
  return all;
}

}  // namespace

void check_threads(const Context &context) {
  Standard standard(context);
  Session &s = standard.session;
  Host &host = standard.host;
  host.train_step();
  host.quantize_weights();
  Worker workers[kThreads];
  for (uint32_t id = 0; id < s.linears().size(); ++id) {
    // A gradient slot is one per parameter: two calls in flight must not share it.
    if (s.linears()[id].plan.gradient == OCTAVO_GRADIENT_SLOT) continue;
    for (int t = 0; t < kThreads; ++t) {
      const uint64_t seed = mix(context.seed, 700 + id * kThreads + static_cast<uint32_t>(t));
      Batch &batch = host.add_batch({id, 19 + 8 * t, seed});
      if (batch.dw.tensor.data != nullptr) {
        batch.dw = make_matrix(host.arena(), text("dw of ", batch.name), batch.dw.rows(),
                               batch.dw.cols(), OCTAVO_F32);
      }
      workers[t].batches.push_back(&batch);
    }
  }
  if (workers[0].batches.empty()) {
    throw Skip("every linear has its gradient in a slot, which two calls in flight may not share");
  }
  for (Worker &worker : workers) worker.own = host.make_accumulators("a thread");
  std::vector<std::vector<std::vector<uint8_t>>> expected;
  const auto clear = [&] {
    for (Worker &worker : workers) {
      for (const auto &[slot, memory] : worker.own) std::memset(memory, 0, host.bytes(slot));
    }
  };
  // Sums count the rounds, so each way to run has an answer of its own.
  const auto run_alone = [&](int rounds) {
    expected.clear();
    for (Worker &worker : workers) {
      run_worker(host, worker, nullptr, rounds);
      expect(worker.failure.empty(), worker.failure);
      expected.push_back(results(host, worker));
    }
    clear();
  };
  const auto expect_same = [&](const std::string &how) {
    for (size_t t = 0; t < kThreads; ++t) {
      expect(workers[t].failure.empty(), "thread ", t, ", ", how, ": ", workers[t].failure);
      const auto found = results(host, workers[t]);
      for (size_t i = 0; i < found.size(); ++i) {
        expect(found[i] == expected[t][i], "thread ", t, ", result ", i, ", ", how,
               ": the bits differ from those of the same calls on one thread");
      }
    }
  };
  run_alone(1);
  host.set_concurrent(true);
  step("two threads in turns");
  for (uint64_t seed = 0; seed < kTurns; ++seed) {
    Turns turns(seed);
    s.kernels().set_turns(&turns);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&host, &workers, &turns, t] {
        turns.begin(t);
        run_worker(host, workers[t], nullptr, 1);
        turns.end();
      });
    }
    for (std::thread &thread : threads) thread.join();
    s.kernels().set_turns(nullptr);
    host.arena().check_red_zones("a call on one of two threads");
    expect_same(text("in turns (", seed, ")"));
    clear();
  }
  host.set_concurrent(false);
  run_alone(kRounds);
  host.set_concurrent(true);
  step("two threads at once");
  // The second thread takes the layers in the opposite order: different layers overlap.
  std::reverse(workers[1].batches.begin(), workers[1].batches.end());
  std::atomic<int> waiting{0};
  std::vector<std::thread> threads;
  for (Worker &worker : workers) {
    threads.emplace_back(
        [&host, &worker, &waiting] { run_worker(host, worker, &waiting, kRounds); });
  }
  for (std::thread &thread : threads) thread.join();
  host.set_concurrent(false);
  host.arena().check_red_zones("a call on one of two threads");
  std::reverse(workers[1].batches.begin(), workers[1].batches.end());
  expect_same("at once");
}

}  // namespace octavo::conformance
