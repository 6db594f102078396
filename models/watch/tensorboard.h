#pragma once

/// Event files that TensorBoard shows: `tensorboard --logdir runs`.
///
///     models::watch::TensorBoardWriter board("runs/first");
///     board.add_scalar("loss", loss, step);
///     board.add_text("notes", "the first try");
///
/// The file is a sequence of TFRecords, each a protobuf message Event (event.proto) between its
/// length and checksums. Formats: tensorflow/core/util/event.proto, framework/summary.proto and
/// lib/io/record_writer.h of TensorFlow, in version 2 of the event format ("brain.Event:2").

#include <cstdint>
#include <string>

#include "tessera/models/training/metrics.h"
#include "tessera/models/watch/appended_file.h"

namespace tessera::models::watch {

/// A new event file, open for writing. Every event is passed to the system in one piece before its
/// call returns, so the file is valid after `kill -9`. If an event cannot be written (disk full),
/// the file is truncated to its previous end and the call throws Error with path and reason. Used
/// by one thread; with several ranks, rank 0 writes.
class TensorBoardWriter {
 public:
  /// Creates the folder, and in it events.out.tfevents.<seconds>.<host>.<process>.<number>. Throws
  /// Error with path and reason.
  explicit TensorBoardWriter(const std::string& folder);
  /// The same for a run that goes on at `first_step`: TensorBoard leaves out what the folder's earlier files
  /// have from that step on.
  TensorBoardWriter(const std::string& folder, std::int64_t first_step);
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  const std::string& path() const { return file_.path(); }

  /// A point of the curve `tag`; NaN and infinity too. TensorBoard keeps scalars in f32. A
  /// '/' in a tag makes groups: "train/loss".
  void add_scalar(const std::string& tag, double value, std::int64_t step);
  /// Shown unchanged in the text plugin: the configuration, the sample. TensorBoard reads Markdown,
  /// so the text is written as a code block, indented by four spaces. The text may hold any bytes;
  /// invalid UTF-8 becomes U+FFFD.
  void add_text(const std::string& tag, const std::string& text, std::int64_t step = 0);

  /// Tags loss, grad_norm, lr, tokens_per_s or samples_per_s, step_ms, peak_bytes,
  /// gathered_peak_bytes, comm_bytes; also auxiliary_loss and loss_scale if the step has them.
  void write(const StepMetrics& metrics);
  /// Tags eval/loss, eval/accuracy, eval/bits_per_byte.
  void write(const EvalMetrics& metrics);

 private:
  void append(const std::string& event);

  AppendedFile file_;
};

}  // namespace tessera::models::watch
