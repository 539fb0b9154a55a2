// The completion record of a check, and the pipe that it travels through.
//
// A check is passed by this record and by nothing else. The pipe is opened, and the nonce drawn,
// before the plugin is loaded; the record carries both the nonce and the process that wrote it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "conformance.h"

namespace octavo::conformance {

struct Record {
  std::string check;
  Result result;
  std::string calling;                        // the last call into the plugin
  std::string place;                          // " (cuda:0, kernels cuda)"; empty on the CPU
  std::string library;                        // the plugin's file
  std::vector<std::string> messages;          // what liboctavo and the plugin reported
  std::vector<std::string> not_offered = {};  // calls and formats that kernels leave out
  double seconds = 0;
};

class RecordPipe {
 public:
  RecordPipe();
  ~RecordPipe();
  RecordPipe(const RecordPipe &) = delete;
  RecordPipe &operator=(const RecordPipe &) = delete;

  // In the process of the check.
  void keep_writer();
  bool write(const Record &record) const;  // false: errno says why
  // In the suite's process.
  void keep_reader();
  int reader() const { return reader_; }
  bool drain();  // false: every writer is gone
  // The record that process `writer` wrote; else nothing, and `wrong` says what came instead.
  bool take(pid_t writer, const std::string &check, Record *record, std::string *wrong) const;

 private:
  int reader_ = -1, writer_ = -1;
  std::string nonce_, received_;
};

}  // namespace octavo::conformance
