#pragma once

// Runs the program `tessera` in another process, as a user would; tests see exit code and output.

#include <sys/types.h>
#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace tessera::testing {

struct ProgramResult {
  int exit_code = 0;  // minus the signal's number if a signal ended it
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::map<std::string, std::string> environment{};  // added to this process's
  std::string input{};                               // standard input
  bool terminal = false;  // standard output is a terminal; `out` is its contents
  // Standard output is a pipe whose reader reads one line and exits, as `| head -1` does.
  bool one_line = false;
  bool unread = false;                 // standard output is a pipe without a reader
  std::string out_path{};              // standard output is this file, such as /dev/full
  std::vector<std::string> through{};  // a command in front that execs or starts the program
};

// One run in its own process group.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});
  // Kills the remaining processes.
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Waits for the program's own process; throws after one or two minutes.
  ProgramResult wait();
  pid_t pid() const { return pid_; }
  // The standard output so far, unless it is a terminal, a pipe or a file.
  std::string output() const;
  // The processes it started that still exist.
  std::vector<pid_t> children() const;
  // Its processes that are alive, including itself and children that moved to another group.
  std::vector<pid_t> alive() const;

 private:
  pid_t pid_ = -1;
  int terminal_ = -1;
  int pipe_ = -1;
  bool reaped_ = false;
  std::string folder_;
};

// False on a machine without pseudo-terminals (a minimal container), where `terminal` does not
// work.
bool has_terminals();

// Starts the program and waits.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {});

std::vector<std::string> lines_of(const std::string& text);
// The failures that standard error reports, one a line, without the last lines of the failed rank.
std::vector<std::string> failures_in(const std::string& err);
// True if `holds()` became true within the time.
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

// Text for tests of language models, and short runs on it.

// A folder of about forty short documents of simple sentences, created once.
std::string text_folder();

// `train MODEL --preset tiny` on that text, with more words.
std::vector<std::string> train_tiny(const std::string& model,
                                    const std::vector<std::string>& more = {});

// Runs it into a new folder and requires success.
struct TinyRun {
  ProgramResult result;
  std::string folder;

  std::string file(const std::string& name) const;
  // Lines of metrics.jsonl without fields that depend on time.
  std::vector<std::string> metrics() const;
  std::vector<double> losses() const;
};
TinyRun run_tiny(const std::string& model, const std::vector<std::string>& more = {},
                 const ProgramOptions& options = {});

// Records of an event file: 8 bytes of length, 4 of its checksum, the event, 4 of its checksum.
// Returns their number, or -1 if the file does not end with a complete one.
int count_events(const std::string& path);

}  // namespace tessera::testing
