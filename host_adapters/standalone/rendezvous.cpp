// Rank 0 listens at the address that all of them have; each other rank says which one it is, and
// gets the letter when all have come.
#include "host_adapters/standalone/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "host_adapters/standalone/error.h"

namespace octavo::standalone {
namespace {

using Clock = std::chrono::steady_clock;
using Until = Clock::time_point;

// What a rank says first; another program says another thing.
struct Hello {
  std::array<char, 16> magic = {"octavo.ranks/1"};
  uint32_t world = 0, rank = 0;
};
struct Head {
  uint32_t is_error = 0, size = 0;
};
constexpr uint32_t kMostText = 1 << 16;

std::string where(const Place &p) {
  return p.address + ":" + std::to_string(p.port);
}

[[noreturn]] void fail(const Place &p, const std::string &expected, const std::string &found) {
  throw UserError(
      "rank " + std::to_string(p.rank) + " at " + where(p), expected, found,
      "start all ranks with the same MASTER_ADDR and MASTER_PORT, where rank 0 runs and no "
      "other program listens, and look for the messages of the others");
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket &&other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket &operator=(Socket &&other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Socket() {
    if (file_ >= 0) close(file_);
  }
  int file() const { return file_; }
  bool is_open() const { return file_ >= 0; }

  // Whether it was ready for `events` in time.
  bool wait(short events, Until until) const {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
      if (left.count() <= 0) return false;
      pollfd one = {file_, events, 0};
      const int ready = poll(&one, 1, static_cast<int>(left.count()));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }
  bool send(const void *data, size_t bytes, Until until) const {
    const auto *at = static_cast<const char *>(data);
    while (bytes > 0) {
      if (!wait(POLLOUT, until)) return false;
      const ssize_t done = ::send(file_, at, bytes, MSG_NOSIGNAL);
      if (done < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (done <= 0) return false;
      at += done;
      bytes -= static_cast<size_t>(done);
    }
    return true;
  }
  bool receive(void *data, size_t bytes, Until until) const {
    auto *at = static_cast<char *>(data);
    while (bytes > 0) {
      if (!wait(POLLIN, until)) return false;
      const ssize_t done = recv(file_, at, bytes, 0);
      if (done < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (done <= 0) return false;
      at += done;
      bytes -= static_cast<size_t>(done);
    }
    return true;
  }

 private:
  int file_ = -1;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const Place &p) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  const int error = getaddrinfo(p.address.c_str(), std::to_string(p.port).c_str(), &wanted, &found);
  if (error != 0) fail(p, "an address that can be resolved", gai_strerror(error));
  return {found, freeaddrinfo};
}

Socket open_socket(const addrinfo &a) {
  return Socket(socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol));
}

Socket listen_at(const Place &p) {
  const Addresses all = resolve(p);
  std::string reason = "no address";
  for (const addrinfo *a = all.get(); a != nullptr; a = a->ai_next) {
    Socket s = open_socket(*a);
    const int yes = 1;
    if (s.is_open()) setsockopt(s.file(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (s.is_open() && bind(s.file(), a->ai_addr, a->ai_addrlen) == 0 &&
        listen(s.file(), static_cast<int>(p.world)) == 0)
      return s;
    reason = std::strerror(errno);
  }
  fail(p, "an address of this machine with a free port", reason);
}

// Rank 0 may come later than the others.
Socket connect_to(const Place &p, Until until) {
  const Addresses all = resolve(p);
  std::string reason = "no address";
  while (Clock::now() < until) {
    for (const addrinfo *a = all.get(); a != nullptr; a = a->ai_next) {
      Socket s = open_socket(*a);
      if (!s.is_open()) continue;
      if (connect(s.file(), a->ai_addr, a->ai_addrlen) == 0) return s;
      int error = errno;
      socklen_t size = sizeof error;
      if (error == EINPROGRESS && s.wait(POLLOUT, until))
        getsockopt(s.file(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) return s;
      reason = std::strerror(error);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail(p, "rank 0 in time", reason);
}

void deliver(const Socket &to, const Letter &letter, Until until) {
  const Head head = {letter.is_error ? 1u : 0u, static_cast<uint32_t>(letter.text.size())};
  if (to.send(&head, sizeof head, until)) to.send(letter.text.data(), letter.text.size(), until);
}

Letter serve(const Place &p, const Letter &mine, Until until) {
  const Socket door = listen_at(p);
  std::vector<Socket> ranks(p.world);
  for (uint32_t present = 1; present < p.world;) {
    if (!door.wait(POLLIN, until))
      fail(p, std::to_string(p.world) + " ranks in time", std::to_string(present) + " of them");
    Socket guest(accept4(door.file(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    Hello hello;
    // One that says nothing within a second is none of ours.
    const Until soon = std::min(until, Clock::now() + std::chrono::seconds(1));
    if (!guest.is_open() || !guest.receive(&hello, sizeof hello, soon) ||
        hello.magic != Hello().magic)
      continue;
    if (hello.world == p.world && hello.rank > 0 && hello.rank < p.world &&
        !ranks[hello.rank].is_open()) {
      ranks[hello.rank] = std::move(guest);
      ++present;
      continue;
    }
    const Letter refusal = {
        true, "rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.world) +
                  ", where rank 0 expects each rank below " + std::to_string(p.world) + " once"};
    deliver(guest, refusal, until);
    for (const Socket &rank : ranks)
      if (rank.is_open()) deliver(rank, refusal, until);
    fail(p, "each rank below " + std::to_string(p.world) + " once", refusal.text);
  }
  for (const Socket &rank : ranks)
    if (rank.is_open()) deliver(rank, mine, until);
  return mine;
}

Letter ask(const Place &p, Until until) {
  const Socket root = connect_to(p, until);
  Hello hello;
  hello.world = p.world;
  hello.rank = p.rank;
  Head head;
  Letter letter;
  if (!root.send(&hello, sizeof hello, until) || !root.receive(&head, sizeof head, until))
    fail(p, "an answer of rank 0 in time", "none");
  if (head.size > kMostText) fail(p, "an answer of rank 0", "another program's");
  letter.is_error = head.is_error != 0;
  letter.text.resize(head.size);
  if (!root.receive(letter.text.data(), letter.text.size(), until))
    fail(p, "an answer of rank 0 in time", "a part of it");
  return letter;
}

int64_t number_of(const char *name, int64_t low, int64_t high, const std::string &origin) {
  const char *text = std::getenv(name);
  char *end = nullptr;
  const int64_t value = text == nullptr ? 0 : std::strtoll(text, &end, 10);
  const bool fits = text != nullptr && *text != 0 && *end == 0 && value >= low && value <= high;
  expect(fits, std::string(name) + ", for engine \"nccl\" (" + origin + ")",
         "a whole number from " + std::to_string(low) + " to " + std::to_string(high) +
             ", as torchrun sets it",
         text == nullptr ? "no such variable" : "\"" + std::string(text) + "\"",
         "start it as in: torchrun --no-python --nproc-per-node 4 -- train_gpt ..., or choose "
         "engine = "
         "\"threads\"");
  return value;
}

}  // namespace

Place place_of_torchrun(const std::string &origin) {
  Place p;
  p.world = static_cast<uint32_t>(number_of("WORLD_SIZE", 1, 4096, origin));
  p.rank = static_cast<uint32_t>(number_of("RANK", 0, p.world - 1, origin));
  p.local_rank = static_cast<int>(number_of("LOCAL_RANK", 0, 4095, origin));
  p.port = static_cast<uint16_t>(number_of("MASTER_PORT", 1, 65534, origin));
  const char *address = std::getenv("MASTER_ADDR"),
             *store = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  p.address = address == nullptr || *address == 0 ? "127.0.0.1" : address;
  if (store != nullptr && std::strcmp(store, "True") == 0) ++p.port;
  return p;
}

Letter letter_of_root(const Place &place, const Letter &mine, std::chrono::seconds deadline) {
  const Until until = Clock::now() + deadline;
  if (place.world == 1) return mine;
  return place.rank == 0 ? serve(place, mine, until) : ask(place, until);
}

}  // namespace octavo::standalone
