#pragma once

/// A list of fixed length whose first entries need no heap memory: edges and outputs of graph
/// nodes, of which there are nearly always one to three.

#include <array>
#include <cstddef>
#include <memory>
#include <span>

namespace tessera::detail {

template <class T, std::size_t kInline>
class InlineList {
 public:
  /// `size` default values.
  explicit InlineList(std::size_t size)
      : size_(size), heap_(size > kInline ? std::make_unique<T[]>(size) : nullptr) {}

  std::size_t size() const { return size_; }
  std::span<T> span() { return {heap_ ? heap_.get() : inline_.data(), size_}; }
  std::span<const T> span() const { return {heap_ ? heap_.get() : inline_.data(), size_}; }

 private:
  std::size_t size_;
  std::array<T, kInline> inline_{};
  std::unique_ptr<T[]> heap_;
};

}  // namespace tessera::detail
