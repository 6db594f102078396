#pragma once

/// Slow computation and communication, simulated by sleeps, which make a missing wait visible.

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/autograd/function.h"
#include "tessera/autograd/variable.h"
#include "tessera/distributed/decorators.h"
#include "tessera/distributed/launch/world.h"
#include "tessera/fsdp/fully_shard.h"
#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/trace.h"

namespace tessera::testing {

struct Lateness {
  distributed::CollectiveKind kind = distributed::CollectiveKind::kBarrier;
  double before_ms = 0;  ///< milliseconds of sleep on the collective's stream, before it
  double after_ms = 0;   ///< after it
  int only_rank = -1;    ///< rank in the group; -1: all ranks
};

/// Delays collectives of one kind, also those of sub-groups (which distributed::delay does not).
class LateGroup final : public distributed::Decorator {
 public:
  LateGroup(std::shared_ptr<distributed::ProcessGroup> group, const Lateness& lateness)
      : Decorator(std::move(group)), lateness_(lateness) {}
  void run(const distributed::Collective& call) override {
    const bool late =
        call.kind == lateness_.kind && (lateness_.only_rank < 0 || lateness_.only_rank == rank());
    if (late && lateness_.before_ms > 0)
      stream_sleep(current_stream(default_device()), lateness_.before_ms);
    Decorator::run(call);
    if (late && lateness_.after_ms > 0)
      stream_sleep(current_stream(default_device()), lateness_.after_ms);
  }
  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return std::make_shared<LateGroup>(Decorator::make_subgroup(request), lateness_);
  }

 private:
  Lateness lateness_;
};

/// Returns x. Delays the current stream in forward and backward; the trace records the name.
inline Variable late(const Variable& x, double forward_ms, double backward_ms,
                     const std::string& name = "late") {
  annotate("test", name, "forward");
  stream_sleep(current_stream(x.device()), forward_ms);
  return record(
      "late", x.tensor().detached_version(), {x},
      [backward_ms, name](const Tensor& dy, const BackwardContext&) -> std::vector<Tensor> {
        annotate("test", name, "backward");
        stream_sleep(current_stream(dy.device()), backward_ms);
        return {dy};
      });
}

// A model with slow computation and communication, simulated by sleeps.

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
