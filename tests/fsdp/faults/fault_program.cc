// What faults_test.cc starts: `fault_program --phase PHASE --fault FAULT [launch options]`. Ranks train a
// sharded model; in step 3 the fault happens to rank 1, in the phase. In the phase "overlap", after so
// many collectives of each of two groups as --after says.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/flight_recorder.h"
#include "tessera/tessera.h"

namespace {

using namespace tessera;
using distributed::World;

constexpr int kRank = 1;
constexpr std::int64_t kStep = 3, kSteps = 5;

std::string phase, fault, after = "0";

void happen() {
  fmt::print("the fault happens\n");
  std::fflush(stdout);
  if (fault == "kill") raise(SIGKILL);
  if (fault == "stop") raise(SIGSTOP);
  if (fault == "throw") throw std::runtime_error("the data ran out");
  if (fault == "exit") std::_Exit(0);
  if (fault == "memory") Tensor::empty({std::int64_t{1} << 45});
  if (fault == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(1200));
}

class Blocks final : public nn::Layer<Blocks> {
 public:
  Blocks() : first_({.in = 7, .out = 5}), second_({.in = 5, .out = 3}) {
    register_module("first", first_);
    register_module("second", second_);
  }
  Variable forward(const Variable& x) { return second_(gelu(first_(x))); }
  nn::Linear& first() { return first_; }
  nn::Linear& second() { return second_; }

 private:
  nn::Linear first_, second_;
};

class Run {
 public:
  explicit Run(World& world) : world_(world) {}

  void train() {
    const fsdp::FullyShardOptions options{.mesh = world_.mesh()};
    fsdp::fully_shard(model_.first(), options);
    fsdp::fully_shard(model_.second(), options);
    fsdp::fully_shard(model_, options);
    nn::initialize(model_, {.seed = 1, .device = world_.device()});
    nn::optim::SGD optimizer(model_.parameters(), {.lr = 0.05, .momentum = 0.9});
    const auto before_second = model_.second().register_forward_pre_hook(
        [this](nn::Module&, const nn::VisitVariables&) { reach("forward"); }, {.first = true});
    for (step_ = 1; step_ <= kSteps; ++step_) {
      distributed::note_step(step_);
      step(optimizer);
    }
  }

 private:
  // The fault, if this is its place.
  void reach(const char* place) {
    if (place == phase && step_ == kStep && world_.rank() == kRank) happen();
  }

  // Collectives of two groups that share all ranks but the first and the last one, each on a stream
  // of its own, so several of both are under way when the fault happens.
  void overlap() {
    constexpr int kCollectives = 12;
    const int last = world_.size() - 1;
    const std::vector groups = {
        distributed::split(*world_.group(), world_.rank() < last ? 0 : -1, 0, "left"),
        distributed::split(*world_.group(), world_.rank() > 0 ? 0 : -1, 0, "right")};
    std::vector<distributed::Work> works;
    std::vector<DeviceStream> streams;
    for (std::size_t i = 0; i < groups.size(); ++i)
      streams.push_back(DeviceStream::create(kCpu, StreamKind::kQueued, "overlap"));
    for (int call = 0; call < kCollectives; ++call) {
      if (world_.rank() == kRank && call == std::stoi(after)) happen();
      for (std::size_t i = 0; i < groups.size(); ++i) {
        if (groups[i] == nullptr) continue;
        const StreamGuard guard(streams[i]);
        works.push_back(distributed::all_reduce(*groups[i], std::vector{full({40001}, 1)}));
      }
    }
    for (const distributed::Work& work : works) work.synchronize(std::chrono::minutes(5));
  }

  void step(nn::optim::SGD& optimizer) {
    const Tensor flag = full({1}, 1);
    if (phase == "overlap" && step_ == kStep) overlap();
    if (step_ == kStep) {
      const auto group = distributed::split(*world_.group(), 0, world_.rank(), "everybody");
      reach("group");
      distributed::all_reduce(*group, std::vector{flag});
    }
    reach("broadcast");
    distributed::broadcast(*world_.group(), std::vector{flag}, 0);
    reach("barrier");
    distributed::barrier(*world_.group());
    Variable hidden = model_(Variable(full({4, 7}, static_cast<double>(world_.rank() + 1))));
    hidden.register_hook([this](const Variable& gradient) {
      reach("backward");
      return gradient;
    });
    backward(mean(hidden * hidden));
    reach("optimizer");
    nn::grad_norm(model_.parameters());
    optimizer.step();
    optimizer.zero_grad();
  }

  World& world_;
  Blocks model_;
  std::int64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const char* const rank = std::getenv("TESSERA_LAUNCH_RANK");
  const bool before = argc > 4 && std::string(argv[2]) == "rendezvous";
  if (before && rank != nullptr && std::stoi(rank) == kRank) {
    fault = argv[4];
    happen();
  }
  const int code = distributed::launch(argc, argv,
                                       [](World& world) {
                                         Run(world).train();
                                         if (phase == "shutdown" && world.rank() == kRank) happen();
                                         if (world.rank() == 0) fmt::print("trained\n");
                                       },
                                       {{"--phase", "NAME  where the fault happens", &phase},
                                        {"--fault", "NAME  what happens", &fault},
                                        {"--after", "N  collectives of each group", &after},
                                        {"--token", "TEXT  ignored"}});
  fmt::print("launch returned {}\n", code);
  return code;
}
