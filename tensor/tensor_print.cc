/// Tensor::str(): values as nested lists, long ones with their middle left out.

#include <fmt/format.h>

#include <string>
#include <type_traits>

#include "tessera/tensor/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/tensor_impl.h"

namespace tessera {
namespace {

template <class T>
using CommonFloat = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr std::int64_t kPrintAll = 256;  // elements; bigger tensors are shortened
constexpr std::int64_t kEdge = 3;        // entries kept at each end of a shortened dim

class Printer {
 public:
  Printer(const Shape& shape, const Shape& strides, DType dtype, const void* data)
      : shape_(shape),
        strides_(strides),
        dtype_(dtype),
        data_(data),
        shortens_(shape.numel() > kPrintAll) {}

  std::string print(int dim, std::int64_t at) const {
    if (dim == shape_.ndim()) return element(at);
    const std::string separator =
        dim + 1 == shape_.ndim() ? ", " : ",\n" + std::string(dim + 1, ' ');
    const std::int64_t extent = shape_[dim];
    std::string out = "[";
    for (std::int64_t i = 0; i < extent; ++i) {
      if (i > 0) out += separator;
      if (shortens_ && i == kEdge && extent > 2 * kEdge) {
        out += "...";
        i = extent - kEdge;
        out += separator;
      }
      out += print(dim + 1, at + i * strides_[dim]);
    }
    return out + "]";
  }

 private:
  std::string element(std::int64_t at) const {
    return dispatch_all(dtype_, "tensor.str", [&]<class T>() {
      const T value = static_cast<const T*>(data_)[at];
      if constexpr (is_floating(dtype_of<T>)) {
        return fmt::format("{:.6g}", static_cast<CommonFloat<T>>(value));
      } else {
        return fmt::format("{}", value);
      }
    });
  }

  const Shape& shape_;
  const Shape& strides_;
  DType dtype_;
  const void* data_;
  bool shortens_;
};

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "tensor (undefined)";
  const Impl& self = impl();
  const std::string& name = self.storage().name();
  std::string out = fmt::format("tensor {}{} {} on {}", name.empty() ? "" : "\"" + name + "\" ",
                                dtype_name(self.dtype), self.shape.str(), device().str());
  if (device().is_null()) return out;
  switch (self.storage().state()) {
    case StorageState::kReleased:
      return out + ", released";
    case StorageState::kFilling:
      return out + ", being filled";
    case StorageState::kReady:
      break;
  }
  current_stream(device()).synchronize();
  return out + "\n" +
         Printer(self.shape, self.strides, self.dtype, self.storage().data()).print(0, self.offset);
}

}  // namespace tessera
