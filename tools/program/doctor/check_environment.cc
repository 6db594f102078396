#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tessera/distributed/launch/foreign_launcher.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/tensor/error.h"
#include "tessera/tools/program/doctor/checks.h"

namespace tessera::tools::doctor {
namespace {

std::string value_of(const Facts& facts, const char* name) {
  const auto found = facts.environment.find(name);
  return found == facts.environment.end() ? "" : found->second;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The threads of a rank are not OpenMP's, but libgomp, which oneDNN brings along, binds the main thread when a process starts,
// and the threads that it starts inherit its cores.
void check_thread_variables(const Facts& facts, const Plan& plan, std::vector<Finding>& findings) {
  Check check("thread variables", findings);
  const int threads = distributed::threads_of_cores(facts.cpu.usable, plan.ranks);
  for (const char* name : {"GOMP_CPU_AFFINITY", "OMP_PLACES", "OMP_PROC_BIND"}) {
    const std::string value = value_of(facts, name);
    if (value.empty() || lower(value) == "false") continue;
    check.warn(fmt::format("{}={} binds the threads of all ranks to the same cores", name, value),
               fmt::format("unset {}", name));
  }
  std::string idle;
  for (const char* name : {"OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_WAIT_POLICY",
                           "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    if (const std::string value = value_of(facts, name); !value.empty())
      idle += fmt::format("{}{}={}", idle.empty() ? "" : ", ", name, value);
  check.ok(idle.empty() ? "none is set"
                        : idle + fmt::format(" without effect: each rank has {} threads", threads));
}

void check_launcher(const Facts& facts, std::vector<Finding>& findings) {
  Check check("launcher", findings);
  try {
    const auto world = distributed::foreign_world(facts.environment, facts.parent);
    check.ok(world ? fmt::format("{} has started this process as rank {} of {}, and train joins it",
                                 world->launcher, world->rank, world->size)
                   : "no other launcher has started this process");
  } catch (const InvalidArgument& error) {
    const auto [text, remedy] = parted(error.what(), "; ");
    check.fail(text, remedy);
  }
}

}  // namespace

void check_environment(const Facts& facts, const Plan& plan, std::vector<Finding>& findings) {
  check_thread_variables(facts, plan, findings);
  check_launcher(facts, findings);
}

}  // namespace tessera::tools::doctor
