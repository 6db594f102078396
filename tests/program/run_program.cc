#include "tessera/tests/program/run_program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include <pty.h>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tessera/tests/models/data/test_data.h"

namespace tessera::testing {
namespace {

constexpr auto kLongest = std::chrono::seconds(150);

std::string program_path() {
  const char* path = std::getenv("TESSERA_PROGRAM");
  if (path == nullptr)
    throw std::runtime_error("TESSERA_PROGRAM does not say where the program is");
  return std::filesystem::absolute(path).string();
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& added) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!added.contains(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : added) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

struct Process {
  pid_t pid;
  pid_t parent;
  pid_t group;
};

// All running processes of the machine, without zombies.
std::vector<Process> running_processes() {
  std::vector<Process> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = read_file(entry.path() / "stat");
    const std::size_t end_of_name = stat.rfind(')');
    if (end_of_name == std::string::npos) continue;
    std::istringstream rest(stat.substr(end_of_name + 1));
    char state = 0;
    Process process{.pid = static_cast<pid_t>(std::stoi(name)), .parent = 0, .group = 0};
    rest >> state >> process.parent >> process.group;
    if (state != 'Z' && state != 'X') found.push_back(process);
  }
  return found;
}

// The terminal's output since the last call.
std::string read_available(int terminal) {
  std::string text;
  char piece[4096];
  for (ssize_t have = 0; (have = read(terminal, piece, sizeof(piece))) > 0;)
    text.append(piece, static_cast<std::size_t>(have));
  return text;
}

}  // namespace

bool has_terminals() {
  int terminal = -1;
  int slave = -1;
  if (openpty(&terminal, &slave, nullptr, nullptr, nullptr) != 0) return false;
  close(slave);
  close(terminal);
  return true;
}

Program::Program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  static std::atomic<int> runs{0};
  folder_ = fresh_folder("run" + std::to_string(++runs));
  const std::string path = program_path();
  std::vector<std::string> words = options.through;
  words.push_back(path);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = environment_with(options.environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  write_file(folder_ + "/in", options.input);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, (folder_ + "/in").c_str(), O_RDONLY, 0);
  int slave = -1;
  if (options.terminal) {
    if (openpty(&terminal_, &slave, nullptr, nullptr, nullptr) != 0)
      throw std::runtime_error("no terminal");
    fcntl(terminal_, F_SETFL, O_NONBLOCK);
    fcntl(terminal_, F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_adddup2(&actions, slave, STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, slave);
  } else if (options.one_line || options.unread) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    pipe_ = ends[0];
    slave = ends[1];
    if (options.unread) close(std::exchange(pipe_, -1));
    posix_spawn_file_actions_adddup2(&actions, slave, STDOUT_FILENO);
  } else {
    const std::string out = options.out_path.empty() ? folder_ + "/out" : options.out_path;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_CREAT | O_WRONLY,
                                     0600);
  }
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_ + "/err").c_str(),
                                   O_CREAT | O_WRONLY, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&pid_, words.front().c_str(), &actions, &attributes,
                                 pointers(words).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (slave >= 0) close(slave);
  if (error != 0) throw std::runtime_error("cannot start " + path);
}

Program::~Program() {
  for (const pid_t pid : alive()) kill(pid, SIGKILL);
  if (!reaped_) waitpid(pid_, nullptr, 0);
  if (terminal_ >= 0) close(terminal_);
  if (pipe_ >= 0) close(pipe_);
}

ProgramResult Program::wait() {
  ProgramResult result;
  if (pipe_ >= 0) {
    for (char byte = 0; byte != '\n' && read(pipe_, &byte, 1) == 1;) result.out += byte;
    close(pipe_);
    pipe_ = -1;
  }
  int status = 0;
  const bool ended = eventually(kLongest, [&] {
    if (terminal_ >= 0) result.out += read_available(terminal_);
    return waitpid(pid_, &status, WNOHANG) == pid_;
  });
  if (!ended) throw std::runtime_error("the program did not end: " + read_file(folder_ + "/err"));
  reaped_ = true;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (terminal_ >= 0) result.out += read_available(terminal_);
  if (const std::string out = folder_ + "/out"; std::filesystem::exists(out))
    result.out += read_file(out);
  result.err = read_file(folder_ + "/err");
  return result;
}

std::string Program::output() const { return read_file(folder_ + "/out"); }

std::vector<pid_t> Program::children() const {
  std::vector<pid_t> found;
  for (const Process& process : running_processes())
    if (process.parent == pid_) found.push_back(process.pid);
  return found;
}

std::vector<pid_t> Program::alive() const {
  std::vector<pid_t> found;
  for (const Process& process : running_processes())
    if (process.pid == pid_ || process.parent == pid_ || process.group == pid_)
      found.push_back(process.pid);
  return found;
}

ProgramResult run_program(const std::vector<std::string>& arguments,
                          const ProgramOptions& options) {
  return Program(arguments, options).wait();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> failures_in(const std::string& err) {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(err))
    if (line.starts_with("tessera: ")) found.push_back(line);
  return found;
}

void sleep_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

std::string text_folder() {
  static const std::string folder = [] {
    const std::string made = fresh_folder("text");
    const std::vector<std::string> who = {"the cat", "a dog", "the old man", "my sister", "a bird"};
    const std::vector<std::string> does = {"sees", "likes", "finds", "follows", "draws"};
    std::size_t draw = 1;
    const auto one_of = [&](const std::vector<std::string>& words) {
      draw = draw * 1103515245 + 12345;
      return words[draw / 65536 % words.size()];
    };
    for (int document = 0; document < 40; ++document) {
      std::string text;
      for (int sentence = 0; sentence < 12; ++sentence)
        text += one_of(who) + " " + one_of(does) + " " + one_of(who) + ".\n";
      write_file(made + "/" + std::to_string(document) + ".txt", text);
    }
    return made;
  }();
  return folder;
}

std::vector<std::string> train_tiny(const std::string& model,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> words = {"train",  model,         "--preset",        "tiny",
                                    "--data", text_folder(), "--sample-tokens", "20"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TinyRun run_tiny(const std::string& model, const std::vector<std::string>& more,
                 const ProgramOptions& options) {
  static int runs = 0;
  TinyRun made{.result = {}, .folder = fresh_folder("tiny" + std::to_string(++runs))};
  std::vector<std::string> words = train_tiny(model, {"--out", made.folder});
  words.insert(words.end(), more.begin(), more.end());
  made.result = run_program(words, options);
  INFO("standard error: " << made.result.err);
  REQUIRE(made.result.exit_code == 0);
  return made;
}

std::string TinyRun::file(const std::string& name) const { return read_file(folder + "/" + name); }

std::vector<std::string> TinyRun::metrics() const {
  static const std::regex clock(R"re("(step_ms|tokens_per_s)":[^,]*,)re");
  std::vector<std::string> lines;
  for (const std::string& line : lines_of(file("metrics.jsonl")))
    lines.push_back(std::regex_replace(line, clock, ""));
  return lines;
}

std::vector<double> TinyRun::losses() const {
  std::vector<double> losses;
  for (const std::string& line : metrics())
    if (const auto json = nlohmann::json::parse(line); json.contains("loss"))
      losses.push_back(json["loss"]);
  return losses;
}

int count_events(const std::string& path) {
  const std::string bytes = read_file(path);
  int count = 0;
  for (std::size_t at = 0; at < bytes.size(); ++count) {
    std::uint64_t length = 0;
    if (at + sizeof(length) > bytes.size()) return -1;
    std::memcpy(&length, bytes.data() + at, sizeof(length));
    at += length + 16;
    if (at > bytes.size()) return -1;
  }
  return count;
}

}  // namespace tessera::testing
