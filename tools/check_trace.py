#!/usr/bin/env python3
"""Checks a trace that Tessera wrote (tessera train --trace): prints its contents, or all errors in it.

    tools/check_trace.py TRACE.json

It must be a Chrome trace in which

    - every event has a phase, a process, a thread and a finite time; no slice has a negative duration;
    - begin and end events balance, and the slices of a track nest; of slices that begin together the outer one comes first;
    - all ranks are present, with names for their processes and tracks, and ran the same steps;
    - each collective is on all ranks of its group, in one order, with the same operation, dtype and bytes;
    - both ends of each arrow are in slices, and no arrow goes back in time; counters and spans are in order;
    - the clocks of the ranks agree within 1 ms: no rank leaves a barrier more than 1 ms before another one enters it, and
      each rank left at least one barrier within 1 ms of rank 0. (Not every barrier: a rank that was not scheduled when
      the barrier ended notices it later.)

Exit status: 0 if all of this is true, 1 otherwise, 2 if the file does not exist.
"""

import bisect
import collections
import json
import math
import sys

NANOSECONDS = 1000  # in one of the file's microseconds
TOLERANCE = 1_000_000  # of clocks
SHOWN = 20  # problems
# Bytes of gathered values differ between ranks.
UNEQUAL = {"all_to_all"}


def nanoseconds(microseconds):
    return round(microseconds * NANOSECONDS)


class Slice:
    def __init__(self, event, begin, end, place):
        self.place = place  # in the file
        self.name = event.get("name", "")
        self.category = event.get("cat", "")
        self.args = event.get("args", {})
        self.rank = event["pid"]
        self.track = (event["pid"], event["tid"])
        self.begin = begin
        self.end = end

    def order(self):
        """Sort key: outer slices before inner ones; a module before its work and the modules inside it."""
        depth = len(self.name) if self.category == "module" else math.inf
        return (self.begin, -self.end, depth, self.place)

    def text(self):
        return f'"{self.name}" of track {self.track[1]} of rank {self.rank} at {self.begin / NANOSECONDS:.3f} us'


class Checker:
    def __init__(self, trace):
        self.problems = []
        self.events = []
        self.about = {}
        self.slices = []
        self.by_track = {}
        if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
            self.wrong("the file is no object with a list of traceEvents")
            return
        about = trace.get("otherData")
        if not isinstance(about, dict) or not isinstance(about.get("ranks"), int):
            self.wrong("the file says nothing of its ranks in otherData")
            return
        self.about = about
        self.events = [event for event in trace["traceEvents"] if self.has_form(event)]

    def wrong(self, problem):
        self.problems.append(problem)

    def run(self):
        if self.problems:
            return
        self.find_slices()
        if not self.slices:
            self.wrong("there are no slices")
        self.by_track = collections.defaultdict(list)
        for each in self.slices:
            self.by_track[each.track].append(each)
        self.check_nesting()
        self.check_names()
        self.check_steps()
        self.check_collectives()
        self.check_clocks()
        self.check_flows()
        self.check_spans()
        self.check_counters()

    # ---- events ---------------------------------------------------------------------------------------------------

    def has_form(self, event):
        if not isinstance(event, dict):
            self.wrong(f"an event is {event!r}, not an object")
            return False
        phase = event.get("ph")
        if phase not in ("B", "E", "X", "i", "C", "b", "e", "s", "t", "f", "M"):
            self.wrong(f"an event has the phase {phase!r}: {event}")
            return False
        for key in ("pid", "tid"):
            if not isinstance(event.get(key), int):
                self.wrong(f"an event has no number as its {key}: {event}")
                return False
        for key in {"M": (), "X": ("ts", "dur")}.get(phase, ("ts",)):
            value = event.get(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                self.wrong(f"an event has no finite {key}: {event}")
                return False
        return True

    def find_slices(self):
        open_slices = collections.defaultdict(list)
        last = {}
        for place, event in enumerate(self.events):
            phase, track = event["ph"], (event["pid"], event["tid"])
            if phase not in ("B", "E", "X"):
                continue
            at = nanoseconds(event["ts"])
            if phase == "X":
                self.add_slice(event, at, at + nanoseconds(event["dur"]), place)
                continue
            if at < last.get(track, at):
                self.wrong(f"track {track[1]} of rank {track[0]} goes back in time at {event}")
            last[track] = at
            if phase == "B":
                open_slices[track].append((event, at, place))
            elif not open_slices[track]:
                self.wrong(f"an end without a beginning: {event}")
            else:
                begun, begin, begun_place = open_slices[track].pop()
                if event.get("name", begun.get("name")) != begun.get("name"):
                    self.wrong(f'"{begun.get("name")}" began, but "{event.get("name")}" ends: {event}')
                self.add_slice(begun, begin, at, begun_place)
        for left in open_slices.values():
            for event, _, _ in left:
                self.wrong(f"a beginning without an end: {event}")

    def add_slice(self, event, begin, end, place):
        if not isinstance(event.get("args", {}), dict):
            self.wrong(f"the args of an event are no object: {event}")
            return
        each = Slice(event, begin, end, place)
        if end < begin:
            self.wrong(f"{each.text()} lasts {(end - begin) / NANOSECONDS:.3f} us")
        else:
            self.slices.append(each)

    def check_nesting(self):
        for slices in self.by_track.values():
            slices.sort(key=Slice.order)
            for outer, inner in zip(slices, slices[1:]):
                if outer.begin == inner.begin and outer.place > inner.place:
                    self.wrong(f"{inner.text()} stands before {outer.text()}, which is around it")
            around = []
            for each in slices:
                while around and around[-1].end <= each.begin:
                    around.pop()
                if around and each.end > around[-1].end:
                    self.wrong(f"{each.text()} begins inside of {around[-1].text()} and ends behind it")
                around.append(each)

    def is_whole(self):
        """Nothing was dropped because a rank's trace was full."""
        return not any(self.about.get("dropped", []))

    # ---- ranks ----------------------------------------------------------------------------------------------------

    def ranks(self):
        return sorted({event["pid"] for event in self.events})

    def check_names(self):
        named = {(e["pid"], e["tid"]) for e in self.events if e["ph"] == "M" and e.get("name") == "thread_name"}
        processes = {e["pid"] for e in self.events if e["ph"] == "M" and e.get("name") == "process_name"}
        expected = list(range(self.about["ranks"]))
        if self.ranks() != expected:
            self.wrong(f"there are events of the ranks {self.ranks()}, expected {expected}")
        for rank in sorted(set(self.ranks()) - processes):
            self.wrong(f"rank {rank} has no process_name")
        for rank, track in sorted(set(self.by_track) - named):
            self.wrong(f"track {track} of rank {rank} has no thread_name")

    def check_steps(self):
        steps = {rank: [] for rank in self.ranks()}
        for each in self.slices:
            if each.category == "trace" and each.args.get("phase") == "step":
                steps[each.rank].append(each.name)
        if self.is_whole():
            self.compare_steps(steps)

    def compare_steps(self, steps):
        for rank, names in steps.items():
            if names != steps[self.ranks()[0]] or not names:
                self.wrong(f"rank {rank} went through the steps {names}, rank {self.ranks()[0]} through {steps[self.ranks()[0]]}")

    # ---- collectives ----------------------------------------------------------------------------------------------

    def collectives(self):
        return [each for each in self.slices if each.category == "collective"]

    def check_collectives(self):
        """The calls by group and rank, and by sequence number."""
        groups = collections.defaultdict(lambda: collections.defaultdict(list))
        for each in self.collectives():
            args = each.args
            if not isinstance(args.get("ranks"), list) or each.rank not in args["ranks"]:
                self.wrong(f"{each.text()} is of a group with the ranks {args.get('ranks')}")
            elif not isinstance(args.get("sequence"), int):
                self.wrong(f"{each.text()} has no number as its sequence")
            elif args["sequence"] > 0:
                groups[(args.get("group"), tuple(args["ranks"]))][each.rank].append(each)
        is_whole = self.is_whole()
        for (name, ranks), by_rank in groups.items():
            calls = {rank: self.calls_of(name, rank, by_rank[rank]) for rank in ranks}
            for rank in ranks[1:]:
                if is_whole or set(calls[rank]) & set(calls[ranks[0]]):
                    self.compare_calls(name, (ranks[0], calls[ranks[0]]), (rank, calls[rank]), is_whole)

    def calls_of(self, group, rank, slices):
        calls = {}
        last_issue = -math.inf
        for each in sorted(slices, key=lambda s: s.args["sequence"]):
            number = each.args["sequence"]
            if number in calls:
                self.wrong(f'collective {number} of group "{group}" is on rank {rank} twice')
            issue = each.begin - nanoseconds(each.args.get("queued_us", 0))
            if issue < last_issue:
                self.wrong(f'collective {number} of group "{group}" was issued before number {number - 1} on rank {rank}')
            last_issue = issue
            bytes_ = None if each.args.get("op") in UNEQUAL else each.args.get("bytes")
            calls[number] = (each.args.get("op"), each.args.get("dtype"), bytes_, each.args.get("reduction"))
        return calls

    def compare_calls(self, group, first, second, is_whole):
        for number in sorted(set(first[1]) | set(second[1])):
            mine, other = first[1].get(number), second[1].get(number)
            if mine is None or other is None:
                if is_whole:
                    missing = first[0] if mine is None else second[0]
                    self.wrong(f'collective {number} of group "{group}" is missing on rank {missing}')
            elif mine != other:
                self.wrong(
                    f'collective {number} of group "{group}" is {mine} on rank {first[0]} and {other} on rank {second[0]}'
                )

    def check_clocks(self):
        if len(self.ranks()) < 2:
            return
        barriers = collections.defaultdict(dict)
        for each in self.collectives():
            if each.args.get("op") == "barrier" and each.args.get("ranks") == self.ranks():
                barriers[(each.args.get("group"), each.args.get("sequence"))][each.rank] = each
        whole = [by_rank for by_rank in barriers.values() if sorted(by_rank) == self.ranks()]
        for by_rank in whole:
            first = min(by_rank.values(), key=lambda each: each.end)
            last = max(by_rank.values(), key=lambda each: each.begin)
            if last.begin - first.end > TOLERANCE:
                late = (last.begin - first.end) / 1e6
                self.wrong(f"rank {first.rank} left a barrier {late:.3f} ms before rank {last.rank} came: {first.text()}")
        for rank in self.ranks()[1:]:
            apart = [abs(each[rank].end - each[self.ranks()[0]].end) for each in whole]
            if not apart or min(apart) > TOLERANCE:
                best = f"{min(apart) / 1e6:.3f} ms" if apart else "no barrier"
                self.wrong(f"the clock of rank {rank} is not proved to agree with that of rank 0 within 1 ms: {best}")

    # ---- arrows, spans, counters ----------------------------------------------------------------------------------

    def check_flows(self):
        begins = {track: [each.begin for each in slices] for track, slices in self.by_track.items()}
        flows = collections.defaultdict(list)
        for event in self.events:
            if event["ph"] in "stf":
                flows[(event.get("cat"), event.get("id"))].append(event)
                if not self.lies_in_slice(event, begins):
                    self.wrong(f"an end of an arrow lies in no slice: {event}")
        for events in flows.values():
            phases = "".join(event["ph"] for event in events)
            if phases[0] != "s" or phases[-1] != "f" or set(phases[1:-1]) - {"t"} or len(phases) < 2:
                self.wrong(f"an arrow has the ends {phases}: {events[0]}")
            times = [event["ts"] for event in events]
            if times != sorted(times):
                self.wrong(f"an arrow goes back in time: {events[0]}")

    def lies_in_slice(self, event, begins):
        track, at = (event["pid"], event["tid"]), nanoseconds(event["ts"])
        slices = self.by_track.get(track, [])
        # Among nested slices, the one that contains the time is the last that began before it, or one around that.
        last = bisect.bisect_right(begins.get(track, []), at) - 1
        while last >= 0:
            if slices[last].end >= at:
                return True
            last -= 1
        return False

    def check_spans(self):
        spans = collections.defaultdict(list)
        for event in self.events:
            if event["ph"] in "be":
                spans[(event.get("cat"), event.get("id"))].append(event)
        for events in spans.values():
            phases = "".join(event["ph"] for event in events)
            if phases != "be" * (len(events) // 2):
                self.wrong(f"beginnings and ends of a span do not take turns: {phases}: {events[0]}")
            times = [event["ts"] for event in events]
            if times != sorted(times):
                self.wrong(f"a span goes back in time: {events[0]}")

    def check_counters(self):
        last = {}
        for event in self.events:
            if event["ph"] != "C":
                continue
            if event["ts"] < last.get(event["pid"], event["ts"]):
                self.wrong(f"a counter goes back in time: {event}")
            last[event["pid"]] = event["ts"]
            for name, value in event.get("args", {}).items():
                if not isinstance(value, int) or value < 0:
                    self.wrong(f"a counter says {value} for {name}: {event}")

    def summary(self):
        length = (max(s.end for s in self.slices) - min(s.begin for s in self.slices)) / 1e6
        return (
            f"{len(self.ranks())} ranks, {len(self.events)} events, {len(self.by_track)} tracks, "
            f"{len(self.collectives())} collectives, {length:.3f} ms: all is well"
        )


def main(arguments):
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    path = arguments[0]
    try:
        with open(path, encoding="utf-8") as file:
            checker = Checker(json.load(file))
    except OSError as error:
        print(f"{path}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"{path}: no JSON: {error}", file=sys.stderr)
        return 1
    checker.run()
    for problem in checker.problems[:SHOWN]:
        print(f"{path}: {problem}", file=sys.stderr)
    if len(checker.problems) > SHOWN:
        print(f"{path}: and {len(checker.problems) - SHOWN} more", file=sys.stderr)
    if not checker.problems:
        print(f"{path}: {checker.summary()}")
    return 1 if checker.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
