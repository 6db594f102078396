#pragma once

/// How the examples of a batch become one batch, and how the tensors of a batch are found.
///
///     example                                    batch
///     Tensor [a, b]                              Tensor [rows, a, b]
///     bool; another integer; float; double       Tensor [rows], bool; i64; f32; f64
///     std::string                                std::vector<std::string>
///     std::pair, tuple, array, vector of these   the same of their batches

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/tensor/tensor.h"

namespace tessera::nn::data {
namespace detail {

/// Types that are made of a fixed number of others, or of a list of one other type.
template <class T>
inline constexpr bool is_tuple = false;
template <class... T>
inline constexpr bool is_tuple<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool is_tuple<std::pair<A, B>> = true;
template <class T>
inline constexpr bool is_pair = false;
template <class A, class B>
inline constexpr bool is_pair<std::pair<A, B>> = true;
template <class T>
inline constexpr bool is_list = false;
template <class T, class A>
inline constexpr bool is_list<std::vector<T, A>> = true;
template <class T, std::size_t N>
inline constexpr bool is_list<std::array<T, N>> = true;
template <class T>
inline constexpr bool is_array = false;
template <class T, std::size_t N>
inline constexpr bool is_array<std::array<T, N>> = true;

/// Of a value that holds no tensor: nothing to do.
template <class T>
inline constexpr bool is_plain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>;

struct AnyPart {
  template <class... Parts>
  void operator()(Parts&&...) const {}
};
template <class T>
concept OffersVisitTensors = requires(T& value) {
  value.visit_tensors(AnyPart{});
};

template <class T>
inline constexpr bool always_false = false;

/// One tensor of the examples' tensors, which have equal shapes and dtypes. Throws InvalidArgument
/// with the position of the first example that differs, and for a tensor that is not on the CPU.
Tensor stack_examples(const std::vector<Tensor>& examples, bool pinned);
/// Throws InvalidArgument: the lists of two examples have different lengths.
[[noreturn]] void throw_lengths_differ(std::size_t example, std::size_t length, std::size_t first);

/// The dtype in which numbers of type T are collated.
template <class T>
using CollatedNumber =
    std::conditional_t<std::is_same_v<T, bool> || std::is_floating_point_v<T>, T, std::int64_t>;

}  // namespace detail

/// Calls f(Tensor&) for every tensor inside `value`: a Tensor, the types that Collate makes, and
/// classes with a member `template <class F> void visit_tensors(F&& f)` that calls f on each part.
template <class T, class F>
void visit_batch_tensors(T& value, const F& f) {
  if constexpr (std::is_same_v<T, Tensor>) {
    f(value);
  } else if constexpr (detail::is_tuple<T>) {
    std::apply([&f](auto&... parts) { (visit_batch_tensors(parts, f), ...); }, value);
  } else if constexpr (detail::is_list<T>) {
    if constexpr (!detail::is_plain<typename T::value_type>)
      for (auto& part : value) visit_batch_tensors(part, f);
  } else if constexpr (!detail::is_plain<T>) {
    static_assert(detail::OffersVisitTensors<T>,
                  "DataLoader must find the tensors of a batch: make it a Tensor, a std::pair, "
                  "tuple, array or vector of tensors, or give its class a member `template <class "
                  "F> void visit_tensors(F&& f)` that calls f on each part");
    if constexpr (detail::OffersVisitTensors<T>)
      value.visit_tensors([&f](auto&... parts) { (visit_batch_tensors(parts, f), ...); });
  }
}

/// The default: stacks the examples, field by field.
class Collate {
 public:
  /// `pinned`: into page-locked memory, see TensorOptions.
  explicit Collate(bool pinned = false) : pinned_(pinned) {}

  /// At least one example.
  template <class Example>
  auto operator()(std::span<const Example> examples) const {
    return fields(examples.size(), [&](std::size_t i) -> const Example& { return examples[i]; });
  }

 private:
  /// The batch of one field, at(i) of each example.
  template <class At>
  auto fields(std::size_t count, const At& at) const {
    using Field = std::remove_cvref_t<decltype(at(0))>;
    if constexpr (std::is_same_v<Field, Tensor>) {
      std::vector<Tensor> tensors;
      tensors.reserve(count);
      for (std::size_t i = 0; i < count; ++i) tensors.push_back(at(i));
      return detail::stack_examples(tensors, pinned_);
    } else if constexpr (std::is_arithmetic_v<Field>) {
      std::vector<detail::CollatedNumber<Field>> numbers;
      numbers.reserve(count);
      for (std::size_t i = 0; i < count; ++i) numbers.push_back(at(i));
      return Tensor::from_vector(numbers, {static_cast<std::int64_t>(count)}, kCpu);
    } else if constexpr (std::is_same_v<Field, std::string>) {
      std::vector<std::string> texts;
      for (std::size_t i = 0; i < count; ++i) texts.push_back(at(i));
      return texts;
    } else if constexpr (detail::is_tuple<Field>) {
      return tuple_fields<Field>(count, at, std::make_index_sequence<std::tuple_size_v<Field>>());
    } else if constexpr (detail::is_list<Field>) {
      return list_fields<Field>(count, at);
    } else {
      static_assert(detail::always_false<Field>,
                    "Collate does not know this type: make an example of Tensors, numbers, strings "
                    "and std::pair, tuple, array or vector of these, or give DataLoader a function "
                    "from std::span<const Example> to a batch");
    }
  }

  template <class Field, class At, std::size_t... I>
  auto tuple_fields(std::size_t count, const At& at, std::index_sequence<I...>) const {
    const auto part = [&]<std::size_t J>(std::integral_constant<std::size_t, J>) {
      return fields(
          count, [&](std::size_t i) -> const auto& { return std::get<J>(at(i)); });
    };
    if constexpr (detail::is_pair<Field>)
      return std::make_pair(part(std::integral_constant<std::size_t, I>{})...);
    else
      return std::make_tuple(part(std::integral_constant<std::size_t, I>{})...);
  }

  template <class Field, class At>
  auto list_fields(std::size_t count, const At& at) const {
    const std::size_t length = at(0).size();
    for (std::size_t i = 1; i < count; ++i)
      if (at(i).size() != length) detail::throw_lengths_differ(i, at(i).size(), length);
    const auto part = [&](std::size_t j) {
      return fields(
          // By value where the list has no elements to refer to: std::vector<bool>.
          count, [&](std::size_t i) -> decltype(auto) { return at(i)[j]; });
    };
    using Part = decltype(part(0));
    if constexpr (detail::is_array<Field>) {
      std::array<Part, std::tuple_size_v<Field>> parts;
      for (std::size_t j = 0; j < length; ++j) parts[j] = part(j);
      return parts;
    } else {
      std::vector<Part> parts;
      for (std::size_t j = 0; j < length; ++j) parts.push_back(part(j));
      return parts;
    }
  }

  bool pinned_;
};

}  // namespace tessera::nn::data
