#pragma once

/// Makes the report of a run from the files in its folder: charts, figures and a page.
///
///     models::watch::write_report("runs/first");   // then open runs/first/report.html

#include <string>
#include <vector>

namespace tessera::models::watch {

/// Reads from a folder
///
///     metrics.jsonl   as MetricsWriter (metrics_writer.h) writes it
///     config.json     options, an object                          (may be missing)
///     sample.txt      text the model generated, of any bytes      (may be missing)
///     profile.txt     where the time of some steps went           (may be missing)
///     failure.txt     why the run ended early                     (may be missing)
///     summary.json    further figures, an object: name -> text or number, shown unchanged
///                                                                 (may be missing)
///
/// and writes loss.svg, learning_rate.svg, throughput.svg, memory.svg, grad_norm.svg and
/// report.html, which contains all of them and needs no other file, no script and no network. A
/// chart or figure whose value is zero in every step is left out: the loop did not measure it.
/// Existing files are replaced. May be called during the run, by one thread of one process.
///
/// Throws Error with path and reason for files that cannot be read or written; DataError naming
/// file and line for an invalid line of metrics, and the file for invalid JSON.
void write_report(const std::string& folder);

/// The names of the files that write_report writes.
std::vector<std::string> report_files();

}  // namespace tessera::models::watch
