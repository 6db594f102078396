#pragma once

/// What is to be seen of a run, from the files in its folder.

#include <string>
#include <vector>

namespace tessera::tools {

/// Reads from the folder of a run
///
///     metrics.jsonl   as models/training/metrics.h writes it
///     config.json     an object
///     sample.txt      text the model made, of any bytes           (may be missing)
///     failure.txt     why the run ended early                     (may be missing)
///     summary.json    further figures, an object: name -> text or number, shown as they stand
///                                                                 (may be missing)
///
/// and writes into it loss.svg, learning_rate.svg, throughput.svg, memory.svg, grad_norm.svg and
/// report.html, which has all of them in it and needs no other file, no script and no network.
/// Files that exist are replaced. It may be called while the run is going on.
///
/// Throws what read_metrics throws, DataError for JSON files that are none, and Error with path
/// and reason for what cannot be read or written.
void write_report(const std::string& run_folder);

/// The names of the files that write_report writes.
std::vector<std::string> report_files();

}  // namespace tessera::tools
