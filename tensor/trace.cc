#include "tessera/tensor/trace.h"

#include <ctime>

#include "tessera/tensor/rank_context.h"
#include "tessera/tensor/scope_name.h"

namespace tessera {
namespace {

// The category's bytes after the record, which is written before storages are released and blocks
// freed.
std::int64_t held_after(const StorageRecord& record) {
  const std::int64_t held = current_rank_context()->memory().current()[record.category];
  const bool goes =
      record.action == StorageAction::kRelease || record.action == StorageAction::kFree;
  return goes ? held - record.bytes : held;
}

// The name of the record's closure if it will have one, else null.
const std::string* work_name(const TraceRecord& record) {
  if (const auto* kernel = std::get_if<KernelRecord>(&record)) return &kernel->name;
  if (const auto* collective = std::get_if<CollectiveRecord>(&record)) return &collective->op;
  const auto* event = std::get_if<EventRecord>(&record);
  return event != nullptr && event->action != EventAction::kRecord ? &event->name : nullptr;
}

std::string end_of(std::string_view phase) { return std::string(phase) + "_end"; }

}  // namespace

std::int64_t trace_clock() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

ExecutionTrace::ExecutionTrace(const TraceOptions& options)
    : work_(options.timed ? std::make_shared<std::deque<TracedWork>>() : nullptr),
      max_records_(options.max_records) {}

void ExecutionTrace::clear() {
  records_.clear();
  stamps_.clear();
  if (work_) work_ = std::make_shared<std::deque<TracedWork>>();
  stream_names_.clear();
  latest_ = latest_collective_ = kNoRecord;
  dropped_ = 0;
}

std::vector<std::string> ExecutionTrace::annotations(std::string_view domain) const {
  std::vector<std::string> out;
  for (const TraceRecord& record : records_) {
    const auto* annotation = std::get_if<TraceAnnotation>(&record);
    if (annotation == nullptr || annotation->domain != domain) continue;
    out.push_back(annotation->phase + " " + annotation->name);
  }
  return out;
}

void ExecutionTrace::add_timed(TraceRecord record) {
  if (records_.size() >= max_records_) {
    ++dropped_;
    latest_ = latest_collective_ = kNoRecord;
    return;
  }
  const auto* storage = std::get_if<StorageRecord>(&record);
  stamps_.push_back({.issued = trace_clock(),
                     .held = storage != nullptr ? held_after(*storage) : 0,
                     .scope = current_scope()});
  if (work_name(record) != nullptr) latest_ = records_.size();
  if (std::holds_alternative<CollectiveRecord>(record)) latest_collective_ = records_.size();
  records_.push_back(std::move(record));
}

const std::deque<TracedWork>& ExecutionTrace::work() const {
  static const std::deque<TracedWork> none;
  return work_ ? *work_ : none;
}

void ExecutionTrace::wait_for_work() const {
  for (const TracedWork& work : this->work()) work.end.wait(0, std::memory_order_acquire);
}

std::string ExecutionTrace::stream_name(std::uint64_t stream) const {
  const auto found = stream_names_.find(stream);
  return found == stream_names_.end() ? "" : found->second;
}

std::shared_ptr<TracedWork> ExecutionTrace::add_work(const char* name, std::uint64_t stream,
                                                     const std::string& stream_name,
                                                     WorkThread thread) {
  if (work_->size() >= max_records_) {
    ++dropped_;
    return nullptr;
  }
  stream_names_.try_emplace(stream, stream_name);
  // A decorator may issue work of its own between a collective's record and its closure.
  const auto is_called = [&](std::size_t record) {
    return record != kNoRecord && *work_name(records_[record]) == name;
  };
  const bool of_collective = !is_called(latest_) && is_called(latest_collective_);
  work_->emplace_back(name, stream, thread, of_collective ? latest_collective_ : latest_,
                      records_.size());
  return {work_, &work_->back()};
}

TraceScope::TraceScope(ExecutionTrace& trace)
    : context_(current_rank_context()), before_(context_->trace()) {
  context_->set_trace(&trace);
}

TraceScope::~TraceScope() { context_->set_trace(before_); }

void WorkTimer::finish(TracedWork& work) {
  work.end.store(trace_clock(), std::memory_order_release);
  work.end.notify_all();
}

ExecutionTrace* active_timed_trace() {
  ExecutionTrace* trace = active_trace();
  return trace != nullptr && trace->is_timed() ? trace : nullptr;
}

void annotate(std::string_view domain, std::string_view name, std::string_view phase) {
  if (ExecutionTrace* trace = active_trace()) {
    trace->add(TraceAnnotation{std::string(domain), std::string(name), std::string(phase)});
  }
}

TracedPhase::TracedPhase(std::string_view domain, std::string_view name, std::string_view phase)
    : trace_(active_timed_trace()), domain_(domain), name_(name), phase_(phase) {
  if (trace_ != nullptr) annotate(domain, name, phase);
}

TracedPhase::~TracedPhase() {
  // Not if that trace has ended meanwhile.
  if (trace_ != nullptr && trace_ == active_trace()) annotate(domain_, name_, end_of(phase_));
}

}  // namespace tessera
