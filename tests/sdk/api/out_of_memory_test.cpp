// Each allocation of a whole run fails once, in a process of its own: the answer is
// OCTAVO_NO_RESOURCE with a message, or the same as without the failure; nothing crashes, nothing
// stays half open. Each scenario also runs in a thread with a small stack. The tests in `main` try
// 29 allocations of each scenario, evenly spread, and the ones in `rest` all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "octavo/octavo.h"
#include "tests/support/environment.h"
#include "tests/support/failing_heap.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/seed.h"
#include "tests/support/temp_dir.h"

namespace octavo::test {
namespace {

// What a scenario said, without an allocation of its own.
struct Said {
  octavo_status status = OCTAVO_OK;
  uint64_t hash = 14695981039346656037u;  // FNV-1a of all that was handed out
  uint64_t errors = 0;
  char last[400] = {};

  void mix(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char *>(data)[i]) * 1099511628211u;
  }
};

void keep(void *ctx, const octavo_diagnostic *d) {
  auto *said = static_cast<Said *>(ctx);
  if (d->severity != OCTAVO_SEVERITY_ERROR) return;
  ++said->errors;
  const size_t size = std::min<size_t>(d->text.size, sizeof(said->last) - 1);
  std::memcpy(said->last, d->text.data, size);
  said->last[size] = 0;
}

// Without digits: milliseconds and free bytes differ from call to call.
void take_line(void *ctx, octavo_str line) {
  for (uint64_t i = 0; i < line.size; ++i)
    if (line.data[i] < '0' || line.data[i] > '9') static_cast<Said *>(ctx)->mix(&line.data[i], 1);
}

struct Place {
  std::string config;  // a file that names a third party's plugin
  std::string checkpoint;
};

octavo_open_desc describe(const Place &place, const octavo_host *host, bool stranger) {
  octavo_open_desc d{};
  d.size = sizeof(d);
  d.kind = OCTAVO_KIND_OPEN_DESC;
  d.host = host;
  d.device.type = OCTAVO_DEVICE_CPU;
  static constexpr char kOwn[] = "[fp8]\nbackend = \"te\"\nfallback = [\"bf16\"]\n";
  if (stranger)
    d.config_path = {place.config.data(), place.config.size()};
  else
    d.config_text = {kOwn, sizeof(kOwn) - 1};
  return d;
}

// A run with one linear, sealed, and its store. Null where an allocation failed, with *said filled.
class Opened {
 public:
  Opened(const octavo_open_desc &desc, Said *said) {
    octavo_parameter_desc p{};
    p.size = sizeof(p);
    p.kind = OCTAVO_KIND_PARAMETER_DESC;
    p.name = {"fc.weight", 9};
    p.rows = p.cols = 64;
    p.dtype = p.gradient_dtype = OCTAVO_F32;
    p.flags = OCTAVO_PARAMETER_LINEAR_WEIGHT;
    octavo_linear_desc l{};
    l.size = sizeof(l);
    l.kind = OCTAVO_KIND_LINEAR_DESC;
    l.name = {"fc", 2};
    uint32_t linear = 0;
    octavo_status &s = said->status;
    s = octavo_open(&desc, &run);
    if (s == OCTAVO_OK) s = octavo_add_parameter(run, &p, nullptr, &l.weight);
    if (s == OCTAVO_OK) s = octavo_add_linear(run, &l, nullptr, &linear);
    if (s == OCTAVO_OK) s = octavo_seal(run);
    if (s == OCTAVO_OK) s = octavo_store_open(run, &store);
    if (s == OCTAVO_OK) said->mix(&linear, sizeof(linear));
  }
  ~Opened() {
    octavo_store_close(store);
    octavo_close(run);
  }
  octavo_run *run = nullptr;
  octavo_store *store = nullptr;
};

void save_and_load(const octavo_open_desc &desc, const Place &place, int64_t which, Said *said) {
  const Opened run(desc, said);
  arm_heap(which);  // `report` opens the same run
  const octavo_str directory = {place.checkpoint.data(), place.checkpoint.size()};
  uint64_t step = 0;
  if (said->status == OCTAVO_OK) said->status = octavo_store_save(run.store, directory, 7);
  if (said->status == OCTAVO_OK) said->status = octavo_store_load(run.store, directory, &step);
  if (said->status == OCTAVO_OK) said->mix(&step, sizeof(step));
}

void report(const octavo_open_desc &desc, const Place &, int64_t which, Said *said) {
  arm_heap(which);
  const Opened run(desc, said);
  for (const octavo_str format :
       {octavo_str{"text", 4}, octavo_str{"tree", 4}, octavo_str{"json", 4}})
    if (said->status == OCTAVO_OK) said->status = octavo_report(run.run, format, take_line, said);
}

template <auto Function>
void look(const octavo_open_desc &desc, const Place &, int64_t which, Said *said) {
  arm_heap(which);
  said->status = Function(&desc, {"json", 4}, take_line, said);
}

void settings(const octavo_open_desc &desc, const Place &, int64_t which, Said *said) {
  arm_heap(which);
  const auto take = [](void *ctx, const octavo_setting *s) {
    for (const octavo_str text : {s->name, s->value.text, s->origin})
      static_cast<Said *>(ctx)->mix(text.data, text.size);
  };
  said->status = octavo_settings(&desc, take, said);
}

struct Scenario {
  const char *name;
  // The allocation `which` fails, counted from where the scenario begins; 0: none.
  void (*run)(const octavo_open_desc &, const Place &, int64_t which, Said *);
  bool stranger;  // a plugin that the helper tries
};

const Scenario kScenarios[] = {{"report", report, false},
                               {"save_and_load", save_and_load, false},
                               {"explain", look<octavo_explain>, false},
                               {"list", look<octavo_list>, true},
                               {"check_config", look<octavo_check_config>, false},
                               {"settings", settings, false},
                               {"stranger", look<octavo_explain>, true},
                               {"probe", look<octavo_probe>, true}};

struct Trial {
  Said said;
  int64_t asked = 0;
  Said again;  // the same without a failure, in the same process
};

void PrintTo(const Scenario &s, std::ostream *out) {
  *out << s.name;
}

class OutOfMemory : public testing::TestWithParam<Scenario> {
 protected:
  void SetUp() override {
    put_fake(dir, "plugins");
    place.config = dir.write("octavo.toml",
                             "[fp8]\nbackend = \"fake\"\nfallback = [\"bf16\"]\n[plugins]\ntrust = "
                             "\"dev\"\nprobe = \"always\"\n");
    place.checkpoint = dir / "checkpoint";
    shared_ = static_cast<Trial *>(
        mmap(nullptr, sizeof(Trial), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(shared_, MAP_FAILED);
  }
  void TearDown() override { munmap(shared_, sizeof(Trial)); }

  // What a new process says in which the allocation `which` fails. How it ended, empty if well.
  std::string attempt(const Scenario &scenario, int64_t which, Trial *trial) {
    *shared_ = Trial();
    const pid_t child = fork();
    if (child == 0) {
      run_once(scenario, which, &shared_->said);
      shared_->asked = disarm_heap();
      run_once(scenario, 0, &shared_->again);
      disarm_heap();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    *trial = *shared_;
    if (WIFSIGNALED(status))
      return std::string("ended by signal ") + std::to_string(WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? ""
                                    : "ended with exit code " + std::to_string(WEXITSTATUS(status));
  }

  // most: how many, evenly spread; 0: every stride-th one.
  void sweep(int64_t most, int64_t stride = 1) {
    const Scenario &scenario = GetParam();
    Trial whole;
    ASSERT_EQ(attempt(scenario, 0, &whole), "");
    ASSERT_EQ(whole.said.status, OCTAVO_OK) << whole.said.last;
    const int64_t count = whole.asked;
    ASSERT_GT(count, 20);
    RecordProperty("allocations", static_cast<int>(count));
    const int64_t step = std::max<int64_t>(1, most > 0 ? count / most : stride);
    int64_t failed = 0;
    for (int64_t k = 1 + static_cast<int64_t>(seed_or(0) % static_cast<uint64_t>(step)); k <= count;
         k += step) {
      Trial trial;
      const std::string where = std::string(scenario.name) + ", allocation " + std::to_string(k) +
                                " of " + std::to_string(count) + ": ";
      EXPECT_EQ(attempt(scenario, k, &trial), "") << where;
      if (trial.said.status == OCTAVO_OK) {
        EXPECT_EQ(trial.said.hash, whole.said.hash) << where << "another answer";
      } else {
        ++failed;
        EXPECT_EQ(trial.said.status, OCTAVO_NO_RESOURCE) << where << trial.said.last;
        EXPECT_GE(trial.said.errors, 1u) << where << "no message";
      }
      EXPECT_EQ(trial.again.status, OCTAVO_OK) << where << "afterwards: " << trial.again.last;
      // The first whole answer of its process, or the second.
      EXPECT_THAT(trial.again.hash, testing::AnyOf(whole.said.hash, whole.again.hash))
          << where << "afterwards another answer";
    }
    EXPECT_GT(failed, 0);
  }

  // In a process of its own, which a stack that overflows ends.
  void run_on_stack(size_t bytes) {
    const pid_t child = fork();
    if (child == 0) {
      const auto work = [](void *self) -> void * {
        auto *test = static_cast<OutOfMemory *>(self);
        test->run_once(GetParam(), 0, &test->shared_->said);
        return nullptr;
      };
      pthread_attr_t attributes;
      pthread_t thread;
      pthread_attr_init(&attributes);
      if (pthread_attr_setstacksize(&attributes, bytes) != 0) _exit(2);
      if (pthread_create(&thread, &attributes, work, this) != 0) _exit(3);
      pthread_join(thread, nullptr);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_FALSE(WIFSIGNALED(status)) << "ended by signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(shared_->said.status, OCTAVO_OK) << shared_->said.last;
  }

  Place place;
  Environment environment;
  TempDir dir = TempDir::in_memory();

 private:
  void run_once(const Scenario &scenario, int64_t which, Said *said) {
    octavo_host host{};
    host.size = sizeof(host);
    host.kind = OCTAVO_KIND_HOST;
    host.abi_major = OCTAVO_ABI_MAJOR;
    host.abi_minor = OCTAVO_ABI_MINOR;
    host.ctx = said;
    host.diagnose = keep;
    const octavo_open_desc desc = describe(place, &host, scenario.stranger);
    scenario.run(desc, place, which, said);
  }

  Trial *shared_ = nullptr;
};

// As docs/architecture.md promises to hosts with threads of their own.
TEST_P(OutOfMemory, a_stack_of_64_kib_is_enough) {
  run_on_stack(64 << 10);
}

TEST_P(OutOfMemory, a_sample_of_allocations_fails) {
  sweep(29);  // 200 of all scenarios
}

// All of them in tests/soak.py.
TEST_P(OutOfMemory, every_allocation_fails_once) {
  sweep(0, stride_or(8));
}

INSTANTIATE_TEST_SUITE_P(All, OutOfMemory, testing::ValuesIn(kScenarios),
                         [](const auto &one) { return std::string(one.param.name); });

}  // namespace
}  // namespace octavo::test
