#pragma once

// Compares a kernel's CUDA entry point with the CPU's: one list of arguments over host memory is
// run on both, and all memory that either wrote is compared.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/math/convert_element.h"
#include "tessera/tensor/kernels/table.h"
#include "tessera/tensor/kernels/types.h"
#include "tessera/tests/gpu/device_buffer.h"

namespace tessera::testing {

// |gpu - cpu| <= atol + rtol * |cpu|; both 0: the same bits, but any NaN equals any NaN.
struct Tolerance {
  double rtol = 0;
  double atol = 0;
};

// Host memory of a tensor: contiguous, or with the given strides. Must outlive the arguments made
// from it.
class HostTensor {
 public:
  // Room for all elements that the strides reach, filled with bytes that are NaN in floating
  // dtypes.
  HostTensor(DType dtype, const Shape& shape, const Shape& strides, std::int64_t first = 0)
      : dtype_(dtype), shape_(shape), strides_(strides), first_(first) {
    std::int64_t last = first;
    for (int d = 0; d < shape.ndim(); ++d)
      last += std::max<std::int64_t>(shape[d] - 1, 0) * strides[d];
    const auto bytes = static_cast<std::size_t>(last + 1) * dtype_size(dtype);
    memory_ = std::make_shared<std::vector<std::uint64_t>>(bytes / 8 + 3, ~std::uint64_t{0});
  }
  HostTensor(DType dtype, const Shape& shape)
      : HostTensor(dtype, shape, contiguous_strides(shape)) {}

  // f(i) is the i-th element in row-major order, as a double.
  template <class F>
  HostTensor&& filled(F f) && {
    std::int64_t i = 0;
    each([&](std::int64_t at) {
      const double value = f(i++);
      with_type(dtype_, [&]<class T>() {
        reinterpret_cast<T*>(memory_->data())[at] = convert_element<T>(value);
      });
    });
    return std::move(*this);
  }
  // Irregular numbers in [low, high), always the same for one seed.
  HostTensor&& random(double low = -2, double high = 2, std::uint64_t seed = 1) && {
    std::uint64_t state = 0x9E3779B97F4A7C15u * (seed + 1);
    return std::move(*this).filled([&](std::int64_t) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return low + (high - low) * static_cast<double>(state >> 11) * 0x1p-53;
    });
  }

  View view() const {
    View out;
    out.data = reinterpret_cast<std::byte*>(memory_->data()) +
               static_cast<std::size_t>(first_) * dtype_size(dtype_);
    out.dtype = dtype_;
    out.shape = shape_;
    out.strides = strides_;
    out.storage = 1;
    return out;
  }
  ConstView const_view() const {
    const View v = view();
    ConstView out;
    out.data = v.data;
    out.dtype = v.dtype;
    out.shape = v.shape;
    out.strides = v.strides;
    out.storage = 1;
    return out;
  }
  operator View() const { return view(); }
  operator ConstView() const { return const_view(); }

 private:
  template <class F>
  void each(F f) const {
    for (std::int64_t i = 0; i < shape_.numel(); ++i) {
      std::int64_t rest = i, at = first_;
      for (int d = shape_.ndim() - 1; d >= 0; --d) {
        at += rest % shape_[d] * strides_[d];
        rest /= shape_[d];
      }
      f(at);
    }
  }

  DType dtype_;
  Shape shape_, strides_;
  std::int64_t first_;
  std::shared_ptr<std::vector<std::uint64_t>> memory_;
};

namespace detail {

// The bytes from a view's first element to its last one (strides are not negative).
template <class AnyView>
std::size_t reach(const AnyView& view) {
  if (view.numel() == 0) return 0;
  std::int64_t last = 0;
  for (int d = 0; d < view.shape.ndim(); ++d) last += (view.shape[d] - 1) * view.strides[d];
  return static_cast<std::size_t>(last + 1) * dtype_size(view.dtype);
}

// The offset of the i-th element in row-major order, in elements.
template <class AnyView>
std::int64_t offset_of(const AnyView& view, std::int64_t i) {
  std::int64_t offset = 0;
  for (int d = view.shape.ndim() - 1; d >= 0; --d) {
    offset += i % view.shape[d] * view.strides[d];
    i /= view.shape[d];
  }
  return offset;
}

// The memory of the views of one run: on the host, its copy on the GPU, and the copy's contents
// afterwards. Overlapping views (in place) share a copy.
class Copies {
 public:
  ~Copies() {
    for (const Range& range : ranges_) cudaFree(range.block);
  }

  void add(const void* data, std::size_t bytes) {
    if (bytes == 0) return;
    Range merged{.host = static_cast<std::byte*>(const_cast<void*>(data)), .bytes = bytes};
    for (auto it = ranges_.begin(); it != ranges_.end();) {
      if (it->host < merged.host + merged.bytes && merged.host < it->host + it->bytes) {
        std::byte* end = std::max(it->host + it->bytes, merged.host + merged.bytes);
        merged.host = std::min(it->host, merged.host);
        merged.bytes = static_cast<std::size_t>(end - merged.host);
        it = ranges_.erase(it);
      } else {
        ++it;
      }
    }
    ranges_.push_back(merged);
  }

  // Copies keep the host's alignment modulo 256 bytes.
  void to_gpu() {
    for (Range& range : ranges_) {
      void* block = nullptr;
      cuda_check(cudaMalloc(&block, range.bytes + 3 * kRoom));
      cuda_check(cudaMemset(block, 0xFF, range.bytes + 3 * kRoom));
      range.block = static_cast<std::byte*>(block);
      range.before = kRoom + reinterpret_cast<std::uintptr_t>(range.host) % 256;
      cuda_check(
          cudaMemcpy(range.block + range.before, range.host, range.bytes, cudaMemcpyHostToDevice));
    }
  }
  // Reads the memory back; checks that nothing was written before and after it.
  void from_gpu() {
    for (Range& range : ranges_) {
      range.result.resize(range.bytes + 3 * kRoom);
      cuda_check(cudaMemcpy(range.result.data(), range.block, range.result.size(),
                            cudaMemcpyDeviceToHost));
      const auto untouched = [](std::byte b) { return b == std::byte{0xFF}; };
      const auto first = range.result.begin() + static_cast<std::ptrdiff_t>(range.before);
      const auto last = first + static_cast<std::ptrdiff_t>(range.bytes);
      CHECK(std::all_of(range.result.begin(), first, untouched));
      CHECK(std::all_of(last, range.result.end(), untouched));
    }
  }

  void* on_gpu(const void* data) const {
    const Range* range = find(data);
    return range == nullptr ? const_cast<void*>(data)  // an empty view
                            : range->block + range->before + distance(*range, data);
  }
  const std::byte* result(const void* data) const {
    const Range& range = *find(data);
    return range.result.data() + range.before + distance(range, data);
  }

 private:
  static constexpr std::size_t kRoom = 512;  // before and after a copy, to detect stray writes
  struct Range {
    std::byte* host = nullptr;
    std::size_t bytes = 0;
    std::byte* block = nullptr;
    std::size_t before = 0;
    std::vector<std::byte> result{};
  };

  static std::ptrdiff_t distance(const Range& range, const void* data) {
    return static_cast<const std::byte*>(data) - range.host;
  }
  const Range* find(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    for (const Range& range : ranges_)
      if (at >= range.host && at < range.host + range.bytes) return &range;
    return nullptr;
  }

  std::vector<Range> ranges_;
};

template <class K>
void run_on_gpu(const typename K::Args& args, const Copies& copies) {
  typename K::Args there = args;
  K::visit(there, [&](const auto& view) {
    auto& changed = const_cast<std::remove_cvref_t<decltype(view)>&>(view);
    if (view.defined()) changed.data = copies.on_gpu(view.data);
  });
  const std::size_t bytes = workspace_bytes<K>(DeviceType::kCuda, args);
  void* scratch = nullptr;
  cuda_check(cudaMalloc(&scratch, bytes + 256));
  cuda_check(cudaMemset(scratch, 0xFF, bytes + 256));
  K::cuda(nullptr, there, {.data = scratch, .bytes = bytes});
  cuda_check(cudaDeviceSynchronize());
  cuda_check(cudaFree(scratch));
}

template <class K>
void run_on_cpu(const typename K::Args& args) {
  const std::size_t bytes = workspace_bytes<K>(DeviceType::kCpu, args);
  std::vector<std::uint64_t> scratch(bytes / 8 + 8);
  void* aligned = scratch.data();
  std::size_t space = scratch.size() * 8;
  std::align(64, bytes, aligned, space);
  std::get<CpuEntry<K>>(cpu_table()).run(args, {.data = aligned, .bytes = bytes});
}

template <class T>
bool same_element(const T& cpu, const T& gpu, Tolerance tolerance) {
  const double a = convert_element<double>(cpu), b = convert_element<double>(gpu);
  if (std::memcmp(&cpu, &gpu, sizeof(T)) == 0 || (std::isnan(a) && std::isnan(b))) return true;
  if (tolerance.rtol == 0 && tolerance.atol == 0) return false;
  return a == b || std::abs(a - b) <= tolerance.atol + tolerance.rtol * std::abs(a);
}

template <class AnyView>
void compare_view(int number, const AnyView& view, const std::byte* gpu, Tolerance tolerance) {
  std::int64_t different = 0;
  double worst = 0;
  with_type(view.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      const std::int64_t at = offset_of(view, i);
      const T& c = static_cast<const T*>(static_cast<const void*>(view.data))[at];
      const T& g = reinterpret_cast<const T*>(gpu)[at];
      if (same_element(c, g, tolerance)) continue;
      const double a = convert_element<double>(c), b = convert_element<double>(g);
      worst = std::max(worst, std::abs(a - b));
      if (++different == 1)
        UNSCOPED_INFO("view " << number << ", element " << i << ": CPU " << a << ", GPU " << b);
    }
  });
  if (different > 0)
    UNSCOPED_INFO("view " << number << ": " << different << " of " << view.numel()
                          << " elements differ, by at most " << worst);
  CHECK(different == 0);
}

}  // namespace detail

// Runs K on the CPU and on the GPU with the same memory and compares the contents of all its views.
// Nothing may be written before and after them. `what` appears in failures.
template <class K>
void compare_devices(const std::string& what, const typename K::Args& args,
                     Tolerance tolerance = {}) {
  INFO(K::kName << ": " << what);
  detail::Copies copies;
  K::visit(args, [&](const auto& view) {
    if (view.defined()) copies.add(view.data, detail::reach(view));
  });
  copies.to_gpu();
  detail::run_on_gpu<K>(args, copies);
  detail::run_on_cpu<K>(args);
  copies.from_gpu();
  int number = 0;
  K::visit(args, [&](const auto& view) {
    ++number;
    if (!view.defined() || view.numel() == 0) return;
    detail::compare_view(number, view, copies.result(view.data), tolerance);
  });
}

}  // namespace tessera::testing
