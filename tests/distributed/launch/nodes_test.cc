// Runs of launch_program on several nodes: beside one another on this host over loopback, and in
// network namespaces that stand for hosts.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "tessera/distributed/store/tcp_store.h"
#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

void sleep_ms(int count) { std::this_thread::sleep_for(std::chrono::milliseconds(count)); }

// A port that is not in use.
int free_port() { return TcpStoreServer({.at = {.host = "127.0.0.1"}}).endpoint().port; }

// The nodes of a run, all on this host or each in a namespace of its own.
class Nodes {
 public:
  Nodes(std::string endpoint, int nnodes) : endpoint_(std::move(endpoint)), nnodes_(nnodes) {}
  explicit Nodes(int nnodes = 2) : Nodes(fmt::format("127.0.0.1:{}", free_port()), nnodes) {}

  std::unique_ptr<Program> start(int node, const std::string& arguments,
                                 const std::string& through = {}) const {
    return std::make_unique<Program>(fmt::format("{} --nnodes {} --node-rank {} --rdzv-endpoint {}",
                                                 arguments, nnodes_, node, endpoint_),
                                     through);
  }
  std::vector<std::unique_ptr<Program>> start_all(const std::string& arguments) const {
    std::vector<std::unique_ptr<Program>> programs;
    for (int node = 0; node < nnodes_; ++node) programs.push_back(start(node, arguments));
    return programs;
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::string endpoint_;
  int nnodes_;
};

void check_failure(Program& program, const std::string& text) {
  CHECK(program.exit_code() == 1);
  CHECK_THAT(program.output(), Contains("error: " + text));
  CHECK(count_of(program.output(), "error: ") == 1);
  program.check_nothing_left();
}

bool run(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

// Two hosts with a cable between them: network namespaces, each held by a process that sleeps.
class TwoHosts {
 public:
  TwoHosts() {
    for (pid_t& holder : holders_) {
      holder = fork();
      if (holder == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("unshare", "unshare", "--net", "sleep", "600", nullptr);
        _exit(127);
      }
    }
    for (int i = 0; i < 2000 && !separated(); ++i) sleep_ms(1);
    ready_ = separated() &&
             run(fmt::format("ip link add tessera0 netns {} type veth peer name tessera1 netns {}",
                             holders_[0], holders_[1]));
    for (int host = 0; host < 2 && ready_; ++host) {
      ready_ = run(in(host, "ip link set lo up")) &&
               run(in(host, fmt::format("ip addr add {}/24 dev tessera{}", address(host), host))) &&
               run(in(host, fmt::format("ip link set tessera{} up", host)));
    }
  }
  ~TwoHosts() {
    for (pid_t holder : holders_) {
      kill(holder, SIGKILL);
      waitpid(holder, nullptr, 0);
    }
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool ready() const { return ready_; }
  std::string through(int host) const {
    return fmt::format("nsenter --net=/proc/{}/ns/net", holders_[host]);
  }
  std::string in(int host, const std::string& command) const {
    return through(host) + " " + command;
  }
  static std::string address(int host) { return fmt::format("10.77.5.{}", host + 1); }

 private:
  // Whether both have left our namespace.
  bool separated() const {
    for (pid_t holder : holders_) {
      const auto of = [](const std::string& process) {
        std::error_code none;
        return std::filesystem::read_symlink("/proc/" + process + "/ns/net", none).string();
      };
      if (of(std::to_string(holder)).empty() || of(std::to_string(holder)) == of("self"))
        return false;
    }
    return true;
  }

  pid_t holders_[2] = {};
  bool ready_ = false;
};

// Null, and the case skipped, where there is no right to make namespaces.
std::unique_ptr<TwoHosts> two_hosts() {
  auto hosts = std::make_unique<TwoHosts>();
  setenv(kSecretVariable, "the secret of this test", 1);  // programs inherit it
  if (hosts->ready()) return hosts;
  tessera::testing::skip(
      "needs network namespaces: the tools unshare, nsenter and ip, and the right to use them");
  return nullptr;
}

}  // namespace

TEST_CASE("nodes agree with threads bit for bit", "[nodes]") {
  Program threads("bits --launch=threads --ranks=6");
  CHECK(threads.exit_code() == 0);
  const int nnodes = GENERATE(2, 3);
  const auto programs = Nodes(nnodes).start_all(fmt::format("bits --ranks {}", 6 / nnodes));
  for (const auto& program : programs) {
    CHECK(program->exit_code() == 0);
    program->check_nothing_left();
  }
  CHECK_THAT(threads.output(), Contains("hash"));
  CHECK(programs[0]->output() == threads.output());
  CHECK(programs[1]->output() == "hello\nlaunch returned 0\n");
}

TEST_CASE("a rank knows its node and its place there", "[nodes]") {
  const auto programs = Nodes(2).start_all("layout --ranks 3");
  for (const auto& program : programs) CHECK(program->exit_code() == 0);
  CHECK_THAT(programs[0]->output(), Contains("rank 2 of 6: 2 of 3 on node 0 of 2\n"));
  CHECK_THAT(programs[1]->output(), Contains("rank 3 of 6: 0 of 3 on node 1 of 2\n") &&
                                        Contains("rank 5 of 6: 2 of 3 on node 1 of 2\n"));
  Program alone("layout --ranks 2");
  CHECK(alone.exit_code() == 0);
  CHECK_THAT(alone.output(), Contains("rank 1 of 2: 1 of 2 on node 0 of 1\n"));
}

TEST_CASE("a program may launch on nodes several times", "[nodes]") {
  for (const auto& program : Nodes(2).start_all("twice --ranks 2")) {
    CHECK(program->exit_code() == 0);
    program->check_nothing_left();
  }
}

TEST_CASE("an exception on one node ends all, and is told with its node", "[nodes]") {
  const auto programs = Nodes(2).start_all("throws --ranks 2");
  check_failure(*programs[0], "rank 1: the data ran out\n");
  check_failure(*programs[1], "on node 0 (127.0.0.1): rank 1: the data ran out\n");
  for (const auto& program : programs) CHECK(program->seconds() < 6);
}

TEST_CASE("a rank killed on one node is named on all", "[nodes]") {
  const auto programs = Nodes(2).start_all("kills_itself --ranks 2");
  const std::string what =
      "rank 2 was killed by signal 9 (Killed) while rank 3 waited for it in all_gather #11 "
      "(layers.0)\n";
  check_failure(*programs[0], "on node 1 (127.0.0.1): " + what);
  check_failure(*programs[1], what);
  for (const auto& program : programs) CHECK(program->seconds() < 6);
}

TEST_CASE("ranks that notice nothing are stopped when another node fails", "[nodes]") {
  const auto programs = Nodes(2).start_all("hangs --ranks 2");
  check_failure(*programs[0], "rank 0: no more\n");
  check_failure(*programs[1], "on node 0 (127.0.0.1): rank 0: no more\n");
  for (const auto& program : programs) CHECK(program->seconds() < 8);
}

TEST_CASE("a deadline between nodes names the rank that is late", "[nodes]") {
  const auto programs = Nodes(2).start_all("is_late --ranks 2 --timeout 1");
  const std::string what = "timed out after 1 s: rank 1 did not arrive";
  for (const auto& program : programs) {
    CHECK(program->exit_code() == 1);
    CHECK_THAT(program->output(), Contains(what));
    CHECK(program->seconds() < 9);
    program->check_nothing_left();
  }
}

TEST_CASE("a launcher that is killed takes its node and the others with it", "[nodes]") {
  const int killed = GENERATE(0, 1);
  const auto programs = Nodes(2).start_all("runs_on --ranks 2");
  for (int rank : {0, 1}) programs[0]->pid_of_rank(rank);
  for (int rank : {2, 3}) programs[1]->pid_of_rank(rank);
  const auto start = Clock::now();
  kill(programs[static_cast<std::size_t>(killed)]->pid(), SIGKILL);
  check_failure(*programs[static_cast<std::size_t>(1 - killed)],
                killed == 1 ? "node 1 (127.0.0.1) is gone: its launcher ended"
                            : "node 0 cannot be reached any more: ");
  CHECK(seconds_since(start) < 6);
}

TEST_CASE("a signal to one launcher ends all nodes", "[nodes]") {
  const auto programs = Nodes(2).start_all("runs_on --ranks 2");
  for (int rank : {2, 3}) programs[1]->pid_of_rank(rank);
  kill(programs[1]->pid(), SIGINT);
  const int status = programs[1]->wait();
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
  check_failure(*programs[0], "on node 1 (127.0.0.1): ");
  programs[1]->check_nothing_left();
}

TEST_CASE("a signal to one launcher is heeded on all nodes", "[nodes]") {
  const auto programs = Nodes(2).start_all("stops --ranks 2");
  for (int rank : {0, 1}) programs[0]->pid_of_rank(rank);
  for (int rank : {2, 3}) programs[1]->pid_of_rank(rank);
  kill(programs[1]->pid(), SIGTERM);
  for (const auto& program : programs) {
    CHECK(program->exit_code() == 128 + SIGTERM);
    CHECK(count_of(program->output(), " stops for 15 after ") == 2);
    CHECK(count_of(program->output(), "error: ") == 0);
  }
}

TEST_CASE("nodes wait for one that is late", "[nodes]") {
  const int first = GENERATE(0, 1);
  const Nodes nodes(2);
  const auto early = nodes.start(first, "ok --ranks 1 --timeout 20");
  sleep_ms(700);
  const auto late = nodes.start(1 - first, "ok --ranks 1 --timeout 20");
  CHECK(early->exit_code() == 0);
  CHECK(late->exit_code() == 0);
  CHECK(late->seconds() < 5);
}

TEST_CASE("a node that does not come is named at the deadline", "[nodes]") {
  const Nodes nodes(3);
  const auto zero = nodes.start(0, "ok --ranks 2 --timeout 0.8");
  const auto two = nodes.start(2, "ok --ranks 2 --timeout 0.8");
  CHECK(zero->exit_code() == 2);
  CHECK_THAT(zero->output(), Contains("error: [launch] node 1 of 3 did not come to " +
                                      nodes.endpoint() + " within 0.8 s; start the program there"));
  CHECK(two->exit_code() == 2);
  const auto one = nodes.start(1, "ok --ranks 2 --timeout 0.5");
  CHECK(one->exit_code() == 2);
  CHECK_THAT(one->output(), Contains("error: [rendezvous] there was no reply from node 1 at " +
                                     nodes.endpoint() + " within 0.5 s (Connection refused)"));
  zero->check_nothing_left();
  one->check_nothing_left();
}

TEST_CASE("a node that goes while others are awaited ends the waiting", "[nodes]") {
  const Nodes nodes(3);
  const auto zero = nodes.start(0, "ok --timeout 20");
  const auto one = nodes.start(1, "ok --timeout 20");
  sleep_ms(500);
  kill(one->pid(), SIGINT);
  CHECK(WIFSIGNALED(one->wait()));
  CHECK(zero->exit_code() == 2);
  CHECK(zero->seconds() < 10);
  CHECK_THAT(zero->output(), Contains("not all nodes have come, and node 1 (127.0.0.1) is gone"));
}

TEST_CASE("a second run at the port of one that assembles is told so", "[nodes]") {
  const Nodes nodes(2);
  const auto zero = nodes.start(0, "ok --ranks 2 --timeout 20");
  while (connect_to(parse_endpoint("", nodes.endpoint(), 0), std::chrono::seconds(1)).socket.fd() <
         0)
    sleep_ms(5);
  const auto second = nodes.start(0, "ok --ranks 2 --timeout 20");
  CHECK(second->exit_code() == 2);
  CHECK_THAT(second->output(), Contains("cannot listen at " + nodes.endpoint() +
                                        ": Address already in use; another run may use it"));
  const auto other = nodes.start(1, "ok --ranks 3 --timeout 20");
  CHECK(other->exit_code() == 2);
  CHECK_THAT(other->output(),
             Contains("node 1 was refused at " + nodes.endpoint() +
                      ": it belongs to a run of 2 nodes of 3 ranks, launch call 1, but here is one "
                      "of 2 nodes of 2 ranks, launch call 1"));
  const auto one = nodes.start(1, "ok --ranks 2 --timeout 20");
  CHECK(one->exit_code() == 0);
  CHECK(zero->exit_code() == 0);
}

TEST_CASE("two nodes with one number are told so", "[nodes]") {
  const Nodes nodes(3);
  const auto zero = nodes.start(0, "ok --ranks 1 --timeout 20");
  const auto one = nodes.start(1, "ok --ranks 1 --timeout 20");
  sleep_ms(500);
  const auto again = nodes.start(1, "ok --ranks 1 --timeout 20");
  const auto two = nodes.start(2, "ok --ranks 1 --timeout 20");
  const int first = one->exit_code(), second = again->exit_code();
  CHECK(std::min(first, second) == 0);
  CHECK(std::max(first, second) == 2);
  CHECK_THAT(one->output() + again->output(),
             Contains("node 1 has come already, from 127.0.0.1; give each node a --node-rank"));
  CHECK(zero->exit_code() == 0);
  CHECK(two->exit_code() == 0);
}

TEST_CASE("a port is free again when its run has assembled", "[nodes]") {
  const Nodes nodes(2);
  const auto first = nodes.start_all("runs_on --ranks 1");
  first[0]->pid_of_rank(0);
  first[1]->pid_of_rank(1);
  for (const auto& program : nodes.start_all("ok --ranks 1")) CHECK(program->exit_code() == 0);
  CHECK(first[0]->processes() == 2);  // launcher and rank
}

TEST_CASE("hosts: a run over two of them", "[hosts]") {
  const auto hosts = two_hosts();
  if (!hosts) return;
  const Nodes nodes(TwoHosts::address(0), 2);  // with the default port
  Program threads("bits --launch=threads --ranks=4");
  const auto zero = nodes.start(0, "bits --ranks 2", hosts->through(0));
  const auto one = nodes.start(1, "bits --ranks 2", hosts->through(1));
  CHECK(zero->exit_code() == 0);
  CHECK(one->exit_code() == 0);
  CHECK(threads.exit_code() == 0);
  CHECK_THAT(threads.output(), Contains("hash"));
  CHECK(zero->output() == threads.output());
}

TEST_CASE("hosts: a rank killed on the other one", "[hosts]") {
  const auto hosts = two_hosts();
  if (!hosts) return;
  const Nodes nodes(TwoHosts::address(0) + ":5555", 2);
  const auto zero = nodes.start(0, "runs_on --ranks 2", hosts->through(0));
  const auto one = nodes.start(1, "runs_on --ranks 2", hosts->through(1));
  for (int rank : {0, 1}) zero->pid_of_rank(rank);
  one->pid_of_rank(3);
  const auto start = Clock::now();
  kill(one->pid_of_rank(2), SIGKILL);
  check_failure(*one, "rank 2 was killed by signal 9 (Killed) ");
  check_failure(*zero, "on node 1 (10.77.5.2): rank 2 was killed by signal 9 (Killed) ");
  CHECK(seconds_since(start) < 6);
}

TEST_CASE("hosts: the cable is pulled", "[hosts]") {
  const auto hosts = two_hosts();
  if (!hosts) return;
  const Nodes nodes(TwoHosts::address(0) + ":5555", 2);
  const auto zero = nodes.start(0, "runs_on --ranks 1", hosts->through(0));
  const auto one = nodes.start(1, "runs_on --ranks 1", hosts->through(1));
  zero->pid_of_rank(0);
  one->pid_of_rank(1);
  const auto start = Clock::now();
  REQUIRE(run(hosts->in(1, "ip link set tessera1 down")));
  check_failure(*zero, "node 1 (10.77.5.2) is gone: its launcher ended or cannot be reached");
  check_failure(*one, "node 0 cannot be reached any more: ");
  CHECK(seconds_since(start) < 15);
}

TEST_CASE("hosts: a wrong rendezvous address", "[hosts]") {
  const auto hosts = two_hosts();
  if (!hosts) return;
  const Nodes nodes("10.77.5.99:5555", 2);
  const auto zero = nodes.start(0, "ok --timeout 1", hosts->through(0));
  const auto one = nodes.start(1, "ok --timeout 1", hosts->through(1));
  CHECK(zero->exit_code() == 2);
  CHECK_THAT(zero->output(),
             Contains("cannot listen at 10.77.5.99:5555: ") &&
                 Contains("it is no address of this host, where node 0 has to run"));
  CHECK(one->exit_code() == 2);
  CHECK(one->seconds() < 8);
  CHECK_THAT(one->output(),
             Contains("there was no reply from node 1 at 10.77.5.99:5555 within 1 s"));
}

TEST_CASE("hosts: the address that ranks listen on", "[hosts]") {
  const auto hosts = two_hosts();
  if (!hosts) return;
  const Nodes nodes(TwoHosts::address(0) + ":5555", 2);
  const std::string named = GENERATE("tessera1", "10.77.5.2", "lo", "10.77.5.1");
  const auto zero = nodes.start(0, "ok --ranks 1 --timeout 10", hosts->through(0));
  const auto one =
      nodes.start(1, "ok --ranks 1 --timeout 10 --local-addr " + named, hosts->through(1));
  const bool good = named == "tessera1" || named == "10.77.5.2";
  CAPTURE(named);
  CHECK(one->exit_code() == (good ? 0 : 2));
  if (good) CHECK(zero->exit_code() == 0);
  if (!good) {  // node 0 learns of it before or after it starts its ranks
    CHECK(zero->exit_code() != 0);
    CHECK_THAT(zero->output(), Contains("node 1 (10.77.5.2) is gone"));
  }
  if (named == "lo") {
    CHECK_THAT(one->output(), Contains("the ranks of node 1 would listen at 127.0.0.1, where node "
                                       "0 at 10.77.5.1 cannot reach them"));
  }
  if (named == "10.77.5.1")
    CHECK_THAT(one->output(), Contains("--local-addr 10.77.5.1 is no address of this host"));
}

}  // namespace tessera::distributed
