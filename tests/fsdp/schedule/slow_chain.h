#pragma once

/// A model with slow computation and communication, simulated by sleeps.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed/decorators.h"
#include "tessera/distributed/launch/world.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tests/fsdp/schedule/late.h"

namespace tessera::testing {

/// The durations of the parts of a slow model.
struct Setup {
  StreamKind compute = StreamKind::kQueued;
  int layers = 4;
  double forward_ms = 25;
  double backward_ms = 25;
  double gather_ms = 0;
  double reduce_ms = 0;
  fsdp::PrefetchOptions prefetch = {};
};

/// linear(x), slowly.
class SlowBlock final : public nn::Layer<SlowBlock> {
 public:
  SlowBlock(std::string name, const Setup& setup)
      : name_(std::move(name)), setup_(setup), linear_({.in = 4, .out = 4, .dtype = DType::kF64}) {
    register_module("linear", linear_);
  }
  Variable forward(const Variable& x) {
    return linear_(late(x, setup_.forward_ms, setup_.backward_ms, name_));
  }

 private:
  std::string name_;
  Setup setup_;
  nn::Linear linear_;
};

/// Slow blocks in sequence, each a group.
class SlowChain final : public nn::Layer<SlowChain> {
 public:
  explicit SlowChain(const Setup& setup) {
    for (int i = 0; i < setup.layers; ++i) {
      const std::string name = "block" + std::to_string(i);
      blocks_.push_back(std::make_unique<SlowBlock>(name, setup));
      register_module(name, *blocks_.back());
    }
  }
  Variable forward(Variable x) {
    for (auto& block : blocks_) x = (*block)(x);
    return x;
  }
  void shard(const distributed::DeviceMesh& mesh) {
    for (auto& block : blocks_) fsdp::fully_shard(*block, {.mesh = mesh});
    fsdp::fully_shard(*this, {.mesh = mesh});
  }

 private:
  std::vector<std::unique_ptr<SlowBlock>> blocks_;
};

/// The world's mesh with delayed collectives.
inline distributed::DeviceMesh delayed_mesh(const distributed::World& world, const Setup& setup) {
  auto group =
      distributed::delay(world.group(), distributed::CollectiveKind::kAllGather, setup.gather_ms);
  group = distributed::delay(group, distributed::CollectiveKind::kReduceScatter, setup.reduce_ms);
  return world.mesh().with_group("data", group);
}

inline double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace tessera::testing
