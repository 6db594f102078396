#include "tessera/models/watch/tensorboard.h"

#include <unistd.h>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "tessera/models/watch/event.pb.h"
#include "tessera/models/watch/markup.h"
#include "tessera/models/watch/tfrecord.h"
#include "tessera/tensor/check.h"

namespace tessera::models::watch {
namespace {

constexpr const char* kWhere = "tensorboard";
constexpr int kStringTensor = 7;  // DT_STRING
constexpr int kSessionStart = 1;  // SessionLog::START

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

// The path of a new file, in a folder that exists.
std::string path_in(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_error<Error>(kWhere, "{} cannot be made: {}; choose another folder", folder,
                       error.message());
  return folder + "/" + file_name();
}

// An event with the current time.
event::Event event_of(std::int64_t step) {
  event::Event event;
  event.set_wall_time(seconds_since_1970());
  event.set_step(step);
  return event;
}

void append_value(event::Event& event, const std::string& tag, double value) {
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

TensorBoardWriter::TensorBoardWriter(const std::string& folder)
    : file_(kWhere, path_in(folder), AppendedStart::kNew) {
  event::Event version = event_of(0);
  version.set_file_version("brain.Event:2");
  append(version.SerializeAsString());
}

TensorBoardWriter::TensorBoardWriter(const std::string& folder, std::int64_t first_step)
    : TensorBoardWriter(folder) {
  event::Event restart = event_of(first_step);
  restart.mutable_session_log()->set_status(kSessionStart);
  append(restart.SerializeAsString());
}

void TensorBoardWriter::append(const std::string& event) { file_.append(tfrecord(event)); }

void TensorBoardWriter::write(const StepMetrics& metrics) {
  event::Event event = event_of(metrics.step);
  const auto add = [&](const char* tag, double value) { append_value(event, tag, value); };
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

void TensorBoardWriter::write(const EvalMetrics& metrics) {
  event::Event event = event_of(metrics.step);
  append_value(event, "eval/loss", metrics.loss);
  if (metrics.accuracy) append_value(event, "eval/accuracy", *metrics.accuracy);
  if (metrics.bits_per_byte) append_value(event, "eval/bits_per_byte", *metrics.bits_per_byte);
  append(event.SerializeAsString());
}

void TensorBoardWriter::add_scalar(const std::string& tag, double value, std::int64_t step) {
  event::Event event = event_of(step);
  append_value(event, tag, value);
  append(event.SerializeAsString());
}

void TensorBoardWriter::add_text(const std::string& tag, const std::string& text,
                                 std::int64_t step) {
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

}  // namespace tessera::models::watch
