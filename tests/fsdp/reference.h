#pragma once

/// The reference for sharded training: the same model, unsharded, trained by every rank on the
/// whole batch.

#include <cmath>
#include <string>
#include <vector>

#include "tessera/autograd/engine.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/distributed/launch/world.h"
#include "tessera/distributed/mesh/placement.h"
#include "tessera/distributed/parameters/mesh_impl.h"
#include "tessera/nn/module.h"
#include "tessera/nn/optim/sgd.h"
#include "tessera/nn/training/loss.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random.h"

namespace tessera::testing {

inline constexpr nn::optim::SgdOptions kSgd = {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};

/// A batch of rows, equal on every rank.
Tensor random_rows(std::int64_t rows, std::int64_t width, DType dtype, std::uint64_t seed);

/// This rank's rows of a batch.
Tensor my_rows(const Tensor& x, const distributed::World& world);

/// Half the sum of squares of the model's outputs, scaled so that the mean over ranks is the mean
/// over the rows of the whole batch.
Variable sharded_loss(const Variable& y, const distributed::World& world);
Variable plain_loss(const Variable& y);

/// The largest |a - b| / max(1, |b|) over all elements; infinity if shapes differ or a value is not
/// finite.
double worst_error(const Tensor& a, const Tensor& b);

/// The rows of a full tensor that a parameter's local() holds.
Tensor box_rows(const Tensor& whole, const nn::Parameter& parameter);

/// The worst error of every local() against the reference's, and of every grad() if `gradients`.
/// Names must be equal. The message is empty if all errors are within `tolerance`.
std::string compare_with_reference(const nn::Module& sharded, const nn::Module& reference,
                                   double tolerance, bool gradients = false);

}  // namespace tessera::testing
