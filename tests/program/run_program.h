// Runs the program `tessera` as a user would: as another process, of which tests see exit code and
// output.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace tessera::testing {

struct ProgramResult {
  int exit_code = 0;  // minus the signal's number when one ended it
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::map<std::string, std::string> environment{};  // added to this process's
  std::string input{};                               // what standard input gives
  bool terminal = false;  // standard output is a terminal; `out` is what it showed
  // Standard output is a pipe whose reader takes the first line and goes, as `| head -1` does.
  bool one_line = false;
  bool unread = false;     // standard output is a pipe whose reader has gone before the start
  std::string out_path{};  // what standard output is instead, such as /dev/full
  std::vector<std::string> through{};  // a command in front that becomes the program or starts it
};

// One run, alone in a process group of its own.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});
  // Kills what is left.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Waits for the program's own process; throws after a minute or two.
  ProgramResult wait();
  pid_t pid() const { return pid_; }
  // What it has written to standard output so far, where that is no terminal, pipe or file.
  std::string output() const;
  // The processes it started that are still there.
  std::vector<pid_t> children() const;
  // Its processes that are alive, itself included; children that moved to another group are found
  // too.
  std::vector<pid_t> alive() const;

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
  int pipe_ = -1;
  bool reaped_ = false;
  std::string folder_;
};

// False on a machine without pseudo-terminals (a bare container), where `terminal` cannot be had.
bool has_terminals();

// Starts and waits.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {});

std::vector<std::string> lines_of(const std::string& text);
// True when `holds()` became true within the time.
template <class Condition>
bool eventually(std::chrono::milliseconds time, const Condition& holds);
void sleep_a_little();

template <class Condition>
bool eventually(std::chrono::milliseconds time, const Condition& holds) {
  const auto deadline = std::chrono::steady_clock::now() + time;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    sleep_a_little();
  }
  return true;
}

}  // namespace tessera::testing
