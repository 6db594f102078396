#pragma once

/// One end of an authenticated connection, as a function of bytes: no sockets, no clocks, no random
/// numbers. The owner passes it what arrives, and sends what it puts out.
///
/// Every message is a frame: "Ts", version, type, length of the payload (32 bits, the lowest byte
/// first), payload. First come four frames of fixed length:
///
///     client  hello      its nonce
///     server  challenge  its nonce
///     client  proof      HMAC of both nonces
///     server  accept     another HMAC of both nonces; or reject
///
/// The client proves first, so that only processes with the key learn anything from the server. All
/// later frames end with an HMAC of their number, header and payload, under a key of the connection
/// and direction: a frame that is changed, repeated, left out or reflected ends the connection.
/// Nothing is encrypted.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/distributed/store/authentication.h"

namespace tessera::distributed {

enum class FrameType : std::uint8_t {
  kHello = 1,
  kChallenge,
  kProof,
  kAccept,
  kReject,
  // Authenticated; store_message.h and rank_sockets.cc say what they are about.
  kJoin = 16,
  kSet,
  kGet,
  kWait,
  kWill,
  kOk,
  kRefused,
  kKept,
  kNone,
};

struct Frame {
  FrameType type;
  std::string payload{};
};

/// Largest payload of a frame.
inline constexpr std::size_t kMaxPayload = std::size_t{1} << 20;
/// The most that a channel keeps before the peer has proved that it knows the key.
inline constexpr std::size_t kMaxUnauthenticated = 4096;

class AuthenticatedChannel {
 public:
  enum class Side : std::uint8_t { kClient, kServer };
  /// `nonce` has kNonceBytes, from random_bytes(): never the same twice.
  AuthenticatedChannel(Side side, const Key& key, std::string nonce);

  /// Bytes of the peer. None are kept after a problem.
  void receive(std::string_view bytes);
  /// At least so many bytes are missing. An owner that reads no more leaves in the socket all that
  /// follows the channel's last frame.
  std::size_t wanted() const;
  /// What is wrong with the peer's bytes: the connection is over, after output() has been sent.
  /// Empty: nothing.
  const std::string& problem() const { return problem_; }
  /// The problem is that the server says that this client's key is another.
  bool is_rejected() const { return rejected_; }

  /// Whether the peer has proved that it knows the key.
  bool is_open() const { return state_ == State::kOpen && problem_.empty(); }
  /// The peer's next frame of those after the handshake.
  std::optional<Frame> next();
  /// Puts out a frame. Only when it is_open(); throws InvalidArgument for a payload that is too
  /// large.
  void send(FrameType type, std::string_view payload);

  /// To be sent; the owner removes what it has sent.
  std::string& output() { return output_; }
  const std::string& output() const { return output_; }

 private:
  enum class State : std::uint8_t { kHello, kChallenge, kProof, kAccept, kOpen };

  bool check_header();
  std::size_t frame_bytes() const;
  void shake_hands();
  void take_handshake(FrameType type, const std::string& payload);
  void open();
  std::string proof(Side side) const;
  void fail(std::string problem);

  Side side_;
  State state_;
  Key key_;
  std::string nonce_;
  std::string peer_nonce_;
  Key sending_{};
  Key receiving_{};
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::string input_;
  std::string output_;
  std::string problem_;
  bool rejected_ = false;
};

/// Numbers in payloads: the lowest byte first.
void append_number(std::string& out, std::uint64_t number, std::size_t bytes);
std::uint64_t read_number(std::string_view bytes, std::size_t count);

}  // namespace tessera::distributed
