"""The results of tools/mutate: files with a line of JSON per defect, and tables made from them."""

import json
import os

from mutation_runs import CAUGHT, COMPILE_ERROR, NOT_FOUND


def read_results(path):
    """The last result for each (id, digest, commit). Ignores an incomplete last line."""
    results = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    result = json.loads(line)
                    key = result["id"], result["digest"], result["commit"]
                    results.pop(key, None)  # so that the order is that of the last results
                    results[key] = result
    return results


def append_result(path, result):
    with open(path, "ab+") as file:
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        file.write(json.dumps(result).encode() + b"\n")


def is_caught(result):
    return result is not None and result["result"] in (CAUGHT, COMPILE_ERROR)


def is_settled(result, stages):
    """Whether another run with these stages would add nothing."""
    return is_caught(result) or (result is not None and set(stages) <= set(result["stages"]))


def by_defect(path):
    """The last result of each defect."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    return {id: result for (id, _, _), result in read_results(path).items()}


def cell(result):
    if result is None:
        return "no result"
    text = f"**{result['result']}**" if result["result"] != CAUGHT else ""
    if result["by"]:
        more = f" and {len(result['by']) - 1} more" if len(result["by"]) > 1 else ""
        text += f"{': ' if text else ''}{result['by'][0]}{more}"
    stage = f", {result['stage']}" if is_caught(result) and result["stage"] != "expected" else ""
    return " ".join(f"{text} ({result['seconds']:.0f} s{stage})".replace("|", "\\|").split())


def summary(name, results):
    counts = {kind: sum(result["result"] == kind for result in results.values())
              for kind in (CAUGHT, COMPILE_ERROR, NOT_FOUND)}
    seconds = sum(result["seconds"] for result in results.values())
    commits = dict.fromkeys(result["commit"][:10] for result in results.values())
    return (f"{name}, commit {' and '.join(commits) or '-'}: {len(results)} defects, {counts[CAUGHT]} caught, {counts[NOT_FOUND]} not found, "
            f"{counts[COMPILE_ERROR]} that did not compile; {seconds:.0f} s")


def table(paths):
    """The lines of a Markdown table with a column per file, and whether the last file has caught all that the first has."""
    names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    columns = [by_defect(path) for path in paths]
    files = {id: result["file"] for column in columns for id, result in column.items()}
    lines = [f"| defect | file | {' | '.join(names)} |", "|" + "---|" * (2 + len(paths))]
    for id in sorted(files):
        cells = [cell(column.get(id)) for column in columns]
        lines.append(f"| {id} | `{files[id]}` | {' | '.join(cells)} |")
    lines += ["", *(summary(name, column) for name, column in zip(names, columns))]
    lost = [id for id in sorted(files) if is_caught(columns[0].get(id)) and not is_caught(columns[-1].get(id))]
    lines += [f"lost: {id}" for id in lost]
    return lines, not lost
