#include "tessera/distributed/flight_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tessera::distributed {
namespace {

constexpr std::uint64_t kStates = 4;
constexpr const char* kWorldGroup = "world";

std::shared_ptr<FlightLog>& thread_log() {
  thread_local std::shared_ptr<FlightLog> log = std::make_shared<FlightLog>();
  return log;
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& from) {
  const std::size_t length = std::min(from.size(), N - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

template <std::size_t N>
std::string read_text(const char (&from)[N]) {
  return std::string(from, strnlen(from, N));
}

}  // namespace

const char* flight_state_name(FlightState state) {
  switch (state) {
    case FlightState::kIssued:
      return "issued";
    case FlightState::kWaiting:
      return "waiting";
    case FlightState::kDone:
      return "done";
    case FlightState::kFailed:
      return "failed";
  }
  return "?";
}

std::string FlightEntry::str() const {
  std::string text = fmt::format("{} #{}", op, sequence);
  if (!label.empty()) text += fmt::format(" ({})", label);
  if (!group.empty() && group != kWorldGroup) text += fmt::format(" of group \"{}\"", group);
  if (step) text += fmt::format(" in step {}", *step);
  return text;
}

std::vector<FlightEntry> FlightLog::entries() const {
  const std::uint64_t end = count.load(std::memory_order_acquire);
  std::vector<FlightEntry> out;
  for (std::uint64_t number = end > kSlots ? end - kSlots + 1 : 1; number <= end; ++number) {
    const Slot& slot = slots[number % kSlots];
    const std::uint64_t stamp = slot.stamp.load(std::memory_order_acquire);
    if (stamp / kStates != number) continue;
    out.push_back(
        {.group = read_text(slot.group),
         .op = read_text(slot.op),
         .label = read_text(slot.label),
         .sequence = slot.sequence,
         .bytes_sent = slot.bytes_sent,
         .step = slot.steps_begun == 0 ? std::nullopt : std::optional(slot.steps_begun - 1),
         .state = static_cast<FlightState>(stamp % kStates)});
  }
  return out;
}

void FlightTicket::note(FlightState state) const noexcept {
  if (!log_) return;
  std::atomic<std::uint64_t>& stamp = log_->slots[number_ % FlightLog::kSlots].stamp;
  std::uint64_t seen = stamp.load(std::memory_order_relaxed);
  while (seen / kStates == number_ &&
         !stamp.compare_exchange_weak(seen, number_ * kStates + static_cast<std::uint64_t>(state),
                                      std::memory_order_release, std::memory_order_relaxed)) {
  }
}

FlightTicket record_flight(const FlightEntry& entry) {
  const std::shared_ptr<FlightLog>& log = thread_log();
  const std::uint64_t number = log->count.load(std::memory_order_relaxed) + 1;
  FlightLog::Slot& slot = log->slots[number % FlightLog::kSlots];
  slot.stamp.store(0, std::memory_order_relaxed);
  copy_text(slot.group, entry.group);
  copy_text(slot.op, entry.op);
  copy_text(slot.label, entry.label);
  slot.sequence = entry.sequence;
  slot.bytes_sent = entry.bytes_sent;
  slot.steps_begun = log->steps_begun.load(std::memory_order_relaxed);
  slot.stamp.store(number * kStates + static_cast<std::uint64_t>(entry.state),
                   std::memory_order_release);
  log->count.store(number, std::memory_order_release);
  return FlightTicket(log, number);
}

void note_step(std::int64_t step) {
  thread_log()->steps_begun.store(step + 1, std::memory_order_relaxed);
}

std::vector<FlightEntry> recent_collectives() { return thread_log()->entries(); }

void set_flight_log(std::shared_ptr<FlightLog> log) { thread_log() = std::move(log); }

}  // namespace tessera::distributed
