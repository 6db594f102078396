#pragma once

/// The mean of numbers that come batch by batch, over one rank or all.
///
///     nn::RunningMean loss;
///     for (auto [x, labels] : loader) loss.add(cross_entropy(model(x), labels), labels.dim(0));
///     std::printf("%f\n", loss.mean());                    // of this rank
///     std::printf("%f\n", loss.over_ranks(world.mesh()).mean());  // collective

#include <string>

#include "tessera/autograd/variable.h"
#include "tessera/nn/mesh/mesh.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

/// A sum and a count, in f64. A value; used by one thread.
class RunningMean {
 public:
  /// Adds the mean of `count` numbers. A count of 0 adds nothing, whatever the mean, so a rank
  /// without samples may add a NaN. Throws InvalidArgument for a negative count.
  void add(double mean, double count = 1);
  /// The same of a tensor of one element and any dtype; the host waits for it. Throws as item().
  void add(const Tensor& mean, double count = 1);
  void add(const Variable& mean, double count = 1) { add(mean.tensor(), count); }
  /// Adds `count` numbers of the given sum. Throws as add().
  void add_sum(double sum, double count);

  double sum() const { return sum_; }
  double count() const { return count_; }
  double mean() const;  ///< NaN if nothing was added
  void reset() { *this = RunningMean(); }

  /// The numbers of all ranks along an axis. They are added in the order of the ranks, so all ranks
  /// get equal bits. `device`: of the tensor that is gathered. Collective; blocks the host.
  RunningMean over_ranks(const MeshArgument& mesh, const std::string& axis = "data",
                         Device device = default_device()) const;

 private:
  double sum_ = 0;
  double count_ = 0;
};

}  // namespace tessera::nn
