"""``python -m alerts``: writes the generated files; ``--check`` only says what differs."""

from __future__ import annotations

import argparse
from pathlib import Path

from alerts import build, drift, files


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
    parser.add_argument("--into", type=Path, metavar="DIR", help="only the rules, into this folder")
    options = parser.parse_args()
    if not options.time_scale > 0:
        parser.error("--time-scale must be above 0")
    if options.time_scale != 1 and options.into is None:
        parser.error("--time-scale goes with --into DIR: the committed files are those of scale 1")
    if options.into is not None:
        wanted = {options.into / name: text for name, text in build(options.time_scale).items()}
        changed = list(wanted)
    else:
        wanted = files()
        changed = drift(wanted)
    if options.check:
        for path in changed:
            print(f"{path.name}: not what the code makes; run make alerts")
        return 1 if changed else 0
    for path in changed:
        if path not in wanted:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
    print(f"{len(wanted)} files, {len(changed)} written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
