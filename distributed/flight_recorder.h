#pragma once

/// The last 256 collectives of each rank: always on, at a fixed cost, in fixed memory.
///
/// A log is plain data, so it can lie in memory shared with another process: that is how launch()
/// knows what the ranks were doing when one of them was killed. One thread (its rank's) adds
/// entries; any thread may note states through tickets.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::distributed {

enum class FlightState : std::uint8_t {
  kIssued,   ///< queued on its stream
  kWaiting,  ///< waits for peers, or moves bytes
  kDone,
  kFailed,
};
const char* flight_state_name(FlightState state);  ///< "issued", ...

/// One remembered collective. Long names arrive shortened.
struct FlightEntry {
  std::string group{};
  std::string op{};
  std::string label{};
  std::uint64_t sequence = 0;
  std::int64_t bytes_sent = 0;
  std::optional<std::int64_t> step{};  ///< that note_step() announced
  FlightState state = FlightState::kIssued;

  /// "all_gather #17 (layers.1)"; followed by ` of group "dp"` unless that is the world's own group,
  /// and by " in step 5" if there is a step.
  std::string str() const;
};

/// The memory of a recorder. All zeros is an empty log.
struct FlightLog {
  struct Slot {
    std::atomic<std::uint64_t> stamp;  // number of the entry (from 1) * 4 + state
    std::uint64_t sequence;
    std::int64_t bytes_sent;
    std::int64_t steps_begun;
    char group[32];
    char op[16];
    char label[64];
  };
  static constexpr std::uint64_t kSlots = 256;

  std::atomic<std::uint64_t> count;       // entries ever added
  std::atomic<std::int64_t> steps_begun;  // 1 + the step that note_step() announced last
  std::array<Slot, kSlots> slots;

  /// Oldest first. To be called by the rank's own thread, or when that has ended.
  std::vector<FlightEntry> entries() const;
};

/// Names one entry of a log, to update its state; harmless when the entry has been overwritten.
/// Thread-safe.
class FlightTicket {
 public:
  FlightTicket() = default;  ///< notes go nowhere
  FlightTicket(std::shared_ptr<FlightLog> log, std::uint64_t number)
      : log_(std::move(log)), number_(number) {}
  void note(FlightState state) const noexcept;

 private:
  std::shared_ptr<FlightLog> log_;
  std::uint64_t number_ = 0;
};

/// Adds an entry, in state kIssued, to the calling rank's log.
FlightTicket record_flight(const FlightEntry& entry);

/// The collectives that the calling rank issues from now on belong to this step of its training, from
/// 0 or from 1: the report of a failure names it. models::Trainer calls this; loops of one's own may.
void note_step(std::int64_t step);

/// The calling rank's last collectives, oldest first.
std::vector<FlightEntry> recent_collectives();

/// From now on the calling thread's rank writes to `log`.
void set_flight_log(std::shared_ptr<FlightLog> log);

}  // namespace tessera::distributed
