#include "tessera/distributed/launch/spawn.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kRank = "TESSERA_LAUNCH_RANK";
constexpr const char* kSize = "TESSERA_LAUNCH_SIZE";
constexpr const char* kRanksPerNode = "TESSERA_LAUNCH_RANKS_PER_NODE";
constexpr const char* kCall = "TESSERA_LAUNCH_CALL";
constexpr const char* kFolder = "TESSERA_LAUNCH_FOLDER";
constexpr const char* kEndpoint = "TESSERA_LAUNCH_ENDPOINT";
constexpr const char* kAddress = "TESSERA_LAUNCH_ADDRESS";
constexpr const char* kRankSecret = "TESSERA_LAUNCH_SECRET";
constexpr const char* kJob = "TESSERA_LAUNCH_JOB";
constexpr std::array kNames = {kRank,     kSize,    kRanksPerNode, kCall, kFolder,
                               kEndpoint, kAddress, kRankSecret,   kJob};

std::optional<std::string> take(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  std::string copy = value;
  unsetenv(name);
  return copy;
}

std::optional<RankEnvironment> read_environment() {
  std::map<std::string, std::string> values;
  for (const char* name : kNames) {
    if (const std::optional<std::string> value = take(name)) values[name] = *value;
  }
  if (values.size() < kNames.size()) return std::nullopt;
  const auto number = [&values](const char* name) { return std::atoi(values[name].c_str()); };
  return RankEnvironment{.rank = number(kRank),
                         .size = number(kSize),
                         .ranks_per_node = number(kRanksPerNode),
                         .call = number(kCall),
                         .folder = values[kFolder],
                         .endpoint = values[kEndpoint],
                         .address = values[kAddress],
                         .credentials = {.secret = values[kRankSecret], .job = values[kJob]}};
}

bool is_for_launch_alone(std::string_view entry) {
  const auto is_of = [entry](std::string_view name) {
    return entry.starts_with(name) && entry.substr(name.size()).starts_with('=');
  };
  return is_of(kSecretVariable) || std::any_of(kNames.begin(), kNames.end(), is_of);
}

}  // namespace

const RankEnvironment* rank_environment() {
  static const std::optional<RankEnvironment> environment = read_environment();
  return environment ? &*environment : nullptr;
}

std::vector<std::string> environment_with(const RankEnvironment& environment) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!is_for_launch_alone(*entry)) out.emplace_back(*entry);
  }
  const auto add = [&out](const char* name, const auto& value) {
    out.push_back(fmt::format("{}={}", name, value));
  };
  add(kRank, environment.rank);
  add(kSize, environment.size);
  add(kRanksPerNode, environment.ranks_per_node);
  add(kCall, environment.call);
  add(kFolder, environment.folder);
  add(kEndpoint, environment.endpoint);
  add(kAddress, environment.address);
  add(kRankSecret, environment.credentials.secret);
  add(kJob, environment.credentials.job);
  return out;
}

namespace {

constexpr const char* kSelf = "/proc/self/exe";

// All that the child needs, made before it exists: until exec it shares our memory and may only
// make system calls.
struct ChildStart {
  char** argv;
  char** environment;
  ChildStreams streams;
  const cpu_set_t* cores;  // null: the parent's
  std::size_t cores_bytes;
  pid_t parent;
  sigset_t mask;
  int error = 0;
};

[[noreturn]] void start_child(ChildStart& start) {
  // A handler of ours must not run here: it would write to the parent's memory.
  struct sigaction by_default = {};
  by_default.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now = {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      sigaction(signal, &by_default, nullptr);
  }
  const bool has_streams = (start.streams.out < 0 || dup2(start.streams.out, STDOUT_FILENO) >= 0) &&
                           (start.streams.err < 0 || dup2(start.streams.err, STDERR_FILENO) >= 0);
  // It fails if the system has taken the cores away meanwhile: then the process has its parent's.
  if (start.cores != nullptr) sched_setaffinity(0, start.cores_bytes, start.cores);
  // The parent may have died before prctl: then nothing would ever kill this process.
  if (has_streams && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == start.parent) {
    sigprocmask(SIG_SETMASK, &start.mask, nullptr);
    execve(kSelf, start.argv, start.environment);
  }
  start.error = errno != 0 ? errno : ESRCH;
  _exit(127);
}

using CoreSet = std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)>;

// Null for no cores.
CoreSet core_set(const std::vector<int>& cores, std::size_t& bytes) {
  CoreSet set(nullptr, [](cpu_set_t* each) { CPU_FREE(each); });
  if (cores.empty()) return set;
  const auto count = static_cast<std::size_t>(*std::max_element(cores.begin(), cores.end())) + 1;
  set.reset(CPU_ALLOC(count));
  TESSERA_CHECK_AS(Error, set != nullptr, "launch", "no memory for a list of {} cores", count);
  bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set.get());
  for (const int core : cores) CPU_SET_S(static_cast<std::size_t>(core), bytes, set.get());
  return set;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

pid_t spawn_self(std::vector<std::string> arguments, std::vector<std::string> environment,
                 const ChildSetup& setup) {
  const std::vector<char*> argv = pointers(arguments), env = pointers(environment);
  std::size_t cores_bytes = 0;
  const CoreSet cores = core_set(setup.cores, cores_bytes);
  ChildStart start{.argv = const_cast<char**>(argv.data()),
                   .environment = const_cast<char**>(env.data()),
                   .streams = setup.streams,
                   .cores = cores.get(),
                   .cores_bytes = cores_bytes,
                   .parent = getpid(),
                   .mask = {},
                   .error = 0};
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &start.mask);
  const pid_t child = vfork();
  if (child == 0) start_child(start);
  const int error = child < 0 ? errno : start.error;
  // Untimed: it has ended, or is about to.
  if (child > 0 && error != 0) waitpid(child, nullptr, 0);
  pthread_sigmask(SIG_SETMASK, &start.mask, nullptr);
  TESSERA_CHECK_AS(Error, error == 0, "launch", "cannot start a rank process: {}{}",
                   std::strerror(error),
                   error == EAGAIN || error == ENOMEM
                       ? "; take fewer ranks, or raise the limit of processes (ulimit -u)"
                       : "");
  return child;
}

}  // namespace tessera::distributed
