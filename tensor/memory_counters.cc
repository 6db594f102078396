#include "tessera/tensor/memory_counters.h"

#include <algorithm>
#include <mutex>
#include <numeric>

namespace tessera {
namespace {

bool is_model(MemoryCategory category) {
  return category == MemoryCategory::kParameter || category == MemoryCategory::kGradient ||
         category == MemoryCategory::kGathered;
}

}  // namespace

std::int64_t MemoryReading::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

void MemoryCounters::add(MemoryCategory category, std::int64_t bytes) {
  const auto index = static_cast<std::size_t>(category);
  const std::lock_guard lock(lock_);
  if (total_ == 0 && bytes > 0) self_ = weak_from_this().lock();
  current_.bytes[index] += bytes;
  total_ += bytes;
  if (is_model(category)) model_ += bytes;
  peak_.bytes[index] = std::max(peak_.bytes[index], current_.bytes[index]);
  peak_total_ = std::max(peak_total_, total_);
  peak_model_ = std::max(peak_model_, model_);
}

void MemoryCounters::subtract(MemoryCategory category, std::int64_t bytes) {
  std::shared_ptr<MemoryCounters> last;  // destroyed after the lock is released
  const std::lock_guard lock(lock_);
  current_.bytes[static_cast<std::size_t>(category)] -= bytes;
  total_ -= bytes;
  if (is_model(category)) model_ -= bytes;
  if (total_ == 0) last.swap(self_);
}

MemoryReading MemoryCounters::current() const {
  const std::lock_guard lock(lock_);
  return current_;
}

MemoryReading MemoryCounters::peak() const {
  const std::lock_guard lock(lock_);
  return peak_;
}

std::int64_t MemoryCounters::peak_total() const {
  const std::lock_guard lock(lock_);
  return peak_total_;
}

std::int64_t MemoryCounters::peak_model() const {
  const std::lock_guard lock(lock_);
  return peak_model_;
}

void MemoryCounters::reset_peak() {
  const std::lock_guard lock(lock_);
  peak_ = current_;
  peak_total_ = total_;
  peak_model_ = model_;
}

}  // namespace tessera
