// A TCP port of this machine for the server of a program that a test starts.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace octavo::test {

// While it lives, the system gives its port to nobody else: it is bound, and does not listen. A
// server that sets SO_REUSEADDR, as all here do, binds it too.
class HeldPort {
 public:
  HeldPort() : file_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int yes = 1;
    setsockopt(file_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in a = {};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    if (bind(file_, reinterpret_cast<sockaddr *>(&a), size) != 0 ||
        getsockname(file_, reinterpret_cast<sockaddr *>(&a), &size) != 0)
      throw std::runtime_error("the system gives no port");
    text_ = std::to_string(ntohs(a.sin_port));
  }
  HeldPort(const HeldPort &) = delete;
  HeldPort &operator=(const HeldPort &) = delete;
  ~HeldPort() { close(file_); }

  const std::string &text() const { return text_; }
  // Takes the port itself, as another program would that has it.
  void occupy() const { listen(file_, 4); }

 private:
  int file_;
  std::string text_;
};

}  // namespace octavo::test
