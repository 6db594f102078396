#pragma once

/// Data sets made of tensors, of other data sets, and of functions on their examples.

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/nn/data/data_loader.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn::data {
namespace detail {

/// Throws InvalidArgument unless there is a tensor, and all are on the CPU with equal numbers of
/// rows. Returns that number.
std::int64_t checked_rows(const Tensor* tensors, std::size_t count);
/// Throws InvalidArgument for an index outside [0, size).
void check_index(const char* where, std::int64_t index, std::int64_t size);
void check_indices(const std::vector<std::int64_t>& indices, std::int64_t size);

}  // namespace detail

/// Example i is row i of each tensor, as a tuple of views: TensorDataset(pixels, labels) for pixels
/// [n, 3, 32, 32] and labels [n] has n examples of [3, 32, 32] and [].
template <std::size_t Count>
class TensorDataset {
 public:
  /// Throws InvalidArgument unless all are on the CPU with equal extents of dim 0.
  template <class... Tensors>
  requires(sizeof...(Tensors) == Count && (std::convertible_to<Tensors, Tensor> &&
                                           ...)) explicit TensorDataset(const Tensors&... tensors)
      : tensors_{tensors...}, size_(detail::checked_rows(tensors_.data(), Count)) {}

  std::int64_t size() const { return size_; }
  auto get(std::int64_t index) const {
    detail::check_index("nn.TensorDataset", index, size_);
    return std::apply(
        [index](const auto&... tensors) { return std::make_tuple(tensors.select(0, index)...); },
        tensors_);
  }

 private:
  std::array<Tensor, Count> tensors_;
  std::int64_t size_;
};

template <class... Tensors>
TensorDataset(const Tensors&...) -> TensorDataset<sizeof...(Tensors)>;

/// The examples of `data` at the given indices, in that order. `Data` as for DataLoader.
template <Dataset Data>
class Subset {
 public:
  /// Throws InvalidArgument for an index outside the data set.
  Subset(Data&& data, std::vector<std::int64_t> indices)
      : data_(std::forward<Data>(data)), indices_(std::move(indices)) {
    detail::check_indices(indices_, data_.size());
  }
  std::int64_t size() const { return static_cast<std::int64_t>(indices_.size()); }
  auto get(std::int64_t index) const {
    detail::check_index("nn.Subset", index, size());
    return data_.get(indices_[static_cast<std::size_t>(index)]);
  }

 private:
  Data data_;
  std::vector<std::int64_t> indices_;
};

template <class Data>
Subset(Data&&, std::vector<std::int64_t>) -> Subset<Data>;

/// The examples of `data` with a function applied to each: to the whole example where the function
/// accepts it, else to its first member (the image of a pair of image and label). The function is
/// called on several threads at once; random numbers that it draws depend on seed, epoch and sample.
///
///     Transformed(images, Compose{RandomCrop({.size = 28, .padding = 4}), Normalize({0.5}, {0.5})})
template <Dataset Data, class Function>
class Transformed {
 public:
  Transformed(Data&& data, Function function)
      : data_(std::forward<Data>(data)), function_(std::move(function)) {}
  std::int64_t size() const { return data_.size(); }
  auto get(std::int64_t index) const { return applied(data_.get(index)); }

 private:
  template <class Example>
  auto applied(Example example) const {
    if constexpr (std::is_invocable_v<const Function&, Example&&>) {
      return function_(std::move(example));
    } else if constexpr (detail::is_tuple<Example>) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        auto first = function_(std::move(std::get<0>(example)));
        if constexpr (detail::is_pair<Example>)
          return std::make_pair(std::move(first), std::move(std::get<I + 1>(example))...);
        else
          return std::make_tuple(std::move(first), std::move(std::get<I + 1>(example))...);
      }
      (std::make_index_sequence<std::tuple_size_v<Example> - 1>());
    } else {
      static_assert(detail::always_false<Example>,
                    "Transformed needs a function of the example, or of the first member of an "
                    "example that is a std::pair or tuple");
    }
  }

  Data data_;
  Function function_;
};

template <class Data, class Function>
Transformed(Data&&, Function) -> Transformed<Data, Function>;

}  // namespace tessera::nn::data
