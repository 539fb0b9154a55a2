// A record is one line: a mark, the nonce, the writer's process, the length, then JSON.
#include "record.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

namespace octavo::conformance {
namespace {

using nlohmann::json;

// Plugins that open files get the lowest free numbers; this one is out of their way.
int moved_up(int descriptor) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto top = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 4096));
  const int high = fcntl(descriptor, F_DUPFD_CLOEXEC, top - 64);
  if (high < 0) return descriptor;
  close(descriptor);
  return high;
}

std::string drawn_nonce() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    throw Failure(text("getrandom: ", std::strerror(errno)));
  std::string hex;
  for (const unsigned char byte : bytes) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  return hex;
}

std::string encoded(const Record &r) {
  json steps = json::array();
  for (const Step &s : r.result.steps) steps.push_back({s.name, s.passed});
  const json all = {{"check", r.check},
                    {"outcome", static_cast<int>(r.result.outcome)},
                    {"detail", r.result.detail},
                    {"steps", steps},
                    {"calling", r.calling},
                    {"place", r.place},
                    {"library", r.library},
                    {"messages", r.messages},
                    {"not_offered", r.not_offered}};
  return all.dump(-1, ' ', true, json::error_handler_t::replace);
}

Record decoded(const std::string &text) {
  const json all = json::parse(text);
  Record r;
  r.check = all.at("check");
  const int outcome = all.at("outcome");
  r.result.outcome = outcome == 0 ? Outcome::kPass : outcome == 2 ? Outcome::kSkip : Outcome::kFail;
  r.result.detail = all.at("detail");
  for (const json &s : all.at("steps")) r.result.steps.push_back({s.at(0), s.at(1)});
  r.calling = all.at("calling");
  r.place = all.at("place");
  r.library = all.at("library");
  r.messages = all.at("messages").get<std::vector<std::string>>();
  r.not_offered = all.at("not_offered").get<std::vector<std::string>>();
  return r;
}

}  // namespace

RecordPipe::RecordPipe() : nonce_(drawn_nonce()) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Failure(text("pipe2: ", std::strerror(errno)));
  reader_ = moved_up(ends[0]);
  writer_ = moved_up(ends[1]);
  fcntl(reader_, F_SETFL, O_NONBLOCK);
}

RecordPipe::~RecordPipe() {
  if (reader_ >= 0) close(reader_);
  if (writer_ >= 0) close(writer_);
}

void RecordPipe::keep_writer() {
  close(reader_);
  reader_ = -1;
}

void RecordPipe::keep_reader() {
  close(writer_);
  writer_ = -1;
}

bool RecordPipe::write(const Record &record) const {
  const std::string body = encoded(record);
  const std::string all = text("octavo ", nonce_, " ", getpid(), " ", body.size(), " ", body, "\n");
  for (size_t done = 0; done < all.size();) {
    const ssize_t wrote = ::write(writer_, all.data() + done, all.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    done += static_cast<size_t>(wrote);
  }
  return true;
}

bool RecordPipe::drain() {
  char part[4096];
  for (;;) {
    const ssize_t got = read(reader_, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got != 0;
    received_.append(part, static_cast<size_t>(got));
  }
}

bool RecordPipe::take(pid_t writer, const std::string &check, Record *record,
                      std::string *wrong) const {
  wrong->clear();
  if (received_.empty()) return false;
  std::istringstream in(received_);
  std::string mark, nonce;
  pid_t from = 0;
  size_t size = 0;
  in >> mark >> nonce >> from >> size;
  in.get();
  std::string body(in && size <= received_.size() ? size : 0, 0);
  in.read(body.data(), static_cast<std::streamsize>(body.size()));
  if (!in || mark != "octavo" || nonce != nonce_ || in.get() != '\n') {
    *wrong = text(received_.size(), " bytes that are no record came through the suite's pipe");
  } else if (from != writer || in.peek() != std::istringstream::traits_type::eof()) {
    *wrong = text("a second process, which the plugin forked, went on with the check");
  } else {
    *record = decoded(body);
    if (record->check == check) return true;
    *wrong = text("the record of check '", record->check, "' came instead");
  }
  return false;
}

}  // namespace octavo::conformance
