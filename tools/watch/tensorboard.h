#pragma once

/// Event files that TensorBoard shows: `tensorboard --logdir RUN`.
///
/// The file is a sequence of TFRecords, each a protobuf message Event (event.proto) between its
/// length and checksums. Formats: tensorflow/core/util/event.proto, framework/summary.proto and
/// lib/io/record_writer.h of TensorFlow, in version 2 of the event format ("brain.Event:2").

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/models/training/metrics.h"

namespace tessera::tools {

/// A new event file, open for writing. Every event is passed to the system in one piece before its
/// call returns, so the file is valid after `kill -9`. If an event cannot be written (disk full),
/// the file is truncated to its previous end and the call throws Error with path and reason. Used
/// by one thread.
class EventFile {
 public:
  /// Creates the folder, and in it events.out.tfevents.<seconds>.<host>.<process>.<number>. Throws
  /// Error with path and reason.
  explicit EventFile(const std::string& folder);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  /// Tags loss, grad_norm, lr, tokens_per_s or samples_per_s, step_ms, peak_bytes,
  /// gathered_peak_bytes, comm_bytes; also auxiliary_loss and loss_scale if the step has them.
  void write(const models::StepMetrics& metrics);
  /// Tags eval/loss, eval/accuracy, eval/bits_per_byte.
  void write(const models::EvalMetrics& metrics);
  /// Shown unchanged in the text plugin: the configuration, the sample. TensorBoard reads Markdown,
  /// so the text is written as a code block, indented by four spaces. The text may hold any bytes;
  /// invalid UTF-8 becomes U+FFFD.
  void write_text(const std::string& tag, const std::string& text, std::int64_t step = 0);
  /// TensorBoard keeps scalars in f32.
  void write_scalar(const std::string& tag, double value, std::int64_t step);

 private:
  void append(const std::string& event);

  std::string path_;
  int file_ = -1;
};

/// The checksum of TFRecords.

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
std::uint32_t crc32c(std::string_view bytes);

/// The form in TFRecords: rotated right by 15 bits, plus a constant, so that the checksum of data
/// that contains checksums is not constant. Format: tensorflow/core/lib/hash/tensorboard.h.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tessera::tools
