#include "tessera/nn/training/running_mean.h"

#include <limits>

#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {

void RunningMean::add(double mean, double count) { add_sum(count == 0 ? 0 : mean * count, count); }

void RunningMean::add(const Tensor& mean, double count) {
  add(cast(mean, DType::kF64).item<double>(), count);
}

void RunningMean::add_sum(double sum, double count) {
  TESSERA_CHECK(count >= 0, "nn.RunningMean", "the count is {}; it must be 0 or more", count);
  sum_ += sum;
  count_ += count;
}

double RunningMean::mean() const {
  return count_ > 0 ? sum_ / count_ : std::numeric_limits<double>::quiet_NaN();
}

RunningMean RunningMean::over_ranks(const MeshArgument& mesh, const std::string& axis,
                                    Device device) const {
  const Tensor mine = Tensor::from_vector<double>({sum_, count_}, {1, 2}, device);
  const std::vector<double> ranks =
      mesh.checked("nn.RunningMean").all_gather(mine, axis).to_vector<double>();
  RunningMean all;
  for (std::size_t rank = 0; rank < ranks.size(); rank += 2)
    all.add_sum(ranks[rank], ranks[rank + 1]);
  return all;
}

}  // namespace tessera::nn
