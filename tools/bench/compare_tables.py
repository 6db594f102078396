"""Shared by compare_pytorch: its results as text."""

import collections
import math
import statistics


def table(rows):
    """Lines of columns of equal width; the first row is the heading."""
    widths = [max(len(str(row[at])) for row in rows) for at in range(len(rows[0]))]
    text = [["{:<{}}" if at < 2 else "{:>{}}" for at in range(len(widths))]] * len(rows)
    return ["  ".join(each.format(cell, width) for each, cell, width in zip(form, map(str, row), widths)).rstrip()
            for form, row in zip(text, rows)]


def head(results):
    where, what = results["machine"], results["versions"]
    unlocked = {True: "MKL unlocked by a preloaded library (it runs slow kernels on AMD's CPUs)", False: "as installed"}
    pytorch = f"PyTorch {what['pytorch']} ({what['pytorch_capability']}), {unlocked[what['mkl_unlocked']]}" if what["pytorch"] else \
        f"PyTorch skipped: {results['peer_skipped']}"
    return [f"{what['date']}, {where['cpu']} (family {where['family']}, model {where['model']}; {' '.join(where['flags'])}), "
            f"{where['cores_used']} of {where['cores']} cores",
            f"Tessera {what['tessera']}, commit {what['commit'] or 'unknown'}, kernels for {what['instruction_set']}", pytorch,
            *([f"{where['busy']} other processes computed on the same cores all the time"] if where.get("busy") else []),
            f"load average {where['load_before']} before, {where['load_after']} after: above {where['cores_used']} others disturbed the figures"]


def limit_lines(results):
    by = collections.defaultdict(dict)
    for line in results["limits"]:
        figure = line.get("gflops", line.get("gb_per_s"))
        if figure is not None:
            by[line["limit"], line["dtype"], line["threads"]][line["side"]] = figure
    sides = [side for side in ("tessera", "pytorch", "pytorch as installed") if any(side in each for each in by.values())]
    rows = [["limit", "dtype", "threads"] + sides]
    for (limit, dtype, threads), figures in by.items():
        unit = "GB/s" if limit == "triad" else "GFLOP/s"
        rows.append([f"{limit}, {unit}", dtype, threads] + [figures.get(side, "") for side in sides])
    return table(rows) if by else []


def share(side, of):
    return f"{100 * side[of]:.0f} %" if of in side else ""


def training_lines(results):
    rows = [["model", "side", "dtype", "ranks", "tokens/s", "of peak", "of product", "ratio", "quartiles", "pairs", "MiB"]]
    for row in results["training"]:
        what = [row["dtype"], row["ranks"]]
        for name, side in row.get("sides", {}).items():
            if "tokens_per_s" not in side:
                rows.append([row["model"], name, *what, "ran", "", "", "", "", row["pairs"], ""])
                continue
            way = f" ({side['way']}, {side['optimizer']})" if "way" in side else ""
            ratio = [f"{side['ratio']:.2f}", "-".join(f"{each:.2f}" for each in side["quartiles"])] if "ratio" in side else ["", ""]
            rows.append([row["model"], name + way, *what, side["tokens_per_s"], share(side, "share_of_peak"), share(side, "share_of_product"), *ratio, row["pairs"], side["peak_rss_mib"]])
        if "skipped" in row:
            rows.append([row["model"], "PyTorch skipped", *what, "", "", "", "", "", "", ""])
        for name, reason in row.get("failed", {}).items():
            rows.append([row["model"], f"{name} failed: {reason[:70]}", *what, "", "", "", "", "", "", ""])
    return table(rows)


def is_small(shape):
    """True for the operands whose time is that of the call rather than of the arithmetic."""
    return max(shape) <= 256 and math.prod(shape) <= 64 ** 3


def operation_lines(results):
    """A summary for each dtype and number of threads, and the operations that are slowest beside PyTorch's."""
    measured = [row for row in results["operations"] if "ratio" in row]
    groups = collections.defaultdict(list)
    for row in measured:
        groups[row["dtype"], row["threads"], "small" if is_small(row["shape"]) else "large"].append(row["ratio"])
    rows = [["dtype", "operands", "threads", "rows", "median ratio", "faster", "under 0.9"]]
    for (dtype, threads, size), ratios in sorted(groups.items()):
        rows.append([dtype, size, threads, len(ratios), f"{statistics.median(ratios):.2f}", sum(ratio >= 1 for ratio in ratios),
                     sum(ratio < 0.9 for ratio in ratios)])
    lines = table(rows) if groups else []
    slowest = sorted((row for row in measured if row["ratio"] < 1), key=lambda row: row["ratio"])[:25]
    if slowest:
        lines += ["", "the slowest beside PyTorch's:"] + table(
            [["operation", "shape", "dtype", "threads", "us", "PyTorch us", "ratio"]] +
            [[f"{row['op']} {row['pass']}", "x".join(map(str, row["shape"])), row["dtype"], row["threads"], row["us"], row["torch_us"],
              f"{row['ratio']:.2f}"] for row in slowest])
    ran = sum("smoke" in row for row in results["operations"])
    return lines + ([f"{ran} rows ran"] if ran else [])


def text_of(results):
    parts = [head(results)]
    for name, lines in (("limits", limit_lines), ("training", training_lines), ("operations", operation_lines)):
        if results.get(name):
            parts.append([name.upper()] + lines(results))
    parts.append(["ratio: PyTorch's time divided by ours, the median over pairs; above 1 ours is faster"])
    return "\n\n".join("\n".join(part) for part in parts)
