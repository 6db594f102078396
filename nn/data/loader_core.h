#pragma once

/// The part of DataLoader that does not depend on the types of examples and batches; private to nn.
/// DataLoaderOptions is here too; include data_loader.h.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/nn/data/batch_order.h"
#include "tessera/nn/data/read_ahead.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn::data {

struct DataLoaderOptions {
  std::int64_t batch_size = 1;  ///< samples per batch, over all ranks
  bool shuffle = false;         ///< a new order in each epoch
  /// Leaves out the last batch of an epoch if it has fewer samples than batch_size.
  bool drop_last = false;
  /// Where ranks do not divide a batch: samples are repeated, so that all ranks have equally many
  /// rows, and a mean over ranks of means is right but for the repeated samples. With drop_last and
  /// a batch_size that ranks divide nothing is repeated. Without pad nothing is repeated ever: the
  /// last ranks have fewer rows or none, so average with nn::global_mean.
  bool pad = true;
  std::uint64_t seed = 1;  ///< of the order and of transforms
  int workers = 0;         ///< threads that make batches ahead; 0: each is made when asked for
  int prefetch = 2;        ///< batches that each worker is ahead, at least 1
  int ranks = 1;           ///< that share each batch
  int rank = 0;
  Device device = default_device();  ///< of the batches' tensors
};

class LoaderCore {
 public:
  using Result = ReadAhead::Result;

  /// A batch that a worker has to make.
  class Request {
   public:
    std::vector<std::int64_t> samples;  ///< at least one

    bool wanted() const { return wanted_(); }
    /// Calls f with the random numbers of a sample. What f throws gets the sample's index.
    template <class F>
    void with_sample(std::int64_t sample, const F& f) const {
      core_.in_sample(
          *this, sample, [](const void* g) { (*static_cast<const F*>(g))(); }, &f);
    }
    /// Calls f with the random numbers of the batch.
    template <class F>
    Result with_batch(const F& f) const {
      Result result;
      const auto call = [&] { result = f(); };
      using Call = std::remove_const_t<decltype(call)>;
      core_.in_batch(
          *this, [](const void* g) { (*static_cast<const Call*>(g))(); }, &call);
      return result;
    }
    /// A batch that is destroyed in the loader's RankContext on whichever thread.
    template <class Batch>
    Result hold(Batch batch) const {
      return Result(new Batch(std::move(batch)), [context = core_.context_](Batch* held) {
        const RankScope scope(context);
        delete held;
      });
    }

   private:
    friend class LoaderCore;
    Request(const LoaderCore& core, const BatchPosition& position, const ReadAhead::Wanted& wanted)
        : core_(core), position_(position), wanted_(wanted) {}
    const LoaderCore& core_;
    const BatchPosition position_;
    const ReadAhead::Wanted& wanted_;
  };

  /// One loop over an epoch; the end of its life ends the reading ahead for it.
  struct Loop {
    Loop(LoaderCore& core, std::int64_t first_step, std::int64_t last_step);
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;
    void check_is_current(const char* where) const;

    LoaderCore* core;
    std::int64_t number;
    std::int64_t step;
    std::int64_t last;
  };

  LoaderCore(std::int64_t samples, const DataLoaderOptions& options,
             std::function<Result(const Request&)> make);

  const BatchOrder& order() const { return order_; }
  const BatchPosition& position() const { return position_; }
  void set_epoch(std::int64_t epoch, std::int64_t first_batch);
  std::unique_ptr<Loop> begin_loop();
  Result take(std::int64_t step, std::int64_t last);
  /// Replaces a tensor of the batch that was taken last by this thread's copy on the device.
  void deliver(Tensor& tensor) const;

 private:
  using Call = void (*)(const void*);
  Result make(std::int64_t step, const ReadAhead::Wanted& wanted);
  void in_sample(const Request& request, std::int64_t sample, Call call, const void* f) const;
  void in_batch(const Request& request, Call call, const void* f) const;

  const DataLoaderOptions options_;
  const BatchSplit split_;
  const std::function<Result(const Request&)> make_;
  // Of everything that workers do: it has no trace, and byte counters of its own, because a rank's
  // must not depend on timing.
  const std::shared_ptr<RankContext> context_;
  std::mutex order_mutex_;
  BatchOrder order_;
  BatchPosition position_;
  std::int64_t next_epoch_ = 0;
  std::int64_t next_batch_ = 0;
  std::int64_t loops_ = 0;
  ReadAhead read_ahead_;  // the last member: its threads use the others
};

}  // namespace tessera::nn::data
