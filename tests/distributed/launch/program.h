// Runs of launch_program, or of another program that launches ranks, as a user starts them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "tessera/tests/support/temporary_folder.h"

namespace tessera::distributed {

double seconds_since(std::chrono::steady_clock::time_point start);
std::string read_file(const std::filesystem::path& path);
std::size_t count_of(const std::string& text, const std::string& part);
// "line 3\nline 4\n" for 3 and 5.
std::string numbered(int from, int to);

// One started program with a folder for its temporary files and output. It is stopped, and the
// folder removed, at destruction. Its functions assert, so they are for the main thread.
class Program {
 public:
  // `arguments` are words. `through`: a command in front that becomes the program, as "nsenter
  // ...". `program` takes an option --token.
  explicit Program(const std::string& arguments, const std::string& through = {},
                   const std::string& program = "tests/distributed/launch/launch_program");
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The wait status; kills and fails after 30 seconds.
  int wait();
  int exit_code();
  std::string output() const { return read_file(output_path()); }
  double seconds() const { return seconds_since(start_); }
  pid_t pid() const { return pid_; }

  // Waits until the output has `text`.
  void wait_for(const std::string& text) const;
  pid_t pid_of_rank(int rank) const;
  // Processes of this run that are alive, zombies excepted.
  int processes() const;
  bool left_files() const { return !std::filesystem::is_empty(folder_ / "tmp"); }
  void check_nothing_left() const;

 private:
  std::string output_path() const { return folder_ / "output"; }
  // Names the run, among all processes of the host.
  std::string folder_name() const {
    return std::filesystem::path(folder_.path()).filename().string();
  }

  testing::TemporaryFolder folder_;
  pid_t pid_ = -1;
  bool running_ = true;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tessera::distributed
