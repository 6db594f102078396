#include "tessera/distributed/transports/process_group_local.h"

#include <exception>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "tessera/distributed/resolved_collective.h"
#include "tessera/distributed/transports/local_barrier.h"
#include "tessera/distributed/transports/local_mover.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/streams/stream.h"

namespace tessera::distributed {
namespace {

void perform(LocalBarriers& barriers, const ResolvedCollective& call, LocalMover& mover) {
  call.ticket.note(FlightState::kWaiting);
  try {
    barriers.perform(call, mover);
  } catch (...) {
    call.ticket.note(FlightState::kFailed);
    throw;
  }
  call.ticket.note(FlightState::kDone);
}

// A rank's part in the barriers of a group. Its handle and its queued collectives own it, so the
// rank has left when the last of them is destroyed.
class Membership {
 public:
  Membership(std::shared_ptr<LocalBarriers> barriers, int rank)
      : barriers_(std::move(barriers)), rank_(rank) {}
  ~Membership() { barriers_->leave(rank_); }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  LocalBarriers& barriers() const { return *barriers_; }

 private:
  std::shared_ptr<LocalBarriers> barriers_;
  int rank_;
};

class LocalGroup final : public ProcessGroup {
 public:
  LocalGroup(Identity identity, std::shared_ptr<LocalBarriers> barriers)
      : ProcessGroup(std::move(identity)),
        membership_(std::make_shared<Membership>(std::move(barriers), rank())) {}
  // A rank that fails aborts its sub-groups before any other rank learns why. The ranks of the
  // sub-groups must not report that as the cause.
  ~LocalGroup() override {
    if (std::uncaught_exceptions() > 0) abort("it has left the group by an exception");
  }

  std::string backend() const override { return "local"; }

  bool carries(DeviceType type) const override {
    return type == DeviceType::kCpu || (type == DeviceType::kCuda && kBuiltWithCuda);
  }

  // On the CPU a closure of the stream moves the data; on a GPU this thread issues the moves.
  void run(const Collective& call) override {
    const Device device = collective_device(call);
    if (device.is_null()) return call.ticket.note(FlightState::kDone);
    if (device.is_cuda()) {
      const std::unique_ptr<LocalMover> mover = make_gpu_mover(current_stream(device));
      return perform(membership_->barriers(), resolve(*this, call), *mover);
    }
    current_stream(kCpu).enqueue(collective_name(call),
                                 [membership = membership_, resolved = resolve(*this, call)] {
                                   perform(membership->barriers(), resolved, cpu_mover());
                                 });
  }

  void abort(const std::string& reason) noexcept override {
    membership_->barriers().abort(rank(), reason);
  }

  std::shared_ptr<ProcessGroup> make_subgroup(const SubgroupRequest& request) override {
    return std::make_shared<LocalGroup>(
        request.identity, membership_->barriers().subgroup(request.key, request.identity.ranks));
  }

 private:
  std::shared_ptr<Membership> membership_;
};

}  // namespace

std::vector<std::shared_ptr<ProcessGroup>> make_local_groups(const std::string& name, int size,
                                                             std::chrono::milliseconds timeout) {
  TESSERA_CHECK(size >= 1, "make_local_groups", "size must be at least 1, got {}", size);
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto barriers = std::make_shared<LocalBarriers>(ranks, timeout);
  for (int rank = 0; rank < size; ++rank) {
    groups.push_back(std::make_shared<LocalGroup>(
        ProcessGroup::Identity{.name = name, .rank = rank, .ranks = ranks}, barriers));
  }
  return groups;
}

// Exchanges between rank threads: a sender lays its tensors out as letters and waits until each
// receiver has copied its own.
void LocalBarriers::exchange(const ResolvedCollective& call, LocalMover& mover) {
  std::vector<Letter> letters(call.sends.size());
  const LocalMark ready = mover.mark();
  const auto wait_for_readers = [&] {
    for (const Letter& letter : letters) mover.wait(letter.read);
  };
  Lock lock(mutex_);
  if (abort_) throw_aborted(call, fmt::format("was aborted: {}", *abort_));
  try {
    for (std::size_t i = 0; i < letters.size(); ++i) {
      letters[i].call = &call;
      letters[i].message = &call.sends[i];
      letters[i].ready = ready;
      letters_[{call.site.rank, call.sends[i].peer, call.channel, call.sends[i].place}] =
          &letters[i];
    }
    letters_changed_.notify_all();
    for (const ResolvedMessage& message : call.receives) receive(call, message, mover, lock);
    await_letters(call, letters, lock);
  } catch (...) {
    take_back(call, letters, lock);
    lock.unlock();
    wait_for_readers();
    throw;
  }
  lock.unlock();
  wait_for_readers();
}

void LocalBarriers::receive(const ResolvedCollective& call, const ResolvedMessage& message,
                            LocalMover& mover, Lock& lock) {
  const Address address{message.peer, call.site.rank, call.channel, message.place};
  wait_for_peer(call, message.peer, lock, [&] { return letters_.count(address) != 0; });
  Letter& letter = *letters_.at(address);
  if (letter.call->dtype != call.dtype || letter.message->count != message.count ||
      letter.call->device.type != call.device.type) {
    letters_.erase(address);
    refuse(call, message, letter);
  }
  letter.reading = true;
  lock.unlock();
  std::exception_ptr failure;
  LocalMark read;
  try {
    mover.wait(letter.ready);
    mover.copy(message.data, letter.message->data,
               static_cast<std::size_t>(message.count) * call.element_size());
    read = mover.mark();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  letter.read = std::move(read);
  letter.done = true;  // also after a failure: the sender hears of that at its next call
  letters_.erase(address);
  letters_changed_.notify_all();
  if (!failure) return;
  set_aborted(call.site.rank, fmt::format("{} could not move its data", call.str()));
  std::rethrow_exception(failure);
}

// An error here and, as soon as it looks, for the sender.
void LocalBarriers::refuse(const ResolvedCollective& call, const ResolvedMessage& message,
                           Letter& letter) {
  const auto place = [](const ResolvedCollective& side) {
    return side.device.is_cpu() ? std::string() : " on " + side.device.str();
  };
  const std::string what = fmt::format(
      "does not agree between ranks: rank {} sends {} elements of {}{} to rank {}, which expects "
      "{} "
      "of {}{}",
      world_rank(message.peer), letter.message->count, dtype_name(letter.call->dtype),
      place(*letter.call), world_rank(call.site.rank), message.count, dtype_name(call.dtype),
      place(call));
  letter.refused = what;
  letter.done = true;
  letters_changed_.notify_all();
  set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
  throw_collective_error(call, what);
}

void LocalBarriers::await_letters(const ResolvedCollective& call, std::vector<Letter>& letters,
                                  Lock& lock) {
  for (const Letter& letter : letters) {
    wait_for_peer(call, letter.message->peer, lock, [&letter] { return letter.done; });
    if (!letter.refused.empty()) throw_collective_error(call, letter.refused);
  }
}

// No rank may find a letter that is destroyed; if one is being read, its sender waits.
void LocalBarriers::take_back(const ResolvedCollective& call, std::vector<Letter>& letters,
                              Lock& lock) noexcept {
  for (Letter& letter : letters) {
    if (letter.message == nullptr) continue;
    // Untimed: its reader only copies.
    if (letter.reading) letters_changed_.wait(lock, [&letter] { return letter.done; });
    const auto found =
        letters_.find({call.site.rank, letter.message->peer, call.channel, letter.message->place});
    if (found != letters_.end() && found->second == &letter) letters_.erase(found);
  }
}

template <class Ready>
void LocalBarriers::wait_for_peer(const ResolvedCollective& call, int peer, Lock& lock,
                                  Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (!ready()) {
    if (abort_) throw_aborted(call, fmt::format("was aborted: {}", *abort_));
    if (left_[static_cast<std::size_t>(peer)]) {
      const std::string what = needs_rank_that_left(world_rank(peer));
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_collective_error(call, what);
    }
    if (letters_changed_.wait_until(lock, deadline) == std::cv_status::timeout && !ready() &&
        !abort_) {
      const std::string what =
          fmt::format("timed out after {:g} s: rank {} did not arrive",
                      std::chrono::duration<double>(timeout_).count(), world_rank(peer));
      set_aborted(call.site.rank, fmt::format("{} {}", call.str(), what));
      throw_timeout(call, what);
    }
  }
}

}  // namespace tessera::distributed
