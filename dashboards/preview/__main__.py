"""``python -m dashboards.preview``, run from the project's root: what ``make preview`` does.

Replays the demo in two minutes, draws every dashboard at several moments of it with Grafana's own
components, and says what is wrong with them. To design dashboards: ``--keep`` once, then
``--session dashboards/preview/pictures/session.json`` after each change, which takes seconds.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from dashboards.preview import drawings, toolchain
from dashboards.preview.drawings import LANGUAGES, PICTURES, THEMES
from dashboards.preview.moments import Moment
from dashboards.preview.processes import PreviewError
from dashboards.preview.session import Replay, Session

_SPEED = 1100.0
_CANNOT = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.preview",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    several = "several with commas between them"
    parser.add_argument("--only", type=_list, default=(), help=f"dashboards by name; {several}")
    for name, known in (("languages", LANGUAGES), ("themes", THEMES), ("moments", tuple(Moment))):
        default = ",".join(known)
        parser.add_argument(f"--{name}", type=_list, default=default, help=f"of {default}")
    parser.add_argument(
        "--speed", type=float, default=_SPEED, help="how many times faster than the real run"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave Prometheus running for --session"
    )
    parser.add_argument(
        "--session", type=Path, metavar="FILE", help="draw from a kept session, without a replay"
    )
    parser.add_argument(
        "--end-session", type=Path, metavar="FILE", help="stop a kept session, and draw nothing"
    )
    parser.add_argument("--publish", action="store_true", help="draw the README's pictures instead")
    parser.add_argument(
        "--skip-if-missing", action="store_true", help="0 where a needed program is not installed"
    )
    arguments = parser.parse_args()
    for name, known in (("languages", LANGUAGES), ("themes", THEMES), ("moments", tuple(Moment))):
        unknown = set(getattr(arguments, name)) - set(known)
        if unknown:
            parser.error(f"--{name}: {', '.join(sorted(unknown))} is none of {', '.join(known)}")
    return arguments


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _say(text: str) -> None:
    print(text, flush=True)


def _session(arguments: argparse.Namespace, scratch: Path, servers: ExitStack) -> Session:
    if arguments.session is not None:
        return Session.read(arguments.session)
    wanted = [Moment(name) for name in arguments.moments]
    _say("preview: replaying the demo")
    with Replay(scratch, arguments.speed, servers) as replay:
        return replay.follow(wanted)


def _draw(arguments: argparse.Namespace, session: Session, scratch: Path) -> list[str]:
    """Draw all of it; what is wrong with it, one fault a line."""
    wanted = [Moment(name) for name in arguments.moments]
    here = [moment for moment in wanted if moment in session.moments]
    faults = [
        f"{moment}: this moment did not occur in the replay"
        for moment in wanted
        if moment not in session.moments
    ]
    boards = drawings.boards(arguments.languages, arguments.only)
    planned = list(drawings.plan(boards, here, arguments.themes))
    jobs = [drawings.job(drawing, session) for drawing in planned]
    if here:
        jobs.append(drawings.selfcheck_job(session, here[-1]))
    _say(f"preview: drawing {len(jobs)} pictures")
    *reports, selfcheck = toolchain.draw(jobs, scratch)
    rows = list(zip(planned, reports, strict=True))
    (PICTURES / "report.json").write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")
    _say(drawings.table(rows))
    for drawing, report in rows:
        faults += drawings.errors(drawing, report)
    return faults + drawings.unreported(selfcheck)


def _preview(arguments: argparse.Namespace) -> int:
    if arguments.end_session is not None:
        Session.read(arguments.end_session).end()
        return 0
    lacking = toolchain.missing()
    if lacking is not None:
        _say(f"preview: {lacking}")
        return 0 if arguments.skip_if_missing else _CANNOT
    with ExitStack() as servers:
        scratch = Path(tempfile.mkdtemp(prefix="harborlight-preview-"))
        servers.callback(shutil.rmtree, scratch, ignore_errors=True)
        toolchain.build(scratch)
        session = _session(arguments, scratch, servers)
        PICTURES.mkdir(exist_ok=True)
        kept = PICTURES / "session.json"
        if arguments.session is None:
            session.write(kept)
        if arguments.publish:
            jobs = [drawings.shown_job(shown, session) for shown in drawings.SHOWN]
            toolchain.draw(jobs, scratch)
            _say(f"preview: {len(jobs)} pictures in {drawings.PUBLISHED}")
            return 0
        faults = _draw(arguments, session, scratch)
        for fault in faults:
            _say(fault)
        _say(f"preview: {len(faults) or 'no'} errors; pictures and report.json are in {PICTURES}")
        if arguments.keep and arguments.session is None:
            servers.pop_all()
            _say(kept.read_text(encoding="utf-8"))
            _say(f"preview: draw again with --session {kept}, end with --end-session {kept}")
    return 1 if faults else 0


def _stop(number: int, _: object) -> None:
    # As an exception, so that everything started is stopped.
    sys.exit(128 + number)


def main() -> int:
    """0; 1 with faults in the dashboards; 2 where they could not be drawn."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        return _preview(_arguments())
    except PreviewError as error:
        print(f"preview: {error}", file=sys.stderr)
        return _CANNOT


if __name__ == "__main__":
    raise SystemExit(main())
