#include "tessera/tests/distributed/launch/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace tessera::distributed {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

pid_t spawn(std::vector<std::string> words, std::vector<std::string> environment,
            const std::string& output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_CREAT | O_WRONLY | O_APPEND,
                                   0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, words[0].c_str(), &actions, nullptr, pointers(words).data(),
                                 pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(error == 0);
  return pid;
}

}  // namespace

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string numbered(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += fmt::format("line {}\n", i);
  return text;
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

Program::Program(const std::string& arguments, const std::string& through,
                 const std::string& program) {
  fs::create_directory(folder_ / "tmp");
  // The token identifies the processes of this run, whatever their parent is.
  std::istringstream line(
      fmt::format("{} {} {} --token={}", through, program, arguments, folder_name()));
  std::vector<std::string> words;
  for (std::string word; line >> word;) words.push_back(word);
  std::vector<std::string> environment = {"TMPDIR=" + (folder_ / "tmp")};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string(*entry).rfind("TMPDIR=", 0) != 0) environment.emplace_back(*entry);
  }
  start_ = Clock::now();
  pid_ = spawn(std::move(words), std::move(environment), output_path());
}

Program::~Program() {
  if (running_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

int Program::wait() {
  int status = 0;
  while (running_ && seconds_since(start_) < 30) {
    if (waitpid(pid_, &status, WNOHANG) == pid_) running_ = false;
    if (running_) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  INFO(output());
  REQUIRE_FALSE(running_);
  return status;
}

int Program::exit_code() {
  const int status = wait();
  INFO(output());
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

void Program::wait_for(const std::string& text) const {
  while (output().find(text) == std::string::npos && seconds() < 20)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE_THAT(output(), Contains(text));
}

pid_t Program::pid_of_rank(int rank) const {
  const std::string key = fmt::format("pid {} ", rank);
  wait_for(key);
  const std::string text = output();
  return std::stoi(text.substr(text.find(key) + key.size()));
}

int Program::processes() const {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    count += read_file(entry.path() / "cmdline").find(folder_name()) != std::string::npos;
  }
  return count;
}

void Program::check_nothing_left() const {
  for (int i = 0; i < 400 && processes() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(processes() == 0);
  CHECK_FALSE(left_files());
}

}  // namespace tessera::distributed
