#include "tessera/tools/watch/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "tessera/tensor/check.h"
#include "tessera/tools/watch/event.pb.h"
#include "tessera/tools/watch/markup.h"

namespace tessera::tools {
namespace {

// Table of the reflected polynomial, one entry per byte.
constexpr std::array<std::uint32_t, 256> make_table() {
  constexpr std::uint32_t kPolynomial = 0x82F63B78;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit)
      remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
    table[byte] = remainder;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t remainder = 0xFFFFFFFF;
  for (const char byte : bytes)
    remainder = kTable[(remainder ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (remainder >> 8);
  return ~remainder;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

namespace {

constexpr const char* kWhere = "tensorboard";
constexpr int kStringTensor = 7;  // DT_STRING

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// TensorBoard sorts the files of a folder by name; files of the same second differ in the rest.
std::string file_name() {
  static std::atomic<int> count{0};
  return fmt::format("events.out.tfevents.{:010}.{}.{}.{}",
                     static_cast<std::int64_t>(seconds_since_1970()), host_name(), getpid(),
                     count++);
}

// Little-endian, like all supported machines.
template <class Number>
void append_number(std::string& out, Number number) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Length, its checksum, the bytes, their checksum.
std::string tfrecord(const std::string& bytes) {
  std::string record;
  append_number(record, static_cast<std::uint64_t>(bytes.size()));
  append_number(record, masked_crc32c(record));
  record += bytes;
  append_number(record, masked_crc32c(bytes));
  return record;
}

// An event with the current time.
event::Event event_of(std::int64_t step) {
  event::Event event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(step);
  return event;
}

void add_scalar(event::Event& event, const std::string& tag, double value) {
  event::Summary::Value& entry = *event.mutable_summary()->add_value();
  entry.set_tag(tag);
  entry.set_simple_value(static_cast<float>(value));
}

// A fence of backticks would end at the first one in the text; an indented block has no end marker.
std::string code_block(const std::string& text) {
  constexpr const char* kIndent = "    ";
  std::string out = kIndent;
  for (const char byte : text) {
    out += byte;
    if (byte == '\n') out += kIndent;
  }
  return out;
}

}  // namespace

EventFile::EventFile(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error<Error>(kWhere, "{} cannot be made: {}; choose another folder", folder,
                       error.message());
  path_ = folder + "/" + file_name();
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_APPEND, 0644);
  TESSERA_CHECK_AS(Error, file_ >= 0, kWhere, "{} cannot be written: {}; choose another folder",
                   path_, std::strerror(errno));
  event::Event version = event_of(0);
  version.set_file_version("brain.Event:2");
  append(version.SerializeAsString());
}

EventFile::~EventFile() {
  if (file_ >= 0) ::close(file_);
}

void EventFile::append(const std::string& event) {
  const std::string record = tfrecord(event);
  const off_t before = ::lseek(file_, 0, SEEK_END);
  for (std::size_t done = 0; done < record.size();) {
    const ssize_t written = ::write(file_, record.data() + done, record.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      const int error = errno;
      // A partial record followed by others would stop readers for good.
      const bool mended = ::ftruncate(file_, before) == 0;
      throw_error<Error>(kWhere, "{} cannot be written: {}{}; make room", path_,
                         std::strerror(error), mended ? "" : ", and ends in half a record");
    }
    done += static_cast<std::size_t>(written);
  }
}

void EventFile::write(const models::StepMetrics& metrics) {
  event::Event event = event_of(metrics.step);
  const auto add = [&](const char* tag, double value) { add_scalar(event, tag, value); };
  add("loss", metrics.loss);
  if (metrics.auxiliary_loss) add("auxiliary_loss", *metrics.auxiliary_loss);
  add("grad_norm", metrics.grad_norm);
  add("lr", metrics.learning_rate);
  if (metrics.tokens > 0)
    add("tokens_per_s", metrics.tokens_per_second());
  else if (metrics.step_ms > 0)
    add("samples_per_s", static_cast<double>(metrics.samples) * 1e3 / metrics.step_ms);
  add("step_ms", metrics.step_ms);
  add("peak_bytes", static_cast<double>(metrics.peak_bytes));
  add("gathered_peak_bytes", static_cast<double>(metrics.gathered_peak_bytes));
  add("comm_bytes", static_cast<double>(metrics.comm_bytes));
  if (metrics.loss_scale) add("loss_scale", *metrics.loss_scale);
  append(event.SerializeAsString());
}

void EventFile::write(const models::EvalMetrics& metrics) {
  event::Event event = event_of(metrics.step);
  add_scalar(event, "eval/loss", metrics.loss);
  if (metrics.accuracy) add_scalar(event, "eval/accuracy", *metrics.accuracy);
  if (metrics.bits_per_byte) add_scalar(event, "eval/bits_per_byte", *metrics.bits_per_byte);
  append(event.SerializeAsString());
}

void EventFile::write_scalar(const std::string& tag, double value, std::int64_t step) {
  event::Event event = event_of(step);
  add_scalar(event, tag, value);
  append(event.SerializeAsString());
}

void EventFile::write_text(const std::string& tag, const std::string& text, std::int64_t step) {
  event::Event event = event_of(step);
  event::Summary::Value& entry = *event.mutable_summary()->add_value();
  entry.set_tag(tag);
  entry.mutable_metadata()->mutable_plugin_data()->set_plugin_name("text");
  event::TextTensor& tensor = *entry.mutable_tensor();
  tensor.set_dtype(kStringTensor);
  tensor.mutable_tensor_shape()->add_dim()->set_size(1);
  tensor.add_string_val(code_block(readable(text)));
  append(event.SerializeAsString());
}

}  // namespace tessera::tools
