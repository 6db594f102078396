#pragma once

/// The batches of a data set, for training loops.
///
///     nn::data::DataLoader loader(images, {.batch_size = 64, .shuffle = true, .workers = 2});
///     for (int epoch = 0; epoch < 10; ++epoch)
///       for (auto [pixels, labels] : loader) ...
///
/// A data set is any class with
///
///     std::int64_t size() const;
///     Example get(std::int64_t index) const;   // called on several threads at once
///
/// where an example is a Tensor, a number, a string, or a std::pair, tuple, array or vector of
/// these (collate.h). datasets.h has data sets made of tensors, subsets, and per-sample transforms.
///
/// **Ranks.** batch_size counts the samples of all ranks together, and a batch is the same for any
/// number of ranks: with `.ranks = world.size(), .rank = world.rank()` each rank gets its part, and
/// all ranks have equally many batches. Where ranks do not divide a batch, `pad` says what happens.
///
/// **Order and randomness.** Seed, epoch and number of samples determine the samples of a batch. Seed,
/// epoch and sample determine the random numbers that get() and transforms draw (rand, randint,
/// RandomCrop, ...). Workers, ranks and timing change neither.
///
/// **Workers** are threads that make batches ahead. They compute on the CPU with one thread each,
/// without gradients, in memory that no rank's counters count; the calling thread then copies a
/// batch to `device`. Tensors of the data set must have been computed before.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/nn/data/batch_order.h"
#include "tessera/nn/data/collate.h"
#include "tessera/nn/data/loader_core.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/memory/transfer.h"

namespace tessera::nn::data {

/// A data set: see above.
template <class Data>
concept Dataset = requires(const std::remove_reference_t<Data>& data, std::int64_t index) {
  { data.size() } -> std::convertible_to<std::int64_t>;
  data.get(index);
};

/// What get() returns.
template <class Data>
using ExampleOf =
    std::remove_cvref_t<decltype(std::declval<const std::remove_reference_t<Data>&>().get(
        std::int64_t{0}))>;

/// `Data` is the class of the data set, or a reference to it: an lvalue is referred to and must
/// outlive the loader, an rvalue is moved into it. `collate(std::span<const Example>)` returns a
/// batch of at least one example, in a type that visit_batch_tensors() accepts, with rows in dim 0
/// of every tensor. Only one thread may use a loader.
template <Dataset Data, class Collator = Collate>
class DataLoader {
 public:
  using Example = ExampleOf<Data>;
  using Batch =
      std::remove_cvref_t<std::invoke_result_t<const Collator&, std::span<const Example>>>;
  class Iterator;

  /// Throws InvalidArgument for a batch_size below 1, a rank that does not exist, negative workers,
  /// and a prefetch below 1. An empty data set is legal: its epochs have no batches.
  explicit DataLoader(
      Data&& data, const DataLoaderOptions& options = {}) requires std::same_as<Collator, Collate>
      : DataLoader(std::forward<Data>(data), options, Collate(options.device.is_cuda())) {}
  DataLoader(Data&& data, const DataLoaderOptions& options, Collator collate)
      : data_(std::forward<Data>(data)),
        collate_(std::move(collate)),
        core_(data_.size(), options,
              [this](const LoaderCore::Request& request) { return make(request); }) {}
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// The number of batches of an epoch, equal on all ranks.
  std::int64_t size() const { return core_.order().steps_per_epoch(); }
  const std::remove_reference_t<Data>& data() const { return data_; }

  /// The next loop runs over this epoch, from its batch `first_batch` on. Without it every loop is
  /// the epoch after the one before, the first one 0. Throws InvalidArgument for a negative epoch
  /// and a batch outside [0, size()].
  void set_epoch(std::int64_t epoch, std::int64_t first_batch = 0) {
    core_.set_epoch(epoch, first_batch);
  }

  /// The batches of one epoch, or of the rest of it after set_epoch(). An exception of get(), of a
  /// transform or of collate is thrown by the loop, where its batch would come; for get() it names
  /// the sample. A loop may end early; one loop at a time.
  Iterator begin() { return Iterator(*this, core_.begin_loop()); }
  std::default_sentinel_t end() { return {}; }

  /// The batch of a step, for loops over steps: step k is batch (k - 1) % size() of epoch
  /// (k - 1) / size(). Any step may be asked for; consecutive ones are made ahead, across epochs.
  Batch load(std::int64_t step) { return load(step, std::numeric_limits<std::int64_t>::max()); }

  /// Of the batch that came last: its epoch, its place in it, and this rank's rows. A run that
  /// stopped after it goes on with set_epoch(position.epoch, position.batch + 1).
  const BatchPosition& position() const { return core_.position(); }

 private:
  Batch load(std::int64_t step, std::int64_t last) {
    const LoaderCore::Result made = core_.take(step, last);
    Batch batch = std::move(*static_cast<Batch*>(made.get()));
    visit_batch_tensors(batch, [this](Tensor& tensor) { core_.deliver(tensor); });
    return batch;
  }

  // On a worker.
  LoaderCore::Result make(const LoaderCore::Request& request) const {
    std::vector<Example> examples;
    examples.reserve(request.samples.size());
    for (const std::int64_t sample : request.samples) {
      if (!request.wanted()) return nullptr;
      request.with_sample(sample, [&] { examples.push_back(data_.get(sample)); });
    }
    return request.with_batch(
        [&] { return request.hold(Batch(collate_(std::span<const Example>(examples)))); });
  }

  Data data_;
  Collator collate_;
  LoaderCore core_;  // the last member: its threads use the others
};

template <class Data>
DataLoader(Data&&) -> DataLoader<Data>;
template <class Data>
DataLoader(Data&&, const DataLoaderOptions&) -> DataLoader<Data>;
template <class Data, class Collator>
DataLoader(Data&&, const DataLoaderOptions&, Collator) -> DataLoader<Data, Collator>;

/// A place in a loop. `*` may be called once for each batch.
template <Dataset Data, class Collator>
class DataLoader<Data, Collator>::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  /// Throws StateError if another loop over this loader has begun since.
  Batch operator*() const {
    loop_->check_is_current("nn.DataLoader");
    return loader_->load(loop_->step, loop_->last);
  }
  Iterator& operator++() {
    ++loop_->step;
    return *this;
  }
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const { return loop_->step > loop_->last; }

 private:
  friend class DataLoader;
  Iterator(DataLoader& loader, std::unique_ptr<LoaderCore::Loop> loop)
      : loader_(&loader), loop_(std::move(loop)) {}

  DataLoader* loader_;
  std::unique_ptr<LoaderCore::Loop> loop_;  // its end stops reading ahead
};

/// The examples at the given indices as one batch, made by the calling thread, outside of any
/// order. Without indices a batch of 0 rows; that needs an example for its shapes, so the data set
/// is not empty.
template <Dataset Data>
auto batch_of(const Data& data, std::span<const std::int64_t> indices,
              Device device = default_device()) {
  std::vector<ExampleOf<Data>> examples;
  examples.reserve(std::max<std::size_t>(indices.size(), 1));
  for (const std::int64_t index : indices) examples.push_back(data.get(index));
  if (indices.empty()) examples.push_back(data.get(0));
  auto batch = Collate(device.is_cuda())(std::span<const ExampleOf<Data>>(examples));
  visit_batch_tensors(batch, [&](Tensor& tensor) {
    if (indices.empty()) tensor = tensor.narrow(0, 0, 0);
    tensor = to_device(tensor, device);
  });
  return batch;
}

}  // namespace tessera::nn::data
