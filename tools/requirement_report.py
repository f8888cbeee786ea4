"""Print every requirement and whether a passing test of the last run proves it. Never fails: it reports."""

from __future__ import annotations

from tools.requirement_rows import figures, load_record, measured, proven, rows


def main() -> None:
    record = load_record()
    all_rows = rows()
    done = proven(record)
    by_figures, shown = measured(record), figures(record)
    section = ""
    for number, row in sorted(all_rows.items()):
        if row.section != section:
            section = row.section
            print(f"\n{section}")
        print(f"  {'≈' if number in by_figures else '✔' if number in done else '·'} {number:>3}  {row.title}")
        for proof in shown.get(number, ()):
            print(f"          measured: {proof.figure} (benchmarks/RESULTS.md, {proof.measured})")
    open_rows = sorted(all_rows.keys() - done)
    print(
        f"\n{len(done)} of {len(all_rows)} proven by a passing test, {len(by_figures)} of them (≈) by recorded figures."
    )
    if open_rows:
        print("Open: " + ", ".join(map(str, open_rows)))
    if not record:
        print("No test run has been recorded yet: `make test` records one.")


if __name__ == "__main__":
    main()
