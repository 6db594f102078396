"""The result file: finished rows, comparison of figures with goals, lines for tests/gpu/STATUS.md."""

import collections
import json
import os
import statistics
import sys
import time

from machine import bundle_id, machine


def worlds_of(text):
    return set(filter(None, text.split(",")))


class Results:
    """The result file. It is written after each row, so nothing is lost.

        A result of a test on several ranks is for certain world sizes: results for 1,2 and for 4,8 may both be in the file, and a
        call for 1,2,3 runs the test again. A row that was cut because the call's time was up is in the file, but not finished.
    """

    def __init__(self, path):
        self._path = path
        self.content = {"bundle": bundle_id(), "machine": machine(), "results": []}
        if os.path.exists(path):
            here = self.content
            self.content = read(path)
            if self.content["bundle"] != here["bundle"]:
                sys.exit(f"run.py: {path} is of another bundle; give another --out")
            if any(self.content["machine"].get(what) != here["machine"][what] for what in ("gpus", "names", "versions")):
                sys.exit(f"run.py: {path} is of other GPUs or other libraries; give another --out")

    def _of(self, name):
        return [result for result in self.content["results"] if result["name"] == name]

    def has(self, name, worlds):
        whole = [worlds_of(result["worlds"]) for result in self._of(name) if not result.get("cut")]
        return bool(whole) and worlds_of(worlds) <= set().union(*whole)

    def add(self, result):
        """Replaces the results of the same row that it covers."""
        worlds = worlds_of(result["worlds"])
        replaced = [other for other in self._of(result["name"]) if other.get("cut") or worlds_of(other["worlds"]) <= worlds]
        kept = [other for other in self.content["results"] if other not in replaced]
        self.content["results"] = kept + [dict(result, date=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))]

    def drop(self, names):
        self.content["results"] = [result for result in self.content["results"] if result["name"] not in names]

    def counts(self):
        cases = [case["result"] for result in self.content["results"] for case in result["cases"]]
        return {what: cases.count(what) for what in ("passed", "failed", "skipped")}

    def write(self, left):
        content = dict(self.content, **self.counts(), goals=goals(self.content["results"]), left=left)
        with open(self._path + ".new", "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
        os.replace(self._path + ".new", self._path)


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def is_number(value):
    return isinstance(value, (int, float)) and value == value  # NaN differs from itself


def goals(results):
    """For each benchmark and goal: the number of lines, the number that meet it, median and worst ratio, and the lines that
    miss it.
    """
    lines = collections.defaultdict(list)
    for result in results:
        for figure in result.get("figures", []):
            if isinstance(figure, dict) and "goal" in figure:
                lines[result["name"], figure["goal"]].append(figure)
    found = []
    for (benchmark, goal), figures in lines.items():
        measured = sorted((figure for figure in figures if is_number(figure.get("ratio"))), key=lambda figure: figure["ratio"])
        missed = [figure for figure in measured if figure["ratio"] < goal]
        found.append({"benchmark": benchmark, "goal": goal, "lines": len(figures), "met": len(measured) - len(missed),
                      "met_by_all": len(measured) == len(figures) and not missed,
                      "median": statistics.median(figure["ratio"] for figure in measured) if measured else None,
                      "worst": measured[0]["ratio"] if measured else None, "missed": missed})
    return found


def words_of(goal):
    """One line of goals() as text."""
    ratios = "no ratio" if goal["worst"] is None else f"median {goal['median']:.3f}, worst {goal['worst']:.3f}"
    said = "met" if goal["met_by_all"] else "NOT met"
    return f"{goal['benchmark']}: goal {goal['goal']} {said} by {goal['met']} of {goal['lines']}; {ratios}"


def label_of(name):
    """tests.gpu.x_test -> //tests/gpu:x_test; other names are unchanged."""
    folder, _, target = name.rpartition(".")
    return f"//{folder.replace('.', '/')}:{target}" if name.startswith("tests.") else name


def outcome(result):
    """Counts of the cases, with the reasons of those that did not pass."""
    cases = [case["result"] for case in result["cases"]]
    said = ", ".join(f"{cases.count(what)} {what}" for what in ("passed", "failed", "skipped") if what in cases)
    named = [": ".join(filter(None, [case["name"], case["reason"]])) for case in result["cases"] if case["result"] != "passed"]
    # A line of a table: a bar would end a cell.
    reasons = "; ".join(dict.fromkeys(filter(None, named))).replace("|", "/").replace("\n", " ")
    return said + (f" ({reasons})" if reasons else "")


def table(path, commit):
    """Lines of Markdown: each row of the file with the text for the last column of tests/gpu/STATUS.md, then the goals."""
    content = read(path)
    machine_here = content["machine"]
    names = sorted(set(name.replace(", ", " / ") for name in machine_here["names"])) or ["no GPU"]
    lines = [f"On {machine_here['gpus']} x {', '.join(names)}, of commit {commit}, bundle {content['bundle']}, with:", ""]
    lines += [f"- {library} {said}" for library, said in machine_here["versions"].items()]
    lines += ["", "| what | worlds | run on a GPU |", "|---|---|---|"]
    gpu, driver = (machine_here["names"][0].split(", ") + [""])[:2] if machine_here["names"] else ("no GPU", "")
    for result in content["results"]:
        where = ", ".join(filter(None, [result["date"][:10], gpu, driver and f"driver {driver}", commit]))
        lines.append(f"| `{label_of(result['name'])}` | {result['worlds']} | {where}: {outcome(result)} |")
    lines += [""] + [f"- {words_of(goal)}" for goal in content["goals"]]
    return "\n".join(lines)
