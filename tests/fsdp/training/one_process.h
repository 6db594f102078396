#pragma once

/// Data parallelism in one process, without sharding: the bitwise reference.

#include <functional>
#include <utility>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/nn/module.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::testing {

/// Keeps one gradient per rank, with its passes added in order; adds these in rank order; scales
/// the sum once, by 1 / ranks. One model computes for all ranks, or each rank has one of its own
/// with equal parameters (if forwards change state, as batch norm does).
class OneProcess {
 public:
  OneProcess(std::vector<nn::Module*> models, int ranks)
      : models_(std::move(models)), ranks_(ranks) {}

  /// The loss of a rank's pass, with models[rank] or the only model.
  using LossOf = std::function<Variable(int rank, int pass)>;

  /// Computes the gradients of one step in every model.
  void run(int passes, const LossOf& loss_of) {
    std::vector<Tensor> sum;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (int pass = 0; pass < passes; ++pass) backward(loss_of(rank, pass));
      add_to(sum, take_gradients(model(rank)));
    }
    for (nn::Module* each : models_) {
      std::size_t i = 0;
      for (nn::Parameter& parameter : each->parameters()) {
        const Tensor& total = sum[i++];
        if (total.defined()) parameter.set_grad(mul(total, 1.0 / ranks_));
      }
    }
  }

 private:
  nn::Module& model(int rank) const {
    return *models_[models_.size() == 1 ? 0 : static_cast<std::size_t>(rank)];
  }
  static std::vector<Tensor> take_gradients(const nn::Module& model) {
    std::vector<Tensor> out;
    for (nn::Parameter& parameter : model.parameters()) {
      out.push_back(parameter.grad());
      parameter.zero_grad();
    }
    return out;
  }
  static void add_to(std::vector<Tensor>& sum, std::vector<Tensor> gradients) {
    if (sum.empty()) {
      sum = std::move(gradients);
      return;
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (sum[i].defined()) sum[i] = add(sum[i], gradients[i]);
    }
  }

  std::vector<nn::Module*> models_;
  int ranks_;
};

}  // namespace tessera::testing
