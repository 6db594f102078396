/// Tensor::str(): values as nested lists in aligned columns, long ones with their middle left out;
/// and Tensor::debug_str().

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <string>
#include <type_traits>

#include "tessera/tensor/host_elements.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/tensor.h"
#include "tessera/tensor/tensor_impl.h"

namespace tessera {
namespace {

constexpr std::int64_t kPrintAll = 256;  // elements; larger tensors are shortened
constexpr std::int64_t kEdge = 3;        // entries kept at each end of a shortened dim
constexpr int kLineWidth = 100;

class Printer {
 public:
  Printer(const Shape& shape, const Shape& strides, DType dtype, const void* data)
      : shape_(shape),
        strides_(strides),
        dtype_(dtype),
        data_(data),
        shortens_(shape.numel() > kPrintAll) {}

  std::string print(std::int64_t offset) {
    visit(0, offset, [this](std::int64_t at) { note(at); });
    visit(0, offset, [this](std::int64_t at) { width_ = std::max(width_, element(at).size()); });
    return list(0, offset);
  }

 private:
  // The indices of a dim that are printed; -1 stands for those left out.
  template <class Body>
  void entries(int dim, const Body& body) const {
    const std::int64_t extent = shape_[dim];
    const bool shortens = shortens_ && extent > 2 * kEdge;
    for (std::int64_t i = 0; i < extent; ++i) {
      if (shortens && i == kEdge) {
        body(-1);
        i = extent - kEdge;
      }
      body(i);
    }
  }

  template <class Body>
  void visit(int dim, std::int64_t at, const Body& body) const {
    if (dim == shape_.ndim()) return body(at);
    entries(dim, [&](std::int64_t i) {
      if (i >= 0) visit(dim + 1, at + i * strides_[dim], body);
    });
  }

  // Reads one number, to choose a format that suits all of them.
  void note(std::int64_t at) {
    if (!is_floating(dtype_)) return;
    const double magnitude = std::abs(number(at));
    if (!std::isfinite(magnitude)) return;
    whole_ = whole_ && magnitude == std::trunc(magnitude);
    largest_ = std::max(largest_, magnitude);
    if (magnitude > 0) smallest_ = smallest_ == 0 ? magnitude : std::min(smallest_, magnitude);
  }

  double number(std::int64_t at) const {
    return dispatch_floating(dtype_, "tensor.str", [&]<class T>() {
      return static_cast<double>(static_cast<const T*>(data_)[at]);
    });
  }

  std::string element(std::int64_t at) const {
    if (is_floating(dtype_)) {
      const double value = number(at);
      if (shape_.ndim() == 0 || !std::isfinite(value)) return fmt::format("{:.6g}", value);
      if (largest_ >= 1e5 || (smallest_ > 0 && smallest_ < 1e-4))
        return fmt::format("{:.4e}", value);
      return whole_ ? fmt::format("{:.0f}.", value) : fmt::format("{:.4f}", value);
    }
    return dispatch_all(dtype_, "tensor.str", [&]<class T>() -> std::string {
      if constexpr (is_floating(dtype_of<T>)) {
        return {};
      } else {
        return fmt::format("{}", static_cast<const T*>(data_)[at]);
      }
    });
  }

  std::string list(int dim, std::int64_t at) const {
    if (dim == shape_.ndim()) return fmt::format("{:>{}}", element(at), width_);
    const bool innermost = dim + 1 == shape_.ndim();
    const std::string indent(static_cast<std::size_t>(dim) + 1, ' ');
    std::string out = "[", line = indent;
    bool first = true;
    entries(dim, [&](std::int64_t i) {
      const std::string entry = i < 0 ? "..." : list(dim + 1, at + i * strides_[dim]);
      const bool breaks = !innermost || line.size() + entry.size() + 3 > kLineWidth;
      if (!first) out += breaks ? ",\n" + indent : ", ";
      line = !first && breaks ? indent + entry : line + entry + ", ";
      out += entry;
      first = false;
    });
    return out + "]";
  }

  const Shape& shape_;
  const Shape& strides_;
  DType dtype_;
  const void* data_;
  bool shortens_;
  std::size_t width_ = 0;
  bool whole_ = true;
  double largest_ = 0;
  double smallest_ = 0;
};

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "tensor (undefined)";
  const Impl& self = impl();
  const TensorStorage& storage = self.storage();
  const std::string& name = storage.name();
  std::string out = fmt::format("tensor {}{} {} on {}", name.empty() ? "" : "\"" + name + "\" ",
                                dtype_name(self.dtype), self.shape.str(), device().str());
  if (device().is_null()) return out;
  switch (storage.state()) {
    case StorageState::kReleased:
      return out + ", released";
    case StorageState::kFilling:
      return out + ", being filled";
    case StorageState::kReady:
      break;
  }
  current_stream(device()).synchronize();
  const HostElements elements(*this);
  return out + "\n" + Printer(self.shape, self.strides, self.dtype, elements.first()).print(0);
}

std::string Tensor::debug_str() const {
  if (!defined()) return "tensor (undefined)";
  const Impl& self = impl();
  const TensorStorage& storage = self.storage();
  return fmt::format(
      "tensor {} {} strides {} offset {} on {}, storage #{}{} of {} bytes, version {}",
      dtype_name(self.dtype), self.shape.str(), self.strides.str(), self.offset, device().str(),
      storage.id(), storage.name().empty() ? "" : " \"" + storage.name() + "\"", storage.bytes(),
      version());
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.str(); }

}  // namespace tessera
