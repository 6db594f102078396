// Whole runs of launch_program, as threads and as processes: what is printed, how it exits, how
// fast, and what is left.
#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tessera/distributed/launch/launch.h"
#include "tessera/tensor/error.h"
#include "tessera/tests/distributed/launch/program.h"
#include "tessera/tests/support/test_main.h"

namespace tessera::distributed {
namespace {

using Catch::Matchers::Contains;
using Clock = std::chrono::steady_clock;

// Sends the signal when every rank has printed that it handles one.
void signal_all_heeding(Program& program, int ranks, int signal, pid_t to) {
  for (int rank = 0; rank < ranks; ++rank) program.pid_of_rank(rank);
  kill(to, signal);
}

}  // namespace

TEST_CASE("ranks run, end, and leave nothing", "[launch]") {
  const std::string mode = GENERATE("threads", "processes");
  const int ranks = GENERATE(1, 2, 5);
  Program program(fmt::format("ok --launch {} --ranks {}", mode, ranks));
  CHECK(program.exit_code() == 0);
  CHECK(count_of(program.output(), fmt::format("of {} is done\n", ranks)) ==
        static_cast<std::size_t>(ranks));
  CHECK(count_of(program.output(), "hello\n") == 1);
  CHECK(count_of(program.output(), "launch returned 0\n") == 1);
  program.check_nothing_left();
}

TEST_CASE("threads and processes agree bit for bit", "[launch]") {
  for (int ranks : {2, 3, 5}) {
    Program threads(fmt::format("bits --launch=threads --ranks={}", ranks));
    Program processes(fmt::format("bits --launch=processes --ranks={}", ranks));
    CHECK(threads.exit_code() == 0);
    CHECK(processes.exit_code() == 0);
    CHECK_THAT(threads.output(), Contains("hash"));
    CHECK(threads.output() == processes.output());
  }
}

TEST_CASE("an exception on one rank ends the run and is what is told", "[launch]") {
  const std::string mode = GENERATE("threads", "processes");
  Program program(fmt::format("throws --launch {} --ranks 4", mode));
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 5);
  CHECK_THAT(program.output(), Contains("error: rank 1: the data ran out\n"));
  CHECK(count_of(program.output(), "error: ") == 1);
  program.check_nothing_left();
}

TEST_CASE("a rank killed by itself is named with the collective that waited for it", "[launch]") {
  Program program("kills_itself --ranks 4");
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 5);
  CHECK_THAT(program.output(), Contains("error: rank 2 was killed by signal 9 (Killed) while ranks "
                                        "0, 1, 3 waited for it in all_gather #11 (layers.0)\n"));
  program.check_nothing_left();
}

TEST_CASE("a rank's lines arrive through a pipe when they are printed", "[launch]") {
  Program program("prints_and_dies --ranks 2");
  CHECK(program.exit_code() == 1);
  CHECK_THAT(program.output(), Catch::StartsWith("hello\nthe last line of rank 1\n"));
}

TEST_CASE("kill -9 from outside, at any moment", "[launch]") {
  const int delay_ms = GENERATE(0, 7, 40);
  Program program("runs_on --ranks 4");
  const pid_t rank = program.pid_of_rank(2);
  for (int other : {0, 1, 3}) program.pid_of_rank(other);
  std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  const auto start = Clock::now();
  kill(rank, SIGKILL);
  CHECK(program.exit_code() == 1);
  CHECK(seconds_since(start) < 5);
  CHECK_THAT(program.output(),
             Contains("error: rank 2 was killed by signal 9 (Killed) while rank") &&
                 Contains(" waited for it in all_"));
  program.check_nothing_left();
}

TEST_CASE("a rank that exits by itself is a failure, also with code 0", "[launch]") {
  const int code = GENERATE(3, 0);
  Program program(fmt::format("exits_{} --ranks 3", code));
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 5);
  CHECK_THAT(program.output(),
             Contains(fmt::format("error: rank 1 exited with code {} while ranks 0, 2 waited for "
                                  "it in all_gather #5 (layers.0)\n",
                                  code)));
  program.check_nothing_left();
}

TEST_CASE("a rank that dies before it reaches launch is named", "[launch]") {
  Program program("dies_before_launch --ranks 3");
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 5);
  CHECK_THAT(
      program.output(),
      Contains("error: rank 1 was killed by signal 6 (Aborted) before its first collective\n"));
  program.check_nothing_left();
}

TEST_CASE("a rank that ignores everything is stopped when another fails", "[launch]") {
  Program program("hangs --ranks 3");
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 5);
  CHECK_THAT(program.output(), Contains("error: rank 0: no more\n"));
  program.check_nothing_left();
}

TEST_CASE("a failure on a stream's worker is the rank's failure", "[launch]") {
  const std::string mode = GENERATE("threads", "processes");
  Program program(fmt::format("fails_on_a_stream --launch {} --ranks 3", mode));
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 5);
  CHECK_THAT(program.output(), Contains("error: rank 1: a closure failed\n"));
  program.check_nothing_left();
}

TEST_CASE("a deadline names the rank that is late", "[launch]") {
  Program program("is_late --ranks 3 --timeout 0.7");
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 6);
  CHECK_THAT(
      program.output(),
      Contains(
          "all_reduce #2 (loss) of group \"world\" timed out after 0.7 s: rank 1 did not arrive"));
  CHECK_THAT(program.output(), Contains("; rank 1 stood after barrier #1\n"));
  program.check_nothing_left();
}

TEST_CASE("a collective that rank 0 issued alone is named with that of the others", "[launch]") {
  Program program("rank_0_only --ranks 3 --timeout 0.7");
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 6);
  const std::string late = "of group \"world\" timed out after 0.7 s: ";
  CHECK_THAT(program.output(), (Contains("all_reduce #2 (loss) " + late) &&
                                Contains("; rank 0 stood in all_gather #2 (to save)\n")) ||
                                   (Contains("all_gather #2 (to save) " + late) &&
                                    Contains("; ranks 1, 2 stood in all_reduce #2 (loss)\n")));
  program.check_nothing_left();
}

TEST_CASE("an error in a layer names the layer", "[launch]") {
  const std::string mode = GENERATE("threads", "processes");
  Program program(fmt::format("fails_in_a_layer --launch {} --ranks 1", mode));
  CHECK(program.exit_code() == 1);
  CHECK_THAT(program.output(),
             Contains("error: rank 0: [add] shapes [3] and [4] do not broadcast") &&
                 Contains("; in module \"adder\"\n"));
}

TEST_CASE("a collective that rank 0 issued alone is what threads report", "[launch]") {
  for (int i = 0; i < 5; ++i) {
    Program program("saves_alone --launch threads --ranks 2 --timeout 5");
    CHECK(program.exit_code() == 1);
    CHECK_THAT(program.output(), Contains("does not agree between ranks: here"));
  }
}

TEST_CASE("a rank that ends early is named by those who need it", "[launch]") {
  const std::string mode = GENERATE("threads", "processes");
  Program program(fmt::format("leaves --launch {} --ranks 3", mode));
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 5);
  CHECK_THAT(program.output(), Contains("all_gather #2 (layers.0) of group \"world\" needs rank 1, "
                                        "which has left the group; all ranks make this "
                                        "call, also where only one uses the result; if its data "
                                        "ran out before the others', fsdp::UnevenInputs"));
  program.check_nothing_left();
}

TEST_CASE("a rank's process has the name of its program", "[launch]") {
  Program program("runs_on --ranks 2");
  CHECK(read_file(fmt::format("/proc/{}/comm", program.pid_of_rank(1))) == "launch_program\n");
}

TEST_CASE("ranks die with their parent", "[launch]") {
  Program program("runs_on --ranks 3");
  for (int rank : {0, 1, 2}) program.pid_of_rank(rank);
  kill(program.pid(), SIGKILL);
  program.wait();
  for (int i = 0; i < 400 && program.processes() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(program.processes() == 0);
}

TEST_CASE("a signal to the parent ends the ranks, then the parent", "[launch]") {
  const int signal = GENERATE(SIGTERM, SIGINT);
  Program program("runs_on --ranks 3");
  for (int rank : {0, 1, 2}) program.pid_of_rank(rank);
  const auto start = Clock::now();
  kill(program.pid(), signal);
  const int status = program.wait();
  CHECK(seconds_since(start) < 3);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == signal);
  program.check_nothing_left();
}

TEST_CASE("ranks that heed signals end in order, after one step", "[launch]") {
  const std::string mode = GENERATE("threads", "processes");
  const int signal = GENERATE(SIGTERM, SIGINT);
  Program program(fmt::format("stops --launch {} --ranks 3", mode));
  signal_all_heeding(program, 3, signal, program.pid());
  CHECK(program.exit_code() == 128 + signal);
  const std::string stops = fmt::format(" stops for {} after ", signal);
  CHECK(count_of(program.output(), stops) == 3);
  const std::string text = program.output();
  const std::string step = text.substr(text.find(stops) + stops.size());
  CHECK(count_of(text, stops + step.substr(0, step.find('\n') + 1)) == 3);
  CHECK_THAT(text, Contains(fmt::format("launch returned {}\n", 128 + signal)));
  CHECK_THAT(text, !Contains("error: "));
  program.check_nothing_left();
}

TEST_CASE("a signal to one rank process asks all to end", "[launch]") {
  Program program("stops --ranks 3");
  signal_all_heeding(program, 3, SIGTERM, program.pid_of_rank(1));
  CHECK(program.exit_code() == 128 + SIGTERM);
  CHECK(count_of(program.output(), " stops for 15 after ") == 3);
}

TEST_CASE("a second signal ends the run at once, a copy of the first does not", "[launch]") {
  const std::string mode = GENERATE("threads", "processes");
  Program program(fmt::format("heeds_in_vain --launch {} --ranks 2", mode));
  signal_all_heeding(program, 2, SIGINT, program.pid());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill(program.pid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(program.processes() > 0);
  const auto start = Clock::now();
  kill(program.pid(), SIGINT);
  const int status = program.wait();
  CHECK(seconds_since(start) < 1);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGINT);
  program.check_nothing_left();
}

TEST_CASE("rank threads that heed nothing end by the first signal", "[launch]") {
  Program program("runs_on --launch threads --ranks 2");
  signal_all_heeding(program, 2, SIGTERM, program.pid());
  const int status = program.wait();
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("what the system refuses to ranks is said in words of ours", "[launch]") {
  const auto says = [](const std::string& through, const std::string& text) {
    Program program("ok --ranks 3", through);
    CHECK(program.exit_code() == 1);
    CHECK_THAT(program.output(), Contains(text) && !Contains("enforce"));
    CHECK(count_of(program.output(), "error: ") == 1);
  };
  says("prlimit --nofile=12", "open files, the limit is 12; raise it (ulimit -n)");
  if (std::system("unshare --net true 2>/dev/null") != 0)
    return tessera::testing::skip("needs the right to make network namespaces");
  says("unshare --net", "Cannot assign requested address; switch the loopback interface on");
}

TEST_CASE("a program may launch several times", "[launch]") {
  Program program("twice --ranks 2");
  CHECK(program.exit_code() == 0);
  CHECK(count_of(program.output(), "first launch\n") == 1);
  CHECK(count_of(program.output(), "second launch\n") == 1);
  program.check_nothing_left();
}

TEST_CASE("a program may launch again after a launch that was refused", "[launch]") {
  Program program("after_refusal");
  CHECK(program.exit_code() == 0);
  CHECK(count_of(program.output(), "refused\n") == 3);  // the parent and two ranks
  CHECK(count_of(program.output(), "refused launch") == 0);
  CHECK(count_of(program.output(), "second launch, rank 0\n") == 1);
  CHECK(count_of(program.output(), "second launch, rank 1\n") == 1);
  program.check_nothing_left();
}

TEST_CASE("threads launched before processes run again in each of them, unless left out",
          "[launch]") {
  Program program("threads_first");
  CHECK(program.exit_code() == 0);
  CHECK(count_of(program.output(), "added up by threads\n") == 3);  // the parent and two ranks
  CHECK(count_of(program.output(), "process 0 has 3\n") == 1);
  CHECK(count_of(program.output(), "process 1 has 3\n") == 1);
  CHECK(count_of(program.output(), "done once\n") == 1);
  program.check_nothing_left();
}

TEST_CASE("wrong options are one line and exit code 2", "[launch]") {
  const auto [arguments, message] = GENERATE(table<std::string, std::string>({
      {"ok --ranks 0", "error: [launch] ranks must be at least 1, got 0\n"},
      {"ok --ranks=-3 --launch threads", "error: [launch] ranks must be at least 1, got -3\n"},
      {"ok --ranks two", "error: [launch] --ranks takes a number, got \"two\"\n"},
      {"ok --launch boats",
       "error: [launch] --launch takes auto, threads or processes, got \"boats\"\n"},
      {"ok --device tpu", "error: [launch] --device takes cpu or cuda, got \"tpu\"\n"},
      {"ok --timeout 0", "error: [launch] --timeout takes seconds from 0.001 to 1e+09, got 0\n"},
      {"ok --timeout 0.0001", "seconds from 0.001 to 1e+09, got 0.0001\n"},
      {"ok --nnodes 0", "error: [launch] nnodes must be at least 1, got 0\n"},
      {"ok --nnodes 3 --node-rank 3",
       "error: [launch] node_rank must be from 0 to 2 with 3 nodes, got 3\n"},
      {"ok --node-rank=-1", "error: [launch] node_rank must be from 0 to 0 with 1 nodes, got -1\n"},
      {"ok --nnodes 2 --launch threads",
       "error: [launch] threads cannot be on 2 nodes; launch processes\n"},
      {"ok --nnodes 2",
       "error: [launch] 2 nodes need an rdzv_endpoint to meet at: host:port of node 0\n"},
      {"ok --nnodes 2 --rdzv-endpoint x:y",
       "error: [launch] --rdzv-endpoint takes host:port with a port"},
      {"ok --timeout nan", "error: [launch] --timeout takes seconds from 0.001"},
      {"ok --rank 4",
       "error: [launch] unknown option --rank; did you mean --ranks?; --help lists "
       "all\n"},
      {"ok -ranks 4", "error: [launch] unknown option -ranks; did you mean --ranks?"},
      {"ok --lunch=threads", "unknown option --lunch; did you mean --launch?"},
      {"ok --fro -1", "unknown option --fro; did you mean --from?"},
      {"ok --gradient-size 3",
       "error: [launch] unknown option --gradient-size; --help lists all\n"},
      {"ok --ranks", "error: [launch] --ranks needs a value\n"},
      {"ok --checked=false", "error: [launch] --checked takes no value\n"},
  }));
  Program program(arguments);
  CHECK(program.exit_code() == 2);
  CHECK_THAT(program.output(), Contains(message));
  program.check_nothing_left();
}

TEST_CASE("--checked names the ranks that differ in a collective", "[launch]") {
  Program program("differs --ranks 3 --timeout 20 --checked");
  CHECK(program.exit_code() == 1);
  CHECK(program.seconds() < 10);
  CHECK_THAT(program.output(), Contains("launch_program.cc"));  // the line of each rank
  program.check_nothing_left();
}

TEST_CASE("--help prints the options of launch and of the program, and starts nothing",
          "[launch]") {
  const std::string arguments = GENERATE("ok --help", "ok -h", "ok --from 3 --ranks 2 --help",
                                         "ok --ranks --help", "ok --ranks -h", "ok --rank --help");
  Program program(arguments);
  CHECK(program.exit_code() == 0);
  for (const char* line : {"usage: ", "  --from K  the scenario's first number\n",
                           "  --ranks N  ranks of this host (2)\n", "  --help  prints this\n"})
    CHECK_THAT(program.output(), Contains(line));
  CHECK(count_of(program.output(), "rank 0") == 0);
  program.check_nothing_left();
}

TEST_CASE("options of the program, and what follows --, are left alone", "[launch]") {
  const std::string arguments =
      GENERATE("ok --ranks 1 --from 3", "ok --ranks=1 --from=3 word", "ok --ranks 1 -- --rank 4");
  Program program(arguments);
  CHECK(program.exit_code() == 0);
  program.check_nothing_left();
}

TEST_CASE("launch reads options into the program's variables, on every rank", "[launch]") {
  const char* mode = GENERATE("threads", "processes");
  Program program(
      fmt::format("values --ranks 2 --launch {} --count -7 --large=9000000000 --rate 1e-3 --own x"
                  " --text a=b --flag",
                  mode));
  CHECK(program.exit_code() == 0);
  for (int rank = 0; rank < 2; ++rank)
    CHECK_THAT(program.output(),
               Contains(fmt::format("rank {}: count -7 large 9000000000 rate 0.001 text \"a=b\" "
                                    "word some flag true",
                                    rank)));
  program.check_nothing_left();
}

TEST_CASE("the program's variables are the defaults, which --help prints", "[launch]") {
  Program plain("values --ranks 1 --own=3");
  CHECK(plain.exit_code() == 0);
  CHECK_THAT(plain.output(),
             Contains("rank 0: count 3 large 4000000000 rate 0.5 text \"\" word some flag false"));
  Program help("values --help --count 5");
  CHECK(help.exit_code() == 0);
  for (const char* line : {"  --count N  of things (3)\n", "  --large N  of more (4000000000)\n",
                           "  --rate X  of them (0.5)\n", "  --text TEXT  of any length\n",
                           "  --word WORD  of one (some)\n", "  --flag  without a value\n",
                           "  --own X  that the program looks for\n"})
    CHECK_THAT(help.output(), Contains(line));
}

TEST_CASE("a value that does not fit the program's variable is refused, and nothing starts",
          "[launch]") {
  const auto [arguments, message] = GENERATE(table<std::string, std::string>({
      {"values --count 2.5", "error: [launch] --count takes a number, got \"2.5\"\n"},
      {"values --count 3000000000", "error: [launch] --count takes a number, got \"3000000000\"\n"},
      {"values --rate fast", "error: [launch] --rate takes a number, got \"fast\"\n"},
      {"values --rate", "error: [launch] --rate needs a value\n"},
      {"values --count --flag", "error: [launch] --count needs a value\n"},
      {"values --flag=false", "error: [launch] --flag takes no value\n"},
      {"values --cont 3", "unknown option --cont; did you mean --count?"},
  }));
  Program program(arguments);
  CHECK(program.exit_code() == 2);
  CHECK_THAT(program.output(), Contains(message));
  CHECK(count_of(program.output(), "rank 0") == 0);
  program.check_nothing_left();
}

TEST_CASE("launch refuses what it cannot run", "[launch]") {
  const auto nothing = [](World&) {};
  CHECK_THROWS_AS(launch(0, nullptr, {.ranks = 0}, nothing), InvalidArgument);
  CHECK_THROWS_AS(
      launch(0, nullptr, {.ranks = 1, .timeout = std::chrono::milliseconds(0)}, nothing),
      InvalidArgument);
  CHECK_THROWS_AS(
      launch(0, nullptr, {.ranks = 1, .device = {DeviceType::kCuda, 0}, .gpus = {9999}}, nothing),
      DeviceError);
  CHECK_FALSE(is_rank_process());
}

TEST_CASE("a world of threads on the null device", "[launch]") {
  const LaunchResult result = launch(
      0, nullptr, {.ranks = 3, .mode = LaunchMode::kThreads, .device = kNull}, [](World& world) {
        if (!world.device().is_null()) throw std::runtime_error("device");
      });
  CHECK(result.exit_code == 0);
  CHECK(result.failure.empty());
}

}  // namespace tessera::distributed
