"""``python -m alerts``: writes the generated files; ``--check`` only says what differs."""

from __future__ import annotations

import argparse
from pathlib import Path

from alerts import GENERATED, build, drift


def main() -> int:
    """0, or 1 where ``--check`` found files that are not what the code makes."""
    parser = argparse.ArgumentParser(prog="python -m alerts", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 on a difference")
    parser.add_argument(
        "--time-scale",
        type=float,
        default=1.0,
        metavar="S",
        help="divide every amount of time by S, for a replay that is S times faster than life; "
        "goes with --into",
    )
    parser.add_argument("--into", type=Path, default=GENERATED, metavar="DIR", help="where to")
    options = parser.parse_args()
    if not options.time_scale > 0:
        parser.error("--time-scale must be above 0")
    if options.time_scale != 1 and options.into == GENERATED:
        parser.error("--time-scale goes with --into DIR: the committed files are those of scale 1")
    wanted = build(options.time_scale)
    if options.check:
        changed = drift(wanted)
        for name in changed:
            print(f"{name}: not what the code makes; run make alerts")
        return 1 if changed else 0
    options.into.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (options.into / name).write_text(text, encoding="utf-8")
    print(f"{len(wanted)} files in {options.into}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
