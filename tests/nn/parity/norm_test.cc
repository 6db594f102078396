// Normalisation layers train as PyTorch's do; batch norms up to their running statistics.
#include <catch2/catch.hpp>

#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/batch_norm.h"
#include "tessera/nn/layers/conv.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/tests/support/training_reference.h"

namespace tessera {
namespace {

using testing::check_training;
using testing::MakeModel;
using testing::sequence_on_x;

// Linear(5, 6), the norm, Linear(6, 3).
template <class Norm>
MakeModel between(const typename Norm::Options& options) {
  return sequence_on_x([options](nn::Sequential& net) {
    net.add<nn::Linear>({.in = 5, .out = 6});
    net.add<Norm>(options);
    net.add<nn::Linear>({.in = 6, .out = 3});
  });
}

TEST_CASE("parity: LayerNorm and RMSNorm") {
  const auto layer_norm = between<nn::LayerNorm>;
  check_training("norm", "LayerNorm", layer_norm({.shape = {6}}));
  check_training("norm", "LayerNorm without bias", layer_norm({.shape = {6}, .bias = false}));
  check_training("norm", "LayerNorm without parameters",
                 layer_norm({.shape = {6}, .affine = false}));
  check_training("norm", "LayerNorm over two dims", layer_norm({.shape = {4, 6}, .eps = 1e-3}));
  check_training("norm", "RMSNorm", between<nn::RMSNorm>({.shape = {6}, .eps = 1e-5}));
  check_training("norm", "RMSNorm without weight",
                 between<nn::RMSNorm>({.shape = {6}, .eps = 1e-3, .affine = false}));
}

TEST_CASE("parity: GroupNorm") {
  check_training("norm", "GroupNorm", sequence_on_x([](nn::Sequential& net) {
                   net.add<nn::Conv2d>({.in = 2, .out = 6, .kernel = 3});
                   net.add<nn::GroupNorm>({.groups = 3, .channels = 6});
                   net.add<nn::Conv2d>({.in = 6, .out = 2, .kernel = 2});
                 }));
  check_training("norm", "GroupNorm of rows, without parameters",
                 between<nn::GroupNorm>({.groups = 2, .channels = 6, .affine = false}));
}

TEST_CASE("parity: BatchNorm of rows") {
  const auto batch_norm = between<nn::BatchNorm1d>;
  check_training("batch_norm", "BatchNorm1d", batch_norm({.channels = 6}));
  check_training("batch_norm", "BatchNorm1d, momentum 0.3, without parameters",
                 batch_norm({.channels = 6, .eps = 1e-3, .momentum = 0.3, .affine = false}));
  check_training("batch_norm", "BatchNorm1d, cumulative average",
                 batch_norm({.channels = 6, .momentum = std::nullopt}));
  check_training("batch_norm", "BatchNorm1d without statistics",
                 batch_norm({.channels = 6, .track_running_stats = false}));
}

TEST_CASE("parity: BatchNorm of sequences and of images") {
  check_training("batch_norm", "BatchNorm1d of sequences", sequence_on_x([](nn::Sequential& net) {
                   net.add<nn::Conv1d>({.in = 3, .out = 4, .kernel = 3});
                   net.add<nn::BatchNorm1d>({.channels = 4});
                   net.add<nn::Conv1d>({.in = 4, .out = 2, .kernel = 2});
                 }));
  check_training("batch_norm", "BatchNorm2d", sequence_on_x([](nn::Sequential& net) {
                   net.add<nn::Conv2d>({.in = 2, .out = 4, .kernel = 3});
                   net.add<nn::BatchNorm2d>({.channels = 4});
                   net.add<nn::ReLU>();
                   net.add<nn::Conv2d>({.in = 4, .out = 2, .kernel = 2});
                 }));
}

}  // namespace
}  // namespace tessera
