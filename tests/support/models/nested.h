// Nested linear layers: NestedWrappedModule of PyTorch's FSDP tests and its variants, for tests of
// parity and of which module shards which parameters.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/sequential.h"
#include "tessera/tests/support/models/test_model.h"

namespace tessera::testing {

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

}  // namespace tessera::testing
