#include "tessera/models/training/device_rows.h"

#include "tessera/tensor/memory/transfer.h"

namespace tessera::models {

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

}  // namespace tessera::models
