// What launch_test.cc starts: `launch_program SCENARIO [launch options]`.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/rank_texts.h"
#include "tessera/nn/layer.h"
#include "tessera/tensor/cores.h"
#include "tessera/tensor/ops/create.h"

namespace {

using namespace tessera;
using distributed::World;

// Steps of training, seen from far: a gather, a little work, a reduction.
void step(World& world, int number) {
  const Tensor part = Tensor::from_vector<float>({1, 2, 3}, {3});
  const Tensor whole = Tensor::from_vector<float>(
      std::vector<float>(static_cast<std::size_t>(3 * world.size())), {3 * world.size()});
  all_gather(*world.group(), std::vector{part}, std::vector{whole},
             fmt::format("layers.{}", number % 3));
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  all_reduce(*world.group(), std::vector{part});
}

void steps(World& world, int count) {
  for (int i = 0; i < count; ++i) step(world, i);
}

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

void ok(World& world) {
  steps(world, 3);
  say(fmt::format("rank {} of {} is done", world.rank(), world.size()));
}

void layout(World& world) {
  barrier(*world.group());
  say(fmt::format("rank {} of {}: {} of {} on node {} of {}", world.rank(), world.size(),
                  world.local_rank(), world.ranks_per_node(), world.node_rank(), world.nodes()));
}

void threads(World& world) {
  barrier(*world.group());
  say(fmt::format("rank {} has {} threads", world.rank(), world.context()->threads()));
}

// Bits of sums whose order matters, over packed and large members.
void bits(World& world) {
  std::vector<Tensor> tensors;
  for (std::int64_t count : {7, 5000, 1}) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(std::sin(double(i + 1) * (world.rank() + 1)) *
                                          std::pow(10, world.rank())));
    tensors.push_back(Tensor::from_vector<float>(values, {count}));
  }
  all_reduce(*world.group(), tensors);
  std::uint32_t hash = 17;
  for (const Tensor& tensor : tensors) {
    for (float value : tensor.to_vector<float>())
      hash = hash * 31 + static_cast<std::uint32_t>(std::lrint(value * 1e4)) +
             (std::signbit(value) ? 7 : 0);
  }
  barrier(*world.group());
  if (world.rank() == 0)
    say(fmt::format("hash {} first {:a} last {:a}", hash, tensors[0].to_vector<float>()[6],
                    tensors[1].to_vector<float>()[4999]));
}

// Training of a linear layer, of which each rank sees other rows. The bits of its loss are printed.
void trains(World& world) {
  constexpr std::int64_t kRows = 5, kIn = 3;
  Tensor weight = full({kIn, 1}, 0.25);
  for (int number = 0; number < 7; ++number) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < kRows * kIn; ++i)
      values.push_back(static_cast<float>(std::sin(double(i + 1) * (world.rank() + 2) + number)));
    const Variable x(Tensor::from_vector<float>(values, {kRows, kIn})), w(weight, true);
    const Variable error = matmul(x, w) - 1.5;
    const Variable loss = mean(error * error);
    backward(loss);
    const std::vector sums{w.grad(), loss.tensor()};
    all_reduce(*world.group(), sums, distributed::ReduceOp::kAverage);
    weight = weight - sums[0] * 0.1;
    if (world.rank() == 0) say(fmt::format("loss {:a}", sums[1].item<float>()));
  }
}

void throws(World& world) {
  steps(world, 5);
  if (world.rank() == 1) throw std::runtime_error("the data ran out");
  steps(world, 100000);
}

void kills_itself(World& world) {
  steps(world, 5);
  if (world.rank() == 2) raise(SIGKILL);
  steps(world, 100000);
}

// Prints a line as a program does, without flushing it, and is killed.
void prints_and_dies(World& world) {
  if (world.rank() == 1) {
    std::printf("the last line of rank 1\n");
    raise(SIGKILL);
  }
  steps(world, 100000);
}

// Prints 30 lines, in turns on both streams, and one without an end.
void print_lines(World& world) {
  for (int line = 0; line < 30; ++line)
    fmt::print(line % 2 == 0 ? stdout : stderr, "line {} of rank {}\n", line, world.rank());
  fmt::print("and no end of rank {}", world.rank());
  std::fflush(stdout);
  barrier(*world.group());
}

void prints_and_throws(World& world) {
  print_lines(world);
  throws(world);
}

void prints_and_is_killed(World& world) {
  print_lines(world);
  if (world.rank() == 1) raise(SIGKILL);
  steps(world, 100000);
}

// Its process ends while another one, which it has started, has its streams.
void leaves_a_process(World& world) {
  barrier(*world.group());
  if (world.rank() == 1) {
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    say(fmt::format("rank 1 leaves a process\npid 1 {}", child));
    std::_Exit(3);
  }
  steps(world, 100000);
}

void cores(World& world) {
  threads(world);
  say(fmt::format("rank {} has cores {}", world.rank(), fmt::join(usable_cores(), " ")));
}

// The values of all ranks name the job; so a rank of another one would be seen.
void meets(World& world) {
  const char* text = std::getenv("TESSERA_TEST_JOB");
  const int job = text != nullptr ? std::atoi(text) : 0;
  const auto value = [&](int rank) { return static_cast<float>(1000 * job + rank + 1); };
  float expected = 0;
  for (int rank = 0; rank < world.size(); ++rank) expected += value(rank);
  for (int i = 0; i < 20; ++i) {
    const Tensor sum = Tensor::from_vector<float>({value(world.rank())}, {1});
    all_reduce(*world.group(), std::vector{sum});
    if (sum.item<float>() != expected)
      throw std::runtime_error(fmt::format("sum {} instead of {}", sum.item<float>(), expected));
  }
  say(fmt::format("rank {} of {} met its own in job {}", world.rank(), world.size(), job));
}

// Prints the ranks and their processes, and steps until it is stopped.
void runs_on(World& world) {
  say(fmt::format("pid {} {}", world.rank(), getpid()));
  steps(world, 1000000);
}

// Steps until a signal asks for an end, which the ranks agree on.
void stops(World& world) {
  world.heed_stop_signals();
  say(fmt::format("pid {} {}", world.rank(), getpid()));
  for (int done = 1; done <= 1000000; ++done) {
    step(world, done);
    const Tensor asked = Tensor::from_vector<float>({static_cast<float>(world.stop_signal())}, {1});
    all_reduce(*world.group(), std::vector{asked}, distributed::ReduceOp::kMax);
    const int signal = static_cast<int>(asked.to_vector<float>().front());
    if (signal == 0) continue;
    say(fmt::format("rank {} stops for {} after {}", world.rank(), signal, done));
    return world.stopped_early(signal, done);
  }
}

// Accepts signals and then does nothing about them.
void heeds_in_vain(World& world) {
  world.heed_stop_signals();
  say(fmt::format("pid {} {}", world.rank(), getpid()));
  steps(world, 1000000);
}

void exits(World& world, int code) {
  steps(world, 2);
  if (world.rank() == 1) std::_Exit(code);
  steps(world, 100000);
}

// The tests find the processes of a run by its token.
const std::vector<distributed::ProgramOption> kOwnOptions = {
    {"--from", "K  the scenario's first number"}, {"--token", "TEXT  ignored"}};

// What launch() reads for the program. A rank that is a process reads its own command line.
struct OwnValues {
  int count = 3;
  std::int64_t large = 4'000'000'000;
  double rate = 0.5;
  std::string text;
  std::string word = "some";
  bool flag = false;
};

int launch_with_values(int argc, char** argv) {
  static OwnValues own;
  return distributed::launch(
      argc, argv,
      [](World& world) {
        say(fmt::format("rank {}: count {} large {} rate {} text \"{}\" word {} flag {}",
                        world.rank(), own.count, own.large, own.rate, own.text, own.word,
                        own.flag));
      },
      {{"--count", "N  of things", &own.count},
       {"--large", "N  of more", &own.large},
       {"--rate", "X  of them", &own.rate},
       {"--text", "TEXT  of any length", &own.text},
       {"--word", "WORD  of one", &own.word},
       {"--flag", " without a value", &own.flag},
       {"--own", "X  that the program looks for"},
       {"--token", "TEXT  ignored"}});
}

void hangs_when_another_fails(World& world) {
  barrier(*world.group());
  if (world.rank() == 0) throw std::runtime_error("no more");
  signal(SIGTERM, SIG_IGN);
  std::this_thread::sleep_for(std::chrono::hours(1));
}

void fails_on_a_stream(World& world) {
  const DeviceStream stream = DeviceStream::create(kCpu, StreamKind::kQueued, "side");
  if (world.rank() == 1) stream.enqueue("bad", [] { throw InvalidArgument("a closure failed"); });
  steps(world, 100000);
}

void is_late(World& world) {
  barrier(*world.group());
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
  all_reduce(*world.group(), std::vector{Tensor::from_vector<float>({1}, {1})},
             distributed::ReduceOp::kSum, "loss");
}

void rank_0_only(World& world) {
  barrier(*world.group());
  const std::vector part{Tensor::from_vector<float>({1}, {1})};
  const std::vector whole{zeros({world.size()})};
  if (world.rank() == 0) all_gather(*world.group(), part, whole, "to save");
  all_reduce(*world.group(), part, distributed::ReduceOp::kSum, "loss");
}

// What a rank does that saves alone: it keeps its error for the others, and goes on with its collectives.
void saves_alone(World& world) {
  const std::vector part{Tensor::from_vector<float>({1}, {1})};
  const std::vector whole{zeros({world.size()})};
  if (world.rank() == 0) {
    const std::string error =
        distributed::error_of([&] { all_gather(*world.group(), part, whole); });
    distributed::throw_first(world.group().get(), error);
  }
  all_reduce(*world.group(), part);
}

class Adder final : public nn::Layer<Adder> {
 public:
  Variable forward(const Variable& x) { return x + ones({4}); }
};

class Outer final : public nn::Layer<Outer> {
 public:
  Outer() { register_module("adder", adder_); }
  Variable forward(const Variable& x) { return adder_(x); }

 private:
  Adder adder_;
};

void fails_in_a_layer(World&) {
  Outer outer;
  outer(Variable(ones({3})));
}

void leaves(World& world) {
  barrier(*world.group());
  if (world.rank() == 1) return;
  steps(world, 1);
}

// The parent is told of this launch only; the rank passes over it to the one that it belongs to.
int launch_twice(int argc, char** argv) {
  for (const char* name : {"first", "second"}) {
    const int code = distributed::launch(
        argc, argv,
        [name](World& world) {
          barrier(*world.group());
          if (world.rank() == 0) say(fmt::format("{} launch", name));
        },
        kOwnOptions);
    if (code != 0) return code;
  }
  return 0;
}

// The first launch is refused, in the parent and again in each rank of the second.
int launch_after_refusal(int argc, char** argv) {
  const auto launch_ranks = [&](int ranks, const char* name) {
    return distributed::launch(
        argc, argv, {.ranks = ranks, .mode = distributed::LaunchMode::kProcesses},
        [name](World& world) { say(fmt::format("{} launch, rank {}", name, world.rank())); });
  };
  try {
    return launch_ranks(0, "refused").exit_code;
  } catch (const InvalidArgument&) {
    say("refused");
  }
  return launch_ranks(2, "second").exit_code;
}

// Threads first, then processes, in which the threads run once more unless they are left out.
int launch_threads_first(int argc, char** argv) {
  using distributed::LaunchMode;
  double sum = 0;
  const auto add_up = [&sum](World& world) {
    const Tensor one = Tensor::from_vector<float>({1}, {1});
    distributed::all_reduce(*world.group(), std::vector{one}, distributed::ReduceOp::kSum);
    if (world.rank() != 0) return;
    sum = one.item<float>();
    say("added up by threads");
  };
  const auto once = [](World& world) {
    if (world.rank() == 0) say("done once");
  };
  distributed::launch(argc, argv, {.ranks = 3, .mode = LaunchMode::kThreads}, add_up);
  if (!distributed::is_rank_process())
    distributed::launch(argc, argv, {.ranks = 2, .mode = LaunchMode::kThreads}, once);
  return distributed::launch(argc, argv, {.ranks = 2, .mode = LaunchMode::kProcesses},
                             [&sum](World& world) {
                               barrier(*world.group());
                               say(fmt::format("process {} has {}", world.rank(), sum));
                             })
      .exit_code;
}

// The last rank reduces fewer elements.
void differs(World& world) {
  const bool is_last = world.rank() == world.size() - 1;
  const Tensor mine = full({is_last ? 2 : 3}, 1);
  distributed::all_reduce(*world.group(), std::vector{mine});
}

const std::map<std::string, void (*)(World&)> kScenarios = {
    {"ok", ok},
    {"layout", layout},
    {"threads", threads},
    {"bits", bits},
    {"trains", trains},
    {"throws", throws},
    {"kills_itself", kills_itself},
    {"prints_and_dies", prints_and_dies},
    {"runs_on", runs_on},
    {"stops", stops},
    {"heeds_in_vain", heeds_in_vain},
    {"prints_and_throws", prints_and_throws},
    {"prints_and_is_killed", prints_and_is_killed},
    {"prints_and_exits",
     [](World& world) {
       print_lines(world);
       exits(world, 3);
     }},
    {"leaves_a_process", leaves_a_process},
    {"cores", cores},
    {"meets", meets},
    {"exits_3", [](World& world) { exits(world, 3); }},
    {"exits_0", [](World& world) { exits(world, 0); }},
    {"hangs", hangs_when_another_fails},
    {"fails_on_a_stream", fails_on_a_stream},
    {"differs", differs},
    {"is_late", is_late},
    {"leaves", leaves},
    {"fails_in_a_layer", fails_in_a_layer},
    {"rank_0_only", rank_0_only},
    {"saves_alone", saves_alone},
};

}  // namespace

int main(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  const char* rank = std::getenv("TESSERA_LAUNCH_RANK");
  if (scenario == "dies_before_launch" && rank != nullptr && std::string(rank) == "1")
    raise(SIGABRT);
  if (scenario == "values") return launch_with_values(argc, argv);
  if (scenario == "twice") return launch_twice(argc, argv);
  if (scenario == "after_refusal") return launch_after_refusal(argc, argv);
  if (scenario == "threads_first") return launch_threads_first(argc, argv);
  const auto found = kScenarios.find(scenario == "dies_before_launch" ? "ok" : scenario);
  if (found == kScenarios.end()) return 99;
  if (!distributed::is_rank_process()) say("hello");
  const int code = distributed::launch(argc, argv, found->second, kOwnOptions);
  say(fmt::format("launch returned {}", code));
  return code;
}
