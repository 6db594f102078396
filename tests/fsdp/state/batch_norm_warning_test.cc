// What full_state_dict prints of batch norms that trained with local batches. It prints once in a
// process, so this is a program of its own.
#include <catch2/catch.hpp>
#include <string>

#include "tessera/fsdp/fully_shard.h"
#include "tessera/fsdp/replicate.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/init.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/fsdp/reference.h"
#include "tessera/tests/support/output.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

void add_layers(nn::Sequential& net) {
  net.add<nn::Linear>({.in = 3, .out = 4});
  net.add<nn::BatchNorm1d>({.channels = 4});
}

TESSERA_RANK_TEST_WITH("a replicated model warns too, once in a process", "[fsdp][state]",
                       {.worlds = {2}}) {
  nn::Sequential replicated, sharded;
  add_layers(replicated);
  add_layers(sharded);
  fsdp::replicate(replicated, {.mesh = t.world().mesh()});
  fsdp::fully_shard(sharded, {.mesh = t.world().mesh()});
  for (nn::Sequential* net : {&replicated, &sharded}) {
    nn::initialize(*net, {.seed = 1});
    (*net)(Variable(random_rows(5, 3, DType::kF32, 1)));
  }
  const auto save = [&] {
    fsdp::full_state_dict(replicated);
    fsdp::full_state_dict(replicated);
    fsdp::full_state_dict(sharded);
  };
  if (t.rank() != 0) return save();
  const std::string printed = output_of(save);
  t.check(count_of(printed, "warning: [full_state_dict] ") == 1, "printed: {}", printed);
  t.check(count_of(printed, "1 batch norm(s), \"1\" the first") == 1, "printed: {}", printed);
}

TESSERA_RANK_TEST_WITH("a load ends the warning", "[fsdp][state]", {.worlds = {2}}) {
  for (const bool shards : {true, false}) {
    const RankTest::NamedCase name(t, shards ? "sharded" : "replicated");
    nn::Sequential net;
    add_layers(net);
    if (shards)
      fsdp::fully_shard(net, {.mesh = t.world().mesh()});
    else
      fsdp::replicate(net, {.mesh = t.world().mesh()});
    nn::initialize(net, {.seed = 1});
    const nn::StateDict state = fsdp::full_state_dict(net);
    net(Variable(random_rows(5, 3, DType::kF32, 1)));
    t.check(!fsdp::local_batch_norm_warning(net).empty(), "no warning after training");
    fsdp::load_full_state_dict(net, state);
    t.check(fsdp::local_batch_norm_warning(net).empty(), "a warning after a load");
  }
}

}  // namespace
}  // namespace tessera::testing
