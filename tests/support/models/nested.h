#pragma once

/// Nested models of PyTorch's FSDP tests: NestedWrappedModule and its variants; MixtureOfExperts,
/// which has a layer that differs from rank to rank; and a wrapper that delays a stream after the
/// loss.

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

// Nested linear layers: NestedWrappedModule of PyTorch's FSDP tests and its variants, for tests of
// parity and of which module shards which parameters.
struct NestedOptions {
  DType dtype = DType::kF32;
};

// A Sequential named "module": x [rows, 8] -> [rows, 8]. The input has 4 rows, uniform in [0, 1);
// the loss is the sum of the output.
class NestedModel : public nn::Layer<NestedModel>, public TestModel {
 public:
  Variable forward(const Variable& x) { return module_(x); }

  nn::Module& root() override { return *this; }
  std::vector<Variable> get_input(Device device, int rank) const override;
  Variable call(const std::vector<Variable>& input) override;
  Variable get_loss(const std::vector<Variable>& input, const Variable& output) override;

 protected:
  explicit NestedModel(DType dtype);
  nn::LinearOptions linear(std::int64_t in, std::int64_t out) const {
    return {.in = in, .out = out, .dtype = dtype_};
  }

  nn::Sequential module_;

 private:
  DType dtype_;
};

// Linear(8, 4), (Linear(4, 16), Linear(16, 16)), Linear(16, 4), Linear(4, 8). Groups: "module.1.0",
// "module.1" (its remaining parameters) and "module.2"; the first and last layer are the root's.
class NestedWrappedModule : public NestedModel {
 public:
  using Options = NestedOptions;
  explicit NestedWrappedModule(const NestedOptions& options = {});
  std::vector<nn::Module*> groups() override;
};

// The same model with every module, including the root, as a group of its own: the policy "always".
class AlwaysWrapNestedWrappedModule final : public NestedWrappedModule {
 public:
  using NestedWrappedModule::NestedWrappedModule;
  std::vector<nn::Module*> groups() override;
};

struct NonUniformOptions {
  std::int64_t last_rows = 8;  ///< output features of "module.2.1"; with 1 only one rank has rows
  DType dtype = DType::kF32;
};

// The same layers, with the last two in one Sequential, which is a group; everything is frozen but
// "module.2.1.*". In PyTorch's test, which shards a group as one flat tensor, all trained
// parameters are on one rank. When sharding by rows, ranks without trainable rows exist in worlds
// above 8 (or of 5, with chunks of 2 rows). It tests that a GradScaler agrees on all ranks.
class NonUniformReqGradNWM final : public NestedModel {
 public:
  using Options = NonUniformOptions;
  explicit NonUniformReqGradNWM(const NonUniformOptions& options = {});
  std::vector<nn::Module*> groups() override;
};

// A layer that differs from rank to rank between layers that do not: MixtureOfExperts of PyTorch's
// FSDP tests, for tests of parameters that are not reduced over all ranks.
//
//     Linear(8, 12), shared Linear(12, 23), expert Linear(23, 12), Linear(12, 8)
//
// The expert's parameters have the tag "expert", one name, and different initial values on each
// rank of the mesh. Groups: the expert over this rank alone, then the shared layer over all ranks;
// the first and last layer are the root's. If nothing is sharded, run_backward() itself averages
// the other gradients over the mesh. The delay before values are freed, which PyTorch's class has,
// belongs to the sharding schedule: a hook there.
struct MixtureOfExpertsOptions {
  std::shared_ptr<const nn::Mesh> mesh = nn::local_mesh();  ///< with an axis "data"
  DType dtype = DType::kF32;
};

class MixtureOfExperts final : public NestedModel {
 public:
  using Options = MixtureOfExpertsOptions;
  explicit MixtureOfExperts(const MixtureOfExpertsOptions& options = {});

  /// The expert draws from seed + 42 + its rank, everything else from the seed.
  void initialize(const nn::InitializeOptions& options) override;
  void run_backward(const Variable& loss) override;
  /// Averages the gradients of all unsharded parameters over the mesh's ranks. run_backward() calls
  /// it after backward().
  void average_gradients();
  std::vector<nn::Module*> groups() override { return {expert_, shared_}; }

  nn::Linear& shared() { return *shared_; }
  nn::Linear& expert() { return *expert_; }
  std::int64_t num_expert_params() const { return num_expert_params_; }

 private:
  std::shared_ptr<const nn::Mesh> mesh_;
  nn::Linear* shared_;
  nn::Linear* expert_;
  std::int64_t num_expert_params_ = 0;
};

// A test model whose stream is delayed after the loss: ModuleWithDelay of PyTorch's FSDP tests, for
// tests in which a missing wait changes the numbers. NestedWrappedModuleWithDelay is
// ModuleWithDelay<NestedWrappedModule>.
//
// PyTorch's other delay, before gradients are reduced, does not belong to the model here. Give it
// to the group that reduces: distributed::delay(group, CollectiveKind::kReduceScatter, ms). Initial
// values are drawn by full names, including "module.", so the reference without delays is the same
// class with a delay of 0.
template <class M>
struct ModuleWithDelayOptions {
  typename M::Options model = {};
  double delay_after_loss_ms = 0;
};

// An M named "module"; it implements all of TestModel.
template <class M>
class ModuleWithDelay final : public nn::Layer<ModuleWithDelay<M>>, public TestModel {
 public:
  using Options = ModuleWithDelayOptions<M>;
  explicit ModuleWithDelay(const Options& options = {})
      : module_(options.model), delay_after_loss_ms_(options.delay_after_loss_ms) {
    this->register_module("module", module_);
  }
  Variable forward(const std::vector<Variable>& input) { return module_.call(input); }

  nn::Module& root() override { return *this; }
  std::vector<Variable> get_input(Device device, int rank) const override {
    return module_.get_input(device, rank);
  }
  Variable call(const std::vector<Variable>& input) override { return (*this)(input); }
  /// The delay follows the loss on its stream, so backward runs after it.
  Variable get_loss(const std::vector<Variable>& input, const Variable& output) override {
    Variable loss = module_.get_loss(input, output);
    if (delay_after_loss_ms_ > 0) {
      stream_sleep(current_stream(loss.device()), delay_after_loss_ms_);
    }
    return loss;
  }
  void run_backward(const Variable& loss) override { module_.run_backward(loss); }
  void initialize(const nn::InitializeOptions& options) override {
    nn::InitializeOptions inner = options;
    inner.prefix += "module.";
    module_.initialize(inner);
  }
  std::vector<nn::Module*> groups() override { return module_.groups(); }

  M& module() { return module_; }

 private:
  M module_;
  double delay_after_loss_ms_;
};

}  // namespace tessera::testing
