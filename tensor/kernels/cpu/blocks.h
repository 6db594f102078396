#pragma once

/// Elementwise work on operands of any dtype and layout, through one path.
///
/// All operands have one shape; its elements in row-major order are split into blocks. An operand
/// that has the compute type and lies in that order is used in place; any other is converted block
/// by block into a buffer on the stack. Its loop always runs over plain arrays: the bits of an element
/// do not depend on layouts. The usual dtypes and layouts need no buffers, see direct_map.h.

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "tessera/tensor/kernels/cpu/convert.h"
#include "tessera/tensor/kernels/cpu/direct_map.h"
#include "tessera/tensor/kernels/cpu/easy_run.h"
#include "tessera/tensor/kernels/cpu/exp_run.h"
#include "tessera/tensor/kernels/cpu/tables.h"
#include "tessera/tensor/kernels/cpu/traversal.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cpu {

inline constexpr std::int64_t kBlockLength = 512;

/// An input operand: a view, or one number for all elements.
class Input {
 public:
  explicit Input(const ConstView& view)
      : data_(view.data),
        dtype_(view.dtype),
        in_order_(is_contiguous(view.shape, view.strides)),
        walk_(make_traversal(view.shape, view.strides)) {}
  /// Of bf16 or f16, with values_of() for its dtype: the elements are those of the table.
  Input(const ConstView& view, const float* table) : Input(view) { table_ = table; }
  explicit Input(double number) : number_(number), is_number_(true) {}
  explicit Input(const Operand& operand)
      : Input(operand.is_number() ? Input(operand.number) : Input(operand.view)) {}

  /// True if elements of type C can be read in place, in row-major order.
  template <class C>
  bool direct() const {
    return in_order_ && dtype_ == dtype_of<C> && table_ == nullptr;
  }
  /// Elements [begin, begin + n) as plain values: in place, or in `buffer`.
  template <class C>
  const C* read(std::int64_t begin, std::int64_t n, C* buffer) const {
    if (is_number_) {
      std::fill_n(buffer, n, number_as<C>(number_));
      return buffer;
    }
    if (direct<C>()) return static_cast<const C*>(data_) + begin;
    if (in_order_) {
      load(begin, 1, n, buffer);
      return buffer;
    }
    C* next = buffer;
    walk(walk_, begin, begin + n, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      load(offsets[0], steps[0], count, next);
      next += count;
    });
    return buffer;
  }

 private:
  template <class C>
  void load(std::int64_t at, std::int64_t stride, std::int64_t n, C* out) const {
    const void* from = advance(data_, dtype_, at);
    if constexpr (std::is_same_v<C, float>) {
      if (table_ != nullptr) return look_up_run(table_, from, stride, n, out, 1);
    }
    load_run(dtype_, from, stride, n, out);
  }

  const float* table_ = nullptr;
  const void* data_ = nullptr;
  double number_ = 0;
  DType dtype_ = DType::kF32;
  bool is_number_ = false;
  bool in_order_ = false;
  Traversal<1> walk_;
};

/// The output operand.
class Output {
 public:
  explicit Output(const View& view)
      : data_(view.data),
        dtype_(view.dtype),
        in_order_(is_contiguous(view.shape, view.strides)),
        walk_(make_traversal(view.shape, view.strides)) {}

  template <class C>
  bool direct() const {
    return in_order_ && dtype_ == dtype_of<C>;
  }
  /// Where elements [begin, ...) must be written before commit().
  template <class C>
  C* place(std::int64_t begin, C* buffer) const {
    return direct<C>() ? static_cast<C*>(data_) + begin : buffer;
  }
  template <class C>
  void commit(std::int64_t begin, std::int64_t n, const C* buffer) const {
    if (direct<C>()) return;
    if (in_order_) return store_run(dtype_, advance(data_, dtype_, begin), 1, n, buffer);
    walk(walk_, begin, begin + n, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      store_run(dtype_, advance(data_, dtype_, offsets[0]), steps[0], count, buffer);
      buffer += count;
    });
  }

 private:
  void* data_;
  DType dtype_;
  bool in_order_;
  Traversal<1> walk_;
};

/// y[i] = f(inputs[i]...) over plain arrays, by an overload of run() where a functor has one. An output may be one of
/// the inputs.
template <class C, class F, class... Pointers>
inline void apply_run(std::int64_t n, F f, C* y, const Pointers*... inputs) {
  if constexpr (requires { run(n, f, inputs..., y); }) return run(n, f, inputs..., y);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) y[i] = f(inputs[i]...);
}

/// Elements [begin, end) of y = f(inputs...), computed in C.
template <class C, std::size_t N, class F, std::size_t... I>
void map_range(const Output& y, const std::array<Input, N>& inputs, std::int64_t begin,
               std::int64_t end, F f, std::index_sequence<I...>) {
  const bool all_direct = y.direct<C>() && (inputs[I].template direct<C>() && ...);
  const std::int64_t step = all_direct ? end - begin : kBlockLength;
  C out[kBlockLength];
  C in[N][kBlockLength];
  for (std::int64_t at = begin; at < end; at += step) {
    const std::int64_t n = std::min(step, end - at);
    C* to = y.place<C>(at, out);
    apply_run<C>(n, f, to, inputs[I].template read<C>(at, n, in[I])...);
    y.commit<C>(at, n, to);
  }
}

/// y = f(inputs...) for all elements, computed in C, distributed over threads.
template <class C, class F, class... Inputs>
void map(const View& view, F f, const Inputs&... operands) {
  if constexpr ((std::is_convertible_v<const Inputs&, Operand> && ...)) {
    if (map_direct<C>(view, f, std::array<Operand, sizeof...(Inputs)>{Operand(operands)...}))
      return;
  }
  const Output y(view);
  const std::array<Input, sizeof...(Inputs)> inputs = {Input(operands)...};
  parallel_pieces(view.numel(), [&](std::int64_t begin, std::int64_t end) {
    map_range<C>(y, inputs, begin, end, f, std::make_index_sequence<sizeof...(Inputs)>());
  });
}

}  // namespace tessera::cpu
