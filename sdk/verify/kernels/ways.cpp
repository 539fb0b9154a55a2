// Gates, streams, graphs and current devices.
#include "ways.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace octavo::conformance::kernels {
namespace {

// Far more than a call takes: who waits this long waits for a gate that is closed.
constexpr std::chrono::seconds kLimit{10};

void expect_ok(octavo_status status, const char *function, const std::string &what) {
  expect(status == OCTAVO_OK, what, ": ", function, " of ", OCTAVO_STREAMS_ID, " answered ",
         status_name(status), ": ", last_message());
}

class Stream {
 public:
  explicit Stream(const Side &side) : side_(side), table_(streams_of(side)) {
    calling("make_stream");
    expect_ok(table_.make_stream(side.ctx, &stream_), "make_stream", "a second stream");
    expect(stream_ != nullptr, "make_stream gave null, which is the default stream");
  }
  ~Stream() { table_.destroy_stream(side_.ctx, stream_); }
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;

  void *get() const { return stream_; }
  void wait(const std::string &what) const {
    calling("wait, for " + what);
    expect_ok(table_.wait(side_.ctx, stream_), "wait", what);
  }
  void follow(const Stream &before) const {
    expect_ok(table_.order(side_.ctx, stream_, before.get()), "order", "two streams");
  }
  void copy(void *to, const void *from, uint64_t bytes) const {
    auto c = octavo::make<octavo_copy>(OCTAVO_KIND_COPY);
    c.stream = stream_;
    c.out = to;
    c.in = from;
    c.bytes = bytes;
    calling("copy, on a second stream");
    const octavo_status status = side_.table.copy(side_.ctx, &c);
    expect(status == OCTAVO_OK, "copy on a second stream answered ", status_name(status), ": ",
           last_message());
  }

 private:
  const Side &side_;
  const octavo_streams &table_;
  void *stream_ = nullptr;
};

// What is queued on a stream behind it waits until it opens.
class Gate {
 public:
  void close(const Side &side, const Stream &stream) {
    is_open_ = is_late_ = false;
    const auto pass = [](void *arg) { static_cast<Gate *>(arg)->pass(); };
    expect_ok(streams_of(side).call_host(side.ctx, stream.get(), pass, this), "call_host",
              "a gate on a stream");
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }
  // Whether somebody has waited for what waits for it.
  bool is_late() const { return is_late_; }

 private:
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!opened_.wait_for(lock, kLimit, [&] { return is_open_; })) is_late_ = true;
  }

  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
  std::atomic<bool> is_late_{false};
};

constexpr uint64_t kBytes = uint64_t{8} << 20;

// What operands hold before their contents come: others, which differ from operand to operand.
std::vector<uint8_t> stale_image(const Operands &m) {
  std::vector<uint8_t> image = m.image(false);
  int turn = 0;
  for (const Operands::Range &r : m.ranges())
    std::memset(image.data() + r.at, 0x11 * (1 + turn++ % 3), r.bytes);
  return image;
}

// Opens a gate also where a check fails.
class Opening {
 public:
  explicit Opening(Gate &gate) : gate_(gate) {}
  ~Opening() { gate_.open(); }

 private:
  Gate &gate_;
};

class OnStreams final : public Ways {
 public:
  explicit OnStreams(const Side &side)
      : side_(side), first_(side), second_(side), staging_(side, kBytes), results_(side, kBytes) {
    expect_ok(streams_of(side).wait(side.ctx, nullptr), "wait", "the default stream");
  }

  void run(const Case &one, Arena &arena, const Accept &accept) override {
    for (const bool turned : {false, true}) {
      const Stream &a = turned ? second_ : first_, &b = turned ? first_ : second_;
      run_on(one, arena, a, a, b, accept, "on a second stream");
      run_on(one, arena, a, b, a, accept, "on a stream that follows another one");
    }
  }

 private:
  struct Blocked final : Way {
    OnStreams &all;
    const Stream &of_call, &of_operands;
    Blocked(OnStreams &ways, const Stream &call, const Stream &operands)
        : all(ways), of_call(call), of_operands(operands) {}

    void *begin(Operands &m) override {
      const std::vector<uint8_t> image = m.image(false), stale = stale_image(m);
      all.side_.copy(m.arena().data(), stale.data(), stale.size());
      all.side_.copy(all.staging_.data(), image.data(), image.size());
      all.gate_.close(all.side_, of_operands);
      for (const Operands::Range &r : m.ranges())
        of_operands.copy(m.arena().data() + r.at, all.staging_.data() + r.at, r.bytes);
      if (of_call.get() != of_operands.get()) of_call.follow(of_operands);
      return of_call.get();
    }
  };

  void run_on(const Case &one, Arena &arena, const Stream &of_call, const Stream &of_operands,
              const Stream &idle, const Accept &accept, const char *how) {
    const std::string what = text(one.name, ", ", how);
    Blocked way(*this, of_call, of_operands);
    Operands m(side_, arena, Place::kEnd, what, false, &way);
    {
      const Opening at_end(gate_);
      const octavo_status status = one.body(m);
      expect(status == OCTAVO_OK, what, ": answered ", status_name(status), ": ", last_message(),
             "; expected OCTAVO_OK, as on the default stream");
      expect(!gate_.is_late(), what, ": the call waited for its stream; no kernel synchronizes");
      // Taken by the stream itself: to wait for the device would also wait for others.
      if (&of_call != &of_operands) of_operands.follow(of_call);
      for (const Operands::Range &r : m.ranges())
        of_operands.copy(results_.data() + r.at, arena.data() + r.at, r.bytes);
      calling("wait for other streams, of " + what);
      expect_ok(streams_of(side_).wait(side_.ctx, nullptr), "wait", what);
      if (&idle != &of_operands && &idle != &of_call) idle.wait(what);
      expect(!gate_.is_late(), what, ": other streams wait for the one of the call");
    }
    of_operands.wait(what);
    arena.allow();
    for (const Operands::Range &r : m.ranges())
      side_.copy(arena.data() + r.at, results_.data() + r.at, r.bytes);
    accept(m.results(), false, how);
  }

  const Side &side_;
  Stream first_, second_;
  Arena staging_, results_;
  Gate gate_;
};

class InGraphs final : public Ways {
 public:
  explicit InGraphs(const Side &side) : side_(side), stream_(side) {
    const octavo_streams &t = streams_of(side);
    if ((side.caps.flags & OCTAVO_CAPS_CAPTURE_SAFE) != 0 && t.begin_capture != nullptr) return;
    not_offered("OCTAVO_CAPS_CAPTURE_SAFE with graphs");
    throw Skip("not offered: OCTAVO_CAPS_CAPTURE_SAFE with graphs");
  }

  void run(const Case &one, Arena &arena, const Accept &accept) override {
    const octavo_streams &t = streams_of(side_);
    const std::string what = one.name + ", captured";
    Captured way(*this);
    Operands m(side_, arena, Place::kEnd, what, false, &way);
    const octavo_status status = one.body(m);
    void *graph = nullptr;
    calling("end_capture, of " + what);
    const octavo_status ended = t.end_capture(side_.ctx, stream_.get(), &graph);
    arena.allow();
    expect(status == OCTAVO_OK, what, ": answered ", status_name(status), ": ", last_message(),
           "; describe states OCTAVO_CAPS_CAPTURE_SAFE");
    expect(ended == OCTAVO_OK && graph != nullptr, what, ": end_capture answered ",
           status_name(ended), ": ", last_message(),
           "; a call that is captured neither allocates nor waits");
    const Graph held{t, side_.ctx, graph};
    std::vector<uint8_t> found(way.before.size());
    side_.copy(found.data(), arena.data(), found.size());
    expect(found == way.before, what, ": the call wrote while it was captured");
    for (const bool varied : {false, true, false}) {
      const std::vector<uint8_t> image = m.image(varied);
      side_.copy(arena.data(), image.data(), image.size());
      m.forbid();
      calling("launch, of " + what);
      expect_ok(t.launch(side_.ctx, graph, stream_.get()), "launch", what);
      stream_.wait(what);
      arena.allow();
      m.expect_image(image);
      accept(m.results(), varied, varied ? "replayed with other contents" : "replayed");
    }
  }

 private:
  struct Captured final : Way {
    InGraphs &all;
    std::vector<uint8_t> before;
    explicit Captured(InGraphs &ways) : all(ways) {}

    void *begin(Operands &m) override {
      before = stale_image(m);
      all.side_.copy(m.arena().data(), before.data(), before.size());
      expect_ok(streams_of(all.side_).begin_capture(all.side_.ctx, all.stream_.get()),
                "begin_capture", m.what());
      return all.stream_.get();
    }
  };
  struct Graph {
    const octavo_streams &table;
    void *ctx, *graph;
    ~Graph() { table.destroy_graph(ctx, graph); }
  };

  const Side &side_;
  Stream stream_;
};

class OnOtherDevices final : public Ways {
 public:
  explicit OnOtherDevices(const Side &side) : side_(side) {
    const octavo_streams &t = streams_of(side);
    if (t.set_current_device != nullptr) {
      const int32_t before = current();
      for (const int32_t index : {OCTAVO_NO_CURRENT_DEVICE, 0, 1, 2})
        if (index != side.device.index && t.set_current_device(side.ctx, index) == OCTAVO_OK)
          others_.push_back(index);
      expect_ok(t.set_current_device(side.ctx, before), "set_current_device", "the device before");
    }
    if (!others_.empty()) return;
    not_offered("another current device");
    throw Skip("not offered: another current device");
  }

  void run(const Case &one, Arena &arena, const Accept &accept) override {
    for (const int32_t index : others_) {
      const std::string how = index == OCTAVO_NO_CURRENT_DEVICE
                                  ? std::string("no device current")
                                  : text("device ", index, " current");
      const std::string what = text(one.name, ", ", how);
      Elsewhere way(*this, index);
      Operands m(side_, arena, Place::kEnd, what, false, &way);
      const octavo_status status = one.body(m);
      const int32_t found = way.found;
      expect_ok(streams_of(side_).set_current_device(side_.ctx, way.before), "set_current_device",
                what);
      side_.synchronize();
      arena.allow();
      expect(status == OCTAVO_OK, what, ": answered ", status_name(status), ": ", last_message(),
             "; expected OCTAVO_OK: the call works on the device of its ctx");
      expect(found == index, what, ": the call left device ", found, " current");
      accept(m.results(), false, how);
    }
  }

 private:
  struct Elsewhere final : Way {
    OnOtherDevices &all;
    int32_t index, before, found;
    Elsewhere(OnOtherDevices &ways, int32_t current)
        : all(ways), index(current), before(ways.current()), found(current) {}

    void *begin(Operands &m) override {
      const std::vector<uint8_t> image = m.image(false);
      all.side_.copy(m.arena().data(), image.data(), image.size());
      expect_ok(streams_of(all.side_).set_current_device(all.side_.ctx, index),
                "set_current_device", m.what());
      return nullptr;
    }
    void called() override {
      if (found == index) found = all.current();
    }
  };
  int32_t current() const {
    int32_t index = 0;
    expect_ok(streams_of(side_).current_device(side_.ctx, &index), "current_device", "a thread");
    return index;
  }

  const Side &side_;
  std::vector<int32_t> others_;
};

}  // namespace

const octavo_streams &streams_of(const Side &side) {
  if (side.streams == nullptr) {
    not_offered(OCTAVO_STREAMS_ID);
    throw Skip("not offered: " OCTAVO_STREAMS_ID);
  }
  return *side.streams;
}

std::unique_ptr<Ways> on_streams(const Side &side) {
  return std::make_unique<OnStreams>(side);
}
std::unique_ptr<Ways> in_graphs(const Side &side) {
  return std::make_unique<InGraphs>(side);
}
std::unique_ptr<Ways> on_other_devices(const Side &side) {
  return std::make_unique<OnOtherDevices>(side);
}

}  // namespace octavo::conformance::kernels
