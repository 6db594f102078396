#include "tessera/distributed/store/authenticated_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/tensor/check.h"

namespace tessera::distributed {
namespace {

constexpr std::string_view kMagic = "Ts";
constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kVersionAt = 2, kTypeAt = 3, kLengthAt = 4;
constexpr std::size_t kHeaderBytes = 8;

std::string header_of(FrameType type, std::size_t length) {
  std::string header(kMagic);
  header += static_cast<char>(kVersion);
  header += static_cast<char>(type);
  append_number(header, length, kHeaderBytes - kLengthAt);
  return header;
}

std::string mac_of(const Key& key, std::uint64_t number, std::string_view frame) {
  std::string bytes;
  append_number(bytes, number, sizeof(number));
  bytes += frame;
  return hmac(key, bytes);
}

// 0 for types that are none of the handshake's.
std::size_t handshake_payload(FrameType type) {
  switch (type) {
    case FrameType::kHello:
    case FrameType::kChallenge:
      return kNonceBytes;
    case FrameType::kProof:
    case FrameType::kAccept:
      return kMacBytes;
    case FrameType::kReject:
      return 1;
    case FrameType::kJoin:
    case FrameType::kSet:
    case FrameType::kGet:
    case FrameType::kWait:
    case FrameType::kWill:
    case FrameType::kOk:
    case FrameType::kRefused:
    case FrameType::kKept:
    case FrameType::kNone:
      break;
  }
  return 0;
}

std::uint8_t byte_at(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint8_t>(bytes[at]);
}

FrameType type_of(std::string_view header) { return FrameType{byte_at(header, kTypeAt)}; }

std::size_t length_of(std::string_view header) {
  return read_number(header.substr(kLengthAt), kHeaderBytes - kLengthAt);
}

bool is_after_handshake(FrameType type) {
  return type >= FrameType::kJoin && type <= FrameType::kNone;
}

}  // namespace

void append_number(std::string& out, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>((number >> (8 * i)) & 0xFF);
}

std::uint64_t read_number(std::string_view bytes, std::size_t count) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < count; ++i) number |= std::uint64_t{byte_at(bytes, i)} << (8 * i);
  return number;
}

AuthenticatedChannel::AuthenticatedChannel(Side side, const Key& key, std::string nonce)
    : side_(side),
      state_(side == Side::kClient ? State::kChallenge : State::kHello),
      key_(key),
      nonce_(std::move(nonce)) {
  if (side == Side::kClient) output_ = header_of(FrameType::kHello, nonce_.size()) + nonce_;
}

void AuthenticatedChannel::receive(std::string_view bytes) {
  if (!problem_.empty()) return;
  input_ += bytes;
  while (problem_.empty() && state_ != State::kOpen && check_header() &&
         input_.size() >= frame_bytes())
    shake_hands();
  if (state_ != State::kOpen && input_.size() > kMaxUnauthenticated)
    fail("it sends too much before it has proved that it knows the secret");
}

std::size_t AuthenticatedChannel::wanted() const {
  const std::size_t whole = input_.size() < kHeaderBytes ? kHeaderBytes : frame_bytes();
  return whole > input_.size() ? whole - input_.size() : 1;
}

// False while the header of the next frame is incomplete, and when it is refused: at once, before
// its payload comes.
bool AuthenticatedChannel::check_header() {
  const std::size_t begun = std::min(input_.size(), kMagic.size());
  if (std::string_view(input_).substr(0, begun) != kMagic.substr(0, begun)) {
    fail("it speaks another protocol");
    return false;
  }
  if (input_.size() < kHeaderBytes) return false;
  const std::uint8_t version = byte_at(input_, kVersionAt);
  const FrameType type = type_of(input_);
  const std::size_t length = length_of(input_);
  if (version != kVersion) {
    fail(
        fmt::format("it speaks version {} of the protocol, this is version {}", version, kVersion));
  } else if (state_ == State::kOpen) {
    if (!is_after_handshake(type)) fail(fmt::format("a message of type {} is none", int(type)));
    if (length > kMaxPayload)
      fail(fmt::format("it announces a message of {} bytes, at most {} are allowed", length,
                       kMaxPayload));
  } else if (handshake_payload(type) == 0) {
    fail(fmt::format("it sends a message of type {} before it has proved that it knows the secret",
                     int(type)));
  } else if (length != handshake_payload(type)) {
    fail(fmt::format("it announces {} bytes in a message of {}", length, handshake_payload(type)));
  }
  return problem_.empty();
}

std::size_t AuthenticatedChannel::frame_bytes() const {
  return kHeaderBytes + length_of(input_) + (state_ == State::kOpen ? kMacBytes : 0);
}

void AuthenticatedChannel::shake_hands() {
  const std::size_t size = frame_bytes();
  const FrameType type = type_of(input_);
  const std::string payload = input_.substr(kHeaderBytes, size - kHeaderBytes);
  input_.erase(0, size);
  take_handshake(type, payload);
}

void AuthenticatedChannel::take_handshake(FrameType type, const std::string& payload) {
  if (state_ == State::kHello && type == FrameType::kHello) {
    peer_nonce_ = payload;
    output_ += header_of(FrameType::kChallenge, nonce_.size()) + nonce_;
    state_ = State::kProof;
  } else if (state_ == State::kChallenge && type == FrameType::kChallenge) {
    peer_nonce_ = payload;
    output_ += header_of(FrameType::kProof, kMacBytes) + proof(Side::kClient);
    state_ = State::kAccept;
  } else if (state_ == State::kProof && type == FrameType::kProof) {
    if (same_bytes(payload, proof(Side::kClient))) {
      output_ += header_of(FrameType::kAccept, kMacBytes) + proof(Side::kServer);
      return open();
    }
    output_ += header_of(FrameType::kReject, 1) + '\0';
    fail("its secret or its job id is another");
  } else if (state_ == State::kAccept && type == FrameType::kAccept) {
    if (same_bytes(payload, proof(Side::kServer))) return open();
    fail("it has not the secret of this job");
  } else if (state_ == State::kAccept && type == FrameType::kReject) {
    rejected_ = true;
    fail("the secret or the job id is another there");
  } else {
    fail(fmt::format("a message of type {} comes out of turn", int(type)));
  }
}

// Both nonces are in it: one that was heard in another connection is worth nothing here.
std::string AuthenticatedChannel::proof(Side side) const {
  const bool mine = side_ == Side::kClient;
  const std::string nonces = mine ? nonce_ + peer_nonce_ : peer_nonce_ + nonce_;
  return hmac(key_, (side == Side::kClient ? "client" : "server") + nonces);
}

void AuthenticatedChannel::open() {
  const bool client = side_ == Side::kClient;
  const std::string nonces = client ? nonce_ + peer_nonce_ : peer_nonce_ + nonce_;
  const auto derive = [&](const char* direction) {
    const std::string mac = hmac(key_, direction + nonces);
    Key key;
    std::copy(mac.begin(), mac.end(), key.begin());
    return key;
  };
  sending_ = derive(client ? "to server" : "to client");
  receiving_ = derive(client ? "to client" : "to server");
  state_ = State::kOpen;
}

std::optional<Frame> AuthenticatedChannel::next() {
  if (!is_open() || !check_header() || input_.size() < frame_bytes()) return std::nullopt;
  const std::string_view frame = std::string_view(input_).substr(0, frame_bytes() - kMacBytes);
  const std::string_view mac = std::string_view(input_).substr(frame.size(), kMacBytes);
  if (!same_bytes(mac, mac_of(receiving_, received_, frame))) {
    fail("a message was changed, repeated or left out on the way");
    return std::nullopt;
  }
  ++received_;
  Frame out{.type = type_of(frame), .payload = std::string(frame.substr(kHeaderBytes))};
  input_.erase(0, frame.size() + kMacBytes);
  return out;
}

void AuthenticatedChannel::send(FrameType type, std::string_view payload) {
  TESSERA_CHECK(payload.size() <= kMaxPayload, "rendezvous",
                "a message of {} bytes is too large for the store, which takes {}", payload.size(),
                kMaxPayload);
  std::string frame = header_of(type, payload.size());
  frame += payload;
  output_ += frame + mac_of(sending_, sent_++, frame);
}

void AuthenticatedChannel::fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
  input_.clear();
}

}  // namespace tessera::distributed
