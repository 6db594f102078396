#pragma once

// What the tests of checkpoints share: a folder for all ranks, and a sharded run.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/fsdp/checkpoint/checkpoint.h"
#include "tessera/fsdp/state/state.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/tests/fsdp/state/state_model.h"
#include "tessera/tests/tensor/io/safetensors_support.h"

namespace tessera::testing {

// An empty folder, the same on all ranks.
inline std::string shared_folder(RankTest& t, const std::string& name) {
  std::string mine;
  if (t.rank() == 0) mine = temporary_path(fmt::format("{}_{}", name, t.size()), "run");
  return t.gather_text(mine).front();
}

inline std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  if (!std::filesystem::exists(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// A sharded model after two steps.
struct Run {
  explicit Run(RankTest& t, std::uint64_t seed = 3)
      : group(t.world().group()), optimizer(make(t, net, seed), {.lr = 0.1, .momentum = 0.9}) {}

  static std::vector<nn::Parameter> make(RankTest& t, StateNet& net, std::uint64_t seed) {
    shard_net(net, {.mesh = t.world().mesh()});
    nn::initialize(net, {.seed = seed});
    return net.parameters();
  }
  checkpoint::State state() { return {.group = group, .model = &net, .optimizer = &optimizer}; }
  nn::StateDict full() {
    nn::StateDict all;
    all.add("model.", fsdp::full_state_dict(net, {.rank0_only = false}));
    all.add("optimizer.", fsdp::full_optimizer_state(optimizer, {.rank0_only = false}));
    return all;
  }

  std::shared_ptr<distributed::ProcessGroup> group;
  StateNet net;
  nn::optim::SGD optimizer;
};

}  // namespace tessera::testing
