#pragma once

/// Makes the report of a run from the files in its folder.

#include <string>
#include <vector>

namespace tessera::tools {

/// Reads from the folder of a run
///
///     metrics.jsonl   as models/training/metrics.h writes it
///     config.json     an object
///     sample.txt      text the model generated, of any bytes      (may be missing)
///     failure.txt     why the run ended early                     (may be missing)
///     summary.json    further figures, an object: name -> text or number, shown unchanged
///                                                                 (may be missing)
///
/// and writes loss.svg, learning_rate.svg, throughput.svg, memory.svg, grad_norm.svg and
/// report.html, which contains all of them and needs no other file, no script and no network.
/// Existing files are replaced. May be called during the run.
///
/// Throws the errors of read_metrics, DataError for invalid JSON files, and Error with path and
/// reason for files that cannot be read or written.
void write_report(const std::string& run_folder);

/// The names of the files that write_report writes.
std::vector<std::string> report_files();

}  // namespace tessera::tools
