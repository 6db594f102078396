#pragma once

/// Initial values. An initializer fills a box of the global parameter; an element's value depends
/// on the key and its global position only, so any sharding of a parameter starts with the same
/// values.

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/tensor/random.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

class Module;

/// Fills `out`, which is `box` of the global tensor.
using Initializer = std::function<void(const Tensor& out, random::Key key, const random::Box& box)>;

namespace init {
Initializer constant(double value);
Initializer zeros();
Initializer ones();
Initializer uniform(double low, double high);
Initializer normal(double mean, double stddev);
/// Normal, drawn again outside [low, high]; by default standard, within 2 of 0.
Initializer trunc_normal(const random::TruncatedNormal& distribution = {});

/// What the initializers below scale by: a parameter [out, in, kernel ...] has fan_in = in * numel
/// of the kernel, fan_out = out * that. Of the global shape, so no sharding changes it.
/// Parameters of fewer than 2 dims are an InvalidArgument.
enum class FanMode : std::uint8_t { kFanIn, kFanOut };
enum class Nonlinearity : std::uint8_t { kLinear, kSigmoid, kTanh, kRelu, kLeakyRelu, kSelu };
/// What a layer's weights are scaled by to make up for the nonlinearity after it: 1, 1, 5/3,
/// sqrt(2), sqrt(2 / (1 + negative_slope^2)), 3/4. Convolutions count as linear.
double calculate_gain(Nonlinearity nonlinearity, double negative_slope = 0.01);

struct KaimingOptions {
  double negative_slope = 0;  ///< of kLeakyRelu; PyTorch's `a`
  FanMode mode = FanMode::kFanIn;
  Nonlinearity nonlinearity = Nonlinearity::kLeakyRelu;
};
/// Uniform in [-b, b), b = gain sqrt(3 / fan), and normal of deviation gain / sqrt(fan). (He,
/// Zhang, Ren and Sun, "Delving deep into rectifiers", 2015.)
Initializer kaiming_uniform(const KaimingOptions& options = {});
Initializer kaiming_normal(const KaimingOptions& options = {});

/// Uniform in [-b, b), b = gain sqrt(6 / (fan_in + fan_out)), and normal of deviation gain sqrt(2 /
/// (fan_in + fan_out)). (Glorot and Bengio, "Understanding the difficulty of training deep
/// feedforward neural networks", 2010.)
Initializer xavier_uniform(double gain = 1);
Initializer xavier_normal(double gain = 1);

/// gain Q, Q uniform among the matrices [dim 0, all other dims] whose rows (columns, where there
/// are more rows) are orthonormal. Every rank computes all of it in f64 on its device and keeps its
/// box: memory for the whole, and rows * columns * min(rows, columns) work. (Saxe, McClelland and
/// Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks",
/// 2013.)
Initializer orthogonal(double gain = 1);
/// Ones on the diagonal, else zeros. 2 dims, else InvalidArgument.
Initializer eye();
}  // namespace init

struct InitializeOptions {
  std::uint64_t seed = 1;
  std::string prefix = {};  ///< put before every name when keys are made
  Device device = default_device();
  /// Leaves parameters and buffers that have elements unchanged: for a new head on a loaded model.
  bool only_missing = false;
};

/// Allocates the shards of all parameters and all buffers on `device`, except those that are allocated
/// already, and fills all of them with initial values. **Existing values are overwritten** unless
/// `only_missing` is set. Parameter `name` draws from the stream named prefix + name under `seed`. Tied parameters use their first name. Also sets every
/// full name to prefix + name, as errors show it. Throws StateError naming type and position of a
/// parameter, buffer or module that is a member of a module of the tree but was never registered.
void initialize(Module& module, const InitializeOptions& options = {});

/// Initial values again, under another seed or the same, from the streams of the full names that
/// initialize() or a load gave. Throws StateError for a model that is not materialised.
void reinitialize(Module& module, std::uint64_t seed);

}  // namespace tessera::nn
