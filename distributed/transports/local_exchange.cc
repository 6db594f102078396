// Exchanges between rank threads: a sender lays its tensors out as letters and waits until each
// receiver has copied its own.

#include <fmt/format.h>

#include "tessera/distributed/transports/local_meeting.h"

namespace tessera::distributed {

void LocalMeetings::exchange(const ResolvedCollective& call, LocalMover& mover) {
  std::vector<Letter> letters(call.sends.size());
  const LocalMark ready = mover.mark();
  const auto wait_for_readers = [&] {
    for (const Letter& letter : letters) mover.wait(letter.read);
  };
  Lock lock(mutex_);
  if (abort_) throw_aborted(call, fmt::format("was given up: {}", *abort_));
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

void LocalMeetings::receive(const ResolvedCollective& call, const ResolvedMessage& message,
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
void LocalMeetings::refuse(const ResolvedCollective& call, const ResolvedMessage& message,
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

void LocalMeetings::await_letters(const ResolvedCollective& call, std::vector<Letter>& letters,
                                  Lock& lock) {
  for (const Letter& letter : letters) {
    wait_for_peer(call, letter.message->peer, lock, [&letter] { return letter.done; });
    if (!letter.refused.empty()) throw_collective_error(call, letter.refused);
  }
}

// No rank may find a letter that is destroyed; if one is being read, its sender waits.
void LocalMeetings::take_back(const ResolvedCollective& call, std::vector<Letter>& letters,
                              Lock& lock) noexcept {
  for (Letter& letter : letters) {
    if (letter.message == nullptr) continue;
    if (letter.reading) letters_changed_.wait(lock, [&letter] { return letter.done; });
    const auto found =
        letters_.find({call.site.rank, letter.message->peer, call.channel, letter.message->place});
    if (found != letters_.end() && found->second == &letter) letters_.erase(found);
  }
}

template <class Ready>
void LocalMeetings::wait_for_peer(const ResolvedCollective& call, int peer, Lock& lock,
                                  Ready ready) {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (!ready()) {
    if (abort_) throw_aborted(call, fmt::format("was given up: {}", *abort_));
    if (left_[static_cast<std::size_t>(peer)]) {
      const std::string what =
          fmt::format("needs rank {}, which has left the group", world_rank(peer));
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
