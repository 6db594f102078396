#include "tessera/distributed/launch/spawn.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr const char* kSelf = "/proc/self/exe";

// All that the child needs, made before it exists: until exec it shares our memory and may only
// make system calls.
struct ChildStart {
  char** argv;
  char** environment;
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
  // The parent may have died before prctl: then nothing would ever kill this process.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == start.parent) {
    sigprocmask(SIG_SETMASK, &start.mask, nullptr);
    execve(kSelf, start.argv, start.environment);
  }
  start.error = errno != 0 ? errno : ESRCH;
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

pid_t spawn_self(std::vector<std::string> arguments, std::vector<std::string> environment) {
  const std::vector<char*> argv = pointers(arguments), env = pointers(environment);
  ChildStart start{.argv = const_cast<char**>(argv.data()),
                   .environment = const_cast<char**>(env.data()),
                   .parent = getpid(),
                   .mask = {},
                   .error = 0};
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &start.mask);
  const pid_t child = vfork();
  if (child == 0) start_child(start);
  const int error = child < 0 ? errno : start.error;
  if (child > 0 && error != 0) waitpid(child, nullptr, 0);  // it has ended, or is about to
  pthread_sigmask(SIG_SETMASK, &start.mask, nullptr);
  TESSERA_CHECK_AS(Error, error == 0, "launch", "cannot start a rank process: {}{}",
                   std::strerror(error),
                   error == EAGAIN || error == ENOMEM
                       ? "; take fewer ranks, or raise the limit of processes (ulimit -u)"
                       : "");
  return child;
}

}  // namespace tessera::distributed
