#include "tessera/models/training/task.h"

#include "tessera/distributed/collectives.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"

namespace tessera::models {

BatchShare share_at(const nn::data::BatchPosition& position) {
  return {.samples = position.samples,
          .first_sample = position.first_sample,
          .rows = position.rows,
          .padded_rows = position.padded_rows,
          .count = position.rows};
}

bool DeviceRows::has_room_for(const Tensor& rows) const {
  return buffer_.defined() && buffer_.dtype() == rows.dtype() && buffer_.dim(0) >= rows.dim(0) &&
         buffer_.shape().with(0, rows.dim(0)) == rows.shape();
}

void DeviceRows::load(const Tensor& rows, Device device) {
  if (!device.is_cuda()) {
    rows_ = to_device(rows, device);
    return;
  }
  if (!has_room_for(rows))
    buffer_ = Tensor::empty(rows.shape(), {.dtype = rows.dtype(), .device = device});
  rows_ = buffer_.narrow(0, 0, rows.dim(0));
  transfer_(rows_, rows);
}

std::vector<double> gather_figures(distributed::ProcessGroup& group,
                                   std::span<const double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Tensor mine = Tensor::from_vector(std::vector(values.begin(), values.end()), {count}, kCpu);
  const Tensor all = Tensor::empty({count * group.size()}, {.dtype = DType::kF64, .device = kCpu});
  distributed::all_gather(group, {&mine, 1}, {&all, 1}, "metrics");
  return all.to_vector<double>();
}

double host_value(const Tensor& tensor) { return cast(tensor, DType::kF64).item<double>(); }

}  // namespace tessera::models
