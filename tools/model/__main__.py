"""`python -m tools.model`: check the protocols with two faults, then every variant; print each shortest trace."""

from __future__ import annotations

import sys

from tools.model.variants import BROKEN, COMPLETE, REDUNDANT


def main() -> int:
    wrong = 0
    for variant in (*COMPLETE, *REDUNDANT):
        report = variant.run(faults=2)
        wrong += report.invariant is not None
        print(f"{variant.title}: {report.text()}", flush=True)
    for variant in BROKEN:
        report = variant.run()
        wrong += report.invariant is None or not report.invariant.startswith(f"{variant.violates} ")
        print(f"\n{variant.title}: {report.text()}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
