#include "tessera/models/data/token_loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/models/training/batch_order.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/shape.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::models::data {
namespace {

constexpr const char* kWhere = "packed_sequences";

}  // namespace

PackedSequences::PackedSequences(std::shared_ptr<const TokenSpan> tokens, std::int64_t length)
    : tokens_(std::move(tokens)), length_(length) {
  TESSERA_CHECK(length >= 1, kWhere, "sequences of {} tokens; at least 1 is needed", length);
  TESSERA_CHECK_AS(DataError, tokens_->size() > 0, kWhere,
                   "there are no tokens: a part without text, as the validation part is where a "
                   "token file was made with validation 0; make it with a part above 0");
  TESSERA_CHECK_AS(DataError, tokens_->size() > length, kWhere,
                   "the text has {} tokens, a sequence of {} needs {} with its last target; give "
                   "more text, or shorter sequences",
                   tokens_->size(), length, length + 1);
  count_ = (tokens_->size() - 1) / length;
}

void PackedSequences::read(std::int64_t index, std::span<std::int64_t> out) const {
  TESSERA_CHECK(index >= 0 && index < count_, kWhere, "sequence {} of {}", index, count_);
  TESSERA_CHECK(static_cast<std::int64_t>(out.size()) == length_ + 1, kWhere,
                "room for {} tokens, a sequence with its last target has {}", out.size(),
                length_ + 1);
  tokens_->read(index * length_, out);
}

namespace {

// A batch before its tensors are made. The calling thread makes them, like all tensors of a rank,
// because only that thread may write to the rank's trace.
struct Rows {
  TokenBatch batch;  // its tensors are undefined
  std::int64_t count = 0;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> targets;
  std::exception_ptr failure;
};

}  // namespace

// Reads on its own thread, or on the caller's if there is no read-ahead.
class TokenLoader::Reader {
 public:
  Reader(const PackedSequences& sequences, const TokenLoaderOptions& options);
  ~Reader();

  std::int64_t steps_per_epoch() const { return order_.steps_per_epoch(); }
  TokenBatch load(std::int64_t step);

 private:
  Rows rows_of(std::int64_t step);
  Rows read(std::int64_t step) noexcept;
  Rows take(std::int64_t step);
  void read_ahead();

  const PackedSequences& sequences_;
  const TokenLoaderOptions options_;
  BatchOrder order_;  // used by the reading thread

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::int64_t wanted_ = 0;  // the step that load() should ask for next; 0: it was never called
  std::int64_t course_ = 0;  // number of times that load() asked for another step
  std::deque<Rows> ready_;   // steps from wanted_ on
  std::thread thread_;
};

TokenLoader::Reader::Reader(const PackedSequences& sequences, const TokenLoaderOptions& options)
    : sequences_(sequences),
      options_(options),
      order_(sequences.count(), options.batch, options.seed) {
  if (options.prefetch > 0)
    thread_ = std::thread([this, context = current_rank_context()] {
      const RankScope scope(context);
      read_ahead();
    });
}

TokenLoader::Reader::~Reader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// The rows of the chunk rule: ceil(samples / ranks) each; the last ranks fewer or none.
Rows TokenLoader::Reader::rows_of(std::int64_t step) {
  const std::span<const std::int64_t> samples = order_.samples_of(step);
  const auto total = static_cast<std::int64_t>(samples.size());
  const std::int64_t padded = chunk_sizes(total, options_.ranks).front();
  const std::int64_t begin = std::min(total, options_.rank * padded);
  const std::int64_t count = std::min(total - begin, padded);
  Rows rows{.batch = {.tokens = {},
                      .targets = {},
                      .step = step,
                      .samples = total,
                      .first_sample = begin,
                      .padded_rows = padded},
            .count = count,
            .tokens = {},
            .targets = {},
            .failure = {}};
  std::vector<std::int64_t> row(static_cast<std::size_t>(sequences_.length() + 1));
  rows.tokens.reserve(static_cast<std::size_t>(count * sequences_.length()));
  rows.targets.reserve(rows.tokens.capacity());
  for (std::int64_t i = begin; i < begin + count; ++i) {
    sequences_.read(samples[static_cast<std::size_t>(i)], row);
    rows.tokens.insert(rows.tokens.end(), row.begin(), row.end() - 1);
    rows.targets.insert(rows.targets.end(), row.begin() + 1, row.end());
  }
  return rows;
}

Rows TokenLoader::Reader::read(std::int64_t step) noexcept {
  try {
    return rows_of(step);
  } catch (...) {
    Rows rows;
    rows.failure = std::current_exception();
    return rows;
  }
}

void TokenLoader::Reader::read_ahead() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [&] { return stop_ || (wanted_ > 0 && std::ssize(ready_) < options_.prefetch); });
    if (stop_) return;
    const std::int64_t step = wanted_ + std::ssize(ready_), course = course_;
    lock.unlock();
    Rows rows = read(step);
    lock.lock();
    if (course != course_) continue;  // another step was requested meanwhile
    ready_.push_back(std::move(rows));
    changed_.notify_all();
  }
}

Rows TokenLoader::Reader::take(std::int64_t step) {
  if (!thread_.joinable()) return read(step);
  std::unique_lock lock(mutex_);
  if (step != wanted_) {
    ready_.clear();
    wanted_ = step;
    ++course_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return !ready_.empty(); });
  Rows rows = std::move(ready_.front());
  ready_.pop_front();
  ++wanted_;
  changed_.notify_all();
  return rows;
}

TokenBatch TokenLoader::Reader::load(std::int64_t step) {
  TESSERA_CHECK(step >= 1, "token_loader", "step {}; steps count from 1", step);
  Rows rows = take(step);
  if (rows.failure) std::rethrow_exception(rows.failure);
  const Shape shape{rows.count, sequences_.length()};
  rows.batch.tokens = Tensor::from_vector(rows.tokens, shape, kCpu);
  rows.batch.targets = Tensor::from_vector(rows.targets, shape, kCpu);
  return std::move(rows.batch);
}

TokenLoader::TokenLoader(const PackedSequences& sequences, const TokenLoaderOptions& options) {
  TESSERA_CHECK(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks,
                "token_loader", "rank {} of {} ranks", options.rank, options.ranks);
  TESSERA_CHECK(options.prefetch >= 0, "token_loader",
                "prefetch is {}; it must be 0 or more batches", options.prefetch);
  reader_ = std::make_unique<Reader>(sequences, options);
}
TokenLoader::~TokenLoader() = default;
std::int64_t TokenLoader::steps_per_epoch() const { return reader_->steps_per_epoch(); }
TokenBatch TokenLoader::load(std::int64_t step) { return reader_->load(step); }

}  // namespace tessera::models::data
