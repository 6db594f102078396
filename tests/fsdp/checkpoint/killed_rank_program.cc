// Saves or loads a checkpoint in the current folder. A rank is killed before one of its collectives in it.
//
//     killed_rank_program save|load STEP --ranks 3 --kill-rank 1 --kill-at 4
//
// Without --kill-at it checks what was loaded, and prints the number of collectives of the rank with the fewest.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/decorators.h"
#include "tessera/distributed/launch/launch.h"
#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/optim/adam.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace {

using namespace tessera;

struct Request {
  bool saves = false;
  std::int64_t step = 0;
  int kill_rank = 0;
  int kill_at = 0;
};

void run(distributed::World& world, const Request& request) {
  nn::Sequential net;
  net.add<nn::Linear>({.in = 5, .out = 7});
  net.add<nn::Linear>({.in = 7, .out = 2});
  fsdp::fully_shard(net, {.mesh = world.mesh()});
  nn::initialize(net, {.seed = 1});
  nn::optim::AdamW optimizer(net.parameters(), {});
  nn::StateDict values;
  if (request.saves) {
    for (const nn::Parameter& parameter : net.parameters())
      fill_(parameter.local().tensor(), static_cast<double>(request.step));
    values.set("step", request.step);
  }
  int calls = 0;
  const auto group =
      distributed::call(world.group(), {.before = [&](const distributed::Collective&) {
                          if (++calls == request.kill_at && world.rank() == request.kill_rank)
                            std::raise(SIGKILL);
                        }});
  const checkpoint::State state{
      .group = group, .model = &net, .optimizer = &optimizer, .values = &values};
  if (request.saves) {
    checkpoint::save(checkpoint::step_folder(".", request.step), state);
  } else {
    TESSERA_CHECK(checkpoint::load_newest(".", state).has_value(), "test", "no checkpoint");
    TESSERA_CHECK(values.integer("step") == request.step, "test", "the step is {}",
                  values.integer("step"));
    for (const nn::Parameter& parameter : net.parameters())
      for (const float element : parameter.local().tensor().to_vector<float>())
        TESSERA_CHECK(element == static_cast<float>(request.step), "test", "{}", element);
  }
  const Tensor least = Tensor::from_vector<std::int64_t>({-calls}, {1});
  distributed::all_reduce(*world.group(), std::vector{least}, distributed::ReduceOp::kMax);
  if (world.rank() == 0) std::printf("collectives %d\n", -int(least.item<std::int64_t>()));
}

}  // namespace

int main(int argc, char** argv) {
  Request request{.saves = argc > 1 && std::string(argv[1]) == "save",
                  .step = argc > 2 ? std::atoi(argv[2]) : 0};
  return distributed::launch(
      argc, argv, [&](distributed::World& world) { run(world, request); },
      {{"--kill-rank", "R", &request.kill_rank}, {"--kill-at", "N", &request.kill_at}});
}
