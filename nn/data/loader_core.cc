#include "tessera/nn/data/loader_core.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "tessera/tensor/check.h"
#include "tessera/tensor/cuda/device_guard.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"
#include "tessera/tensor/random_scope.h"
#include "tessera/tensor/streams/stream.h"
#include "tessera/tensor/thread_state.h"

namespace tessera::nn::data {
namespace {

constexpr const char* kWhere = "nn.DataLoader";

const DataLoaderOptions& checked(const DataLoaderOptions& options) {
  TESSERA_CHECK(options.batch_size >= 1, kWhere, "batch_size is {}; it must be at least 1",
                options.batch_size);
  TESSERA_CHECK(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks, kWhere,
                "rank {} of {} ranks", options.rank, options.ranks);
  TESSERA_CHECK(options.workers >= 0, kWhere, "workers is {}; it must be 0 or more threads",
                options.workers);
  TESSERA_CHECK(options.prefetch >= 1, kWhere,
                "prefetch is {}; it must be at least 1 batch, and workers 0 to make none ahead",
                options.prefetch);
  return options;
}

std::shared_ptr<RankContext> context_of(const DataLoaderOptions& options) {
  const RankContext& rank = *current_rank_context();
  return std::make_shared<RankContext>(rank.rank(), rank.world_size(),
                                       options.workers > 0 ? 1 : rank.threads());
}

// What a thread that makes a batch sees of its surroundings: always the same.
class MakingScope {
 public:
  MakingScope(std::shared_ptr<RankContext> context, Device device)
      : rank_(std::move(context)),
        settings_({.default_device = kCpu, .grad_enabled = false}),
        stream_(inline_stream()) {
    if (device.is_cuda()) gpu_.emplace(device.index);  // for page-locked memory
  }

 private:
  // One for each thread, as the blocks that were returned to a stream are reused by it.
  static const DeviceStream& inline_stream() {
    thread_local const DeviceStream stream =
        DeviceStream::create(kCpu, StreamKind::kInline, "data");
    return stream;
  }

  RankScope rank_;
  tessera::detail::ThreadSettingsScope settings_;
  StreamGuard stream_;
  std::optional<cuda::DeviceGuard> gpu_;
};

enum class Draws : std::uint64_t { kOfSample, kOfBatch };

// Random numbers that depend on the seed, the epoch and the index alone.
random::StepOptions draws_of(std::uint64_t seed, std::int64_t epoch, Draws draws,
                             std::int64_t index) {
  const random::RandomKey key{.seed = seed,
                              .step = static_cast<std::uint64_t>(epoch),
                              .layer = static_cast<std::uint64_t>(draws),
                              .call = static_cast<std::uint64_t>(index)};
  return {.seed = key.key().value, .step = static_cast<std::uint64_t>(epoch)};
}

// Rethrows the exception being handled, as its own class where it is one of Tessera's.
[[noreturn]] void rethrow_with_sample(std::int64_t sample) {
  const auto text = [sample](const std::exception& error) {
    return fmt::format("{} (sample {} of the data set)", error.what(), sample);
  };
  try {
    throw;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(text(error));
  } catch (const StateError& error) {
    throw StateError(text(error));
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(text(error));
  } catch (const DeviceError& error) {
    throw DeviceError(text(error));
  } catch (const TimeoutError& error) {
    throw TimeoutError(text(error));
  } catch (const DataError& error) {
    throw DataError(text(error));
  } catch (const Error& error) {
    std::throw_with_nested(Error(text(error)));
  } catch (const std::exception& error) {
    std::throw_with_nested(Error(error_text(kWhere, text(error))));
  } catch (...) {
    std::throw_with_nested(
        Error(error_text(kWhere, fmt::format("sample {} of the data set failed", sample))));
  }
}

}  // namespace

LoaderCore::LoaderCore(std::int64_t samples, const DataLoaderOptions& options,
                       std::function<Result(const Request&)> make)
    : options_(checked(options)),
      split_{.ranks = options.ranks, .rank = options.rank, .pad = options.pad},
      make_(std::move(make)),
      context_(context_of(options)),
      order_(samples, {.batch = options.batch_size,
                       .seed = options.seed,
                       .shuffle = options.shuffle,
                       .drop_last = options.drop_last}),
      read_ahead_(options.workers, std::int64_t{options.workers} * options.prefetch,
                  [this](std::int64_t step, const ReadAhead::Wanted& wanted) {
                    return this->make(step, wanted);
                  }) {}

void LoaderCore::set_epoch(std::int64_t epoch, std::int64_t first_batch) {
  TESSERA_CHECK(epoch >= 0, kWhere, "epoch {}; epochs count from 0", epoch);
  TESSERA_CHECK(first_batch >= 0 && first_batch <= order_.steps_per_epoch(), kWhere,
                "batch {} of an epoch of {}", first_batch, order_.steps_per_epoch());
  next_epoch_ = epoch;
  next_batch_ = first_batch;
}

std::unique_ptr<LoaderCore::Loop> LoaderCore::begin_loop() {
  const std::int64_t first = next_epoch_ * order_.steps_per_epoch() + 1;
  auto loop =
      std::make_unique<Loop>(*this, first + next_batch_, first + order_.steps_per_epoch() - 1);
  ++next_epoch_;
  next_batch_ = 0;
  return loop;
}

LoaderCore::Loop::Loop(LoaderCore& core_in, std::int64_t first_step, std::int64_t last_step)
    : core(&core_in), number(++core_in.loops_), step(first_step), last(last_step) {}

LoaderCore::Loop::~Loop() {
  if (number == core->loops_) core->read_ahead_.cancel();
}

void LoaderCore::Loop::check_is_current(const char* where) const {
  TESSERA_CHECK_AS(StateError, number == core->loops_, where,
                   "another loop over this loader has begun; use one loader for each loop");
}

LoaderCore::Result LoaderCore::take(std::int64_t step, std::int64_t last) {
  const BatchPosition position = order_.position_of(step, split_);
  Result result = read_ahead_.take(step, last);
  position_ = position;
  return result;
}

LoaderCore::Result LoaderCore::make(std::int64_t step, const ReadAhead::Wanted& wanted) {
  const MakingScope scope(context_, options_.device);
  Request request(*this, order_.position_of(step, split_), wanted);
  {
    const std::lock_guard lock(order_mutex_);
    request.samples = order_.rows_of(step, split_);
    // A rank without rows makes one, for the shapes and dtypes of its batch; see deliver().
    if (request.samples.empty()) request.samples.push_back(order_.samples_of(step).front());
  }
  return make_(request);
}

void LoaderCore::in_sample(const Request& request, std::int64_t sample, Call call,
                           const void* f) const {
  const random::StepScope scope(
      draws_of(options_.seed, request.position_.epoch, Draws::kOfSample, sample));
  try {
    call(f);
  } catch (...) {
    rethrow_with_sample(sample);
  }
}

void LoaderCore::in_batch(const Request& request, Call call, const void* f) const {
  const random::StepScope scope(
      draws_of(options_.seed, request.position_.epoch, Draws::kOfBatch, request.position_.batch));
  call(f);
}

void LoaderCore::deliver(Tensor& tensor) const {
  if (!tensor.defined()) return;
  Tensor made = std::exchange(tensor, Tensor());
  {
    const MakingScope scope(context_, options_.device);
    TESSERA_CHECK(made.device().is_cpu() && made.ndim() >= 1, kWhere,
                  "a tensor of the batch has shape {} on {}; it needs rows in dim 0, on the CPU",
                  made.shape().str(), made.device().str());
    if (position_.rows == 0) made = made.narrow(0, 0, 0);
    made = contiguous(made);
  }
  if (options_.device.is_cuda()) {
    tensor = to_device(made, options_.device);
  } else {
    const std::size_t offset = static_cast<std::size_t>(made.offset()) * dtype_size(made.dtype());
    tensor = Tensor::from_host(static_cast<const std::byte*>(made.storage().data()) + offset,
                               static_cast<std::size_t>(made.numel()), made.dtype(), made.shape(),
                               options_.device);
  }
  const RankScope scope(context_);
  made = Tensor();
}

}  // namespace tessera::nn::data
