// One run on two hosts. Each is started with its node rank and an address of the first:
//
//     two_hosts_example --ranks 2 --nnodes 2 --rdzv-endpoint HOST0:29400 --node-rank 0
//     two_hosts_example --ranks 2 --nnodes 2 --rdzv-endpoint HOST0:29400 --node-rank 1
//
// (Use HOST0 = 127.0.0.1 in two terminals to simulate two hosts. Other addresses need a secret in
// TESSERA_SECRET.) Hybrid sharding: parameters are
// sharded over the ranks of a host and replicated between hosts. All-gathers therefore stay inside
// a host, and only gradients are sent between hosts.

#include <cstdio>

#include "tessera/tessera.h"

using namespace tessera;

void train(distributed::World& world) {
  if (world.local_rank() == 0)
    std::printf("host %d of %d: ranks %d to %d\n", world.node_rank(), world.nodes(), world.rank(),
                world.rank() + world.ranks_per_node() - 1);

  models::MlpStack model({.in = 16, .hidden = {64}, .classes = 16});
  const distributed::DeviceMesh mesh = hybrid_mesh(world);  // axes "replicate" and "shard"
  fsdp::wrap(model, fsdp::wrap_types<models::MlpBlock>(), {.mesh = mesh});
  fsdp::fully_shard(model, {.mesh = mesh});
  nn::initialize(model, {.seed = 1});
  nn::optim::AdamW optimizer(model.parameters(), {.lr = 0.01});

  // Points classified by their largest coordinate, 64 new ones per step for all ranks together.
  double mean_loss = 0;
  for (int step = 1; step <= 200; ++step) {
    const Tensor all = Tensor::empty({64, 16});
    random::fill_normal(all, random::named_key(1, "batch " + std::to_string(step)),
                        random::whole(all.shape()), 0, 1);
    const Tensor points = distribute(all, world.mesh(), {distributed::Shard{0}});
    const Variable loss = cross_entropy(model(Variable(points)), argmax(points));
    backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    all_reduce(*world.group(), {{loss.tensor()}}, distributed::ReduceOp::kAverage);
    mean_loss = loss.item<float>();
    if (world.rank() == 0 && step % 50 == 0) std::printf("step %d: loss %.4f\n", step, mean_loss);
  }
  TESSERA_CHECK(mean_loss < 0.7, "example", "the loss is still {:.3f}", mean_loss);
  distributed::assert_equal_across_ranks(*world.group(), model);  // the hosts still have equal
                                                                  // parameters
}

int main(int argc, char** argv) { return distributed::launch(argc, argv, train); }
