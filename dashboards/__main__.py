"""``python -m dashboards``: writes the generated JSON; ``--check`` only says what differs."""

from __future__ import annotations

import argparse

from dashboards import GENERATED, drift, files


def main() -> int:
    """0, or 1 where ``--check`` found files that are not what the code makes."""
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 on a difference")
    wanted = files()
    changed = drift(wanted)
    if parser.parse_args().check:
        for path in changed:
            print(f"{path.relative_to(GENERATED)}: not what the code makes; run make dashboards")
        return 1 if changed else 0
    for path in changed:
        if path not in wanted:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
    print(f"{len(wanted)} dashboards, {len(changed)} files changed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
