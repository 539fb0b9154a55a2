// One linear layer of a backend on raw files, so that other libraries can be compared with it.
//
// Usage: linear_probe <config.toml> <folder> <M> <N> <K> <steps>
// Reads x.f32 [M, K], w.f32 [N, K] and dy.f32 [M, N] from the folder: rows of float32 in the byte
// order of the machine. Every step casts the weight, runs forward and backward on the same data and
// ends the step. Writes what the last step gave: y.f32 [M, N], dx.f32 [M, K], dw.f32 [N, K].
// Exit codes: 0; 1 with the reason on stderr; 2 when the arguments are wrong.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/model.h"

namespace {

using octavo::test::Answer;
using octavo::test::Request;
using octavo::test::RunPtr;
using octavo::test::StorePtr;

struct Shape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
};

// Buffers of the host: 256-byte aligned, as the contract wants them.
class Bytes {
 public:
  explicit Bytes(uint64_t size) : memory_(::operator new (size + 1, std::align_val_t{256})) {}
  ~Bytes() { ::operator delete (memory_, std::align_val_t{256}); }
  Bytes(const Bytes &) = delete;
  Bytes &operator=(const Bytes &) = delete;
  void *get() const { return memory_; }

 private:
  void *memory_;
};

std::vector<float> read(const std::string &path, int64_t count) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t expected = static_cast<size_t>(count) * sizeof(float);
  if (bytes.size() != expected)
    throw std::runtime_error(path + ": expected " + std::to_string(expected) + " bytes, found " +
                             std::to_string(bytes.size()) + "; does the shape fit the file?");
  std::vector<float> values(static_cast<size_t>(count));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char *>(values.data()));
  return values;
}

void write(const std::string &path, const std::vector<float> &values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char *>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::string text_file(const std::string &path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int64_t positive(const std::string &text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1)
    throw std::invalid_argument("expected a positive number, found '" + text + "'");
  return value;
}

octavo_tensor tensor(std::vector<float> &v, int64_t rows, int64_t cols) {
  return {v.data(), rows, cols, cols, OCTAVO_F32, 0};
}

// The layer with its run, store and data; step() leaves y, dx and dw.
class Probe {
 public:
  Probe(const std::string &config, const std::string &folder, Shape s)
      : shape_(s),
        x_(read(folder + "/x.f32", s.m * s.k)),
        w_(read(folder + "/w.f32", s.n * s.k)),
        dy_(read(folder + "/dy.f32", s.m * s.n)),
        y(static_cast<size_t>(s.m * s.n)),
        dx(static_cast<size_t>(s.m * s.k)),
        dw(static_cast<size_t>(s.n * s.k)) {
    request_.text(text_file(config)).set("plugins.trust", "dev");
    check(request_.open(run_), "octavo_open");
    weight_ = accepted(octavo::test::add_weight(run_.get(), "fc.weight", s.n, s.k), "parameter");
    linear_ = accepted(octavo::test::add_linear(run_.get(), "fc", weight_), "linear");
    check(octavo_seal(run_.get()), "octavo_seal");
    octavo_store *store = nullptr;
    check(octavo_store_open(run_.get(), &store), "octavo_store_open");
    store_.reset(store);
    check(octavo_store_native(store, weight_, OCTAVO_ROLE_WEIGHT, w_.data()), "native weight");
  }

  void step() {
    const octavo_linear_plan &plan = *octavo_run_plan(run_.get(), linear_);
    if (plan.gradient != OCTAVO_GRADIENT_TENSOR)
      throw std::runtime_error("expected a backend that returns dw as a tensor");
    const uint64_t rows = static_cast<uint64_t>(shape_.m);
    const Bytes saved(octavo_extent_bytes(&plan.saved, rows));
    const Bytes workspace(
        std::max({plan.weight_workspace, octavo_extent_bytes(&plan.forward_workspace, rows),
                  octavo_extent_bytes(&plan.backward_workspace, rows)}));
    quantize(workspace);
    forward(saved, workspace);
    backward(plan, saved, workspace);
    octavo_step_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_STEP_CALL;
    c.slots = list(OCTAVO_VERB_END_STEP, OCTAVO_OWNER_SESSION, 0);
    check(backend()->end_step(octavo_run_session(run_.get()), &c), "end_step");
  }

 private:
  void quantize(const Bytes &workspace) {
    octavo_weight_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_WEIGHT_CALL;
    c.parameter = weight_;
    c.slots = list(OCTAVO_VERB_QUANTIZE_WEIGHT, OCTAVO_OWNER_PARAMETER, weight_);
    c.workspace = workspace.get();
    check(backend()->quantize_weight(octavo_run_session(run_.get()), &c), "quantize_weight");
  }
  void forward(const Bytes &saved, const Bytes &workspace) {
    const octavo_tensor tx = tensor(x_, shape_.m, shape_.k);
    octavo_tensor ty = tensor(y, shape_.m, shape_.n);
    octavo_forward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_FORWARD_CALL;
    c.linear = linear_;
    c.x = &tx;
    c.y = &ty;
    c.slots = list(OCTAVO_VERB_FORWARD, OCTAVO_OWNER_LINEAR, linear_);
    c.saved = saved.get();
    c.workspace = workspace.get();
    check(backend()->linear_forward(octavo_run_session(run_.get()), &c), "linear_forward");
  }
  void backward(const octavo_linear_plan &plan, const Bytes &saved, const Bytes &workspace) {
    const octavo_tensor tdy = tensor(dy_, shape_.m, shape_.n);
    const octavo_tensor tx = tensor(x_, shape_.m, shape_.k);
    octavo_tensor tdx = tensor(dx, shape_.m, shape_.k);
    octavo_tensor tdw = tensor(dw, shape_.n, shape_.k);
    octavo_backward_call c{};
    c.size = sizeof(c);
    c.kind = OCTAVO_KIND_BACKWARD_CALL;
    c.linear = linear_;
    c.flags = OCTAVO_BACKWARD_OVERWRITE;
    c.dy = &tdy;
    c.x = plan.flags & OCTAVO_LINEAR_NEEDS_X ? &tx : nullptr;
    c.dx = &tdx;
    c.dw = &tdw;
    c.slots = list(OCTAVO_VERB_BACKWARD, OCTAVO_OWNER_LINEAR, linear_);
    c.saved = saved.get();
    c.workspace = workspace.get();
    check(backend()->linear_backward(octavo_run_session(run_.get()), &c), "linear_backward");
  }

  void check(octavo_status status, const char *what) const {
    if (status == OCTAVO_OK) return;
    throw std::runtime_error(std::string(what) + " answered status " + std::to_string(status) +
                             ": " + request_.host.error());
  }
  uint32_t accepted(const Answer &a, const char *what) const {
    check(a.status, what);
    if (a.id == OCTAVO_NONE)
      throw std::runtime_error(std::string(what) +
                               " was declined: " + octavo::test::text_of(a.verdict.text) +
                               "; found " + octavo::test::text_of(a.verdict.evidence));
    return a.id;
  }
  const octavo_backend *backend() const { return octavo_run_backend(run_.get()); }
  void *const *list(uint32_t verb, uint32_t owner_kind, uint32_t owner) const {
    return octavo_store_slots(store_.get(), verb, owner_kind, owner);
  }

  Shape shape_;
  std::vector<float> x_;
  std::vector<float> w_;
  std::vector<float> dy_;
  Request request_;
  RunPtr run_;
  StorePtr store_;
  uint32_t weight_ = OCTAVO_NONE;
  uint32_t linear_ = OCTAVO_NONE;

 public:
  std::vector<float> y;
  std::vector<float> dx;
  std::vector<float> dw;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: linear_probe <config.toml> <folder> <M> <N> <K> <steps>\n");
    return 2;
  }
  try {
    const std::string folder = argv[2];
    Probe probe(argv[1], folder, {positive(argv[3]), positive(argv[4]), positive(argv[5])});
    for (int64_t left = positive(argv[6]); left > 0; --left) probe.step();
    write(folder + "/y.f32", probe.y);
    write(folder + "/dx.f32", probe.dx);
    write(folder + "/dw.f32", probe.dw);
  } catch (const std::invalid_argument &e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  } catch (const std::exception &e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}
