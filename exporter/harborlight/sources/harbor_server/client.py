"""The questions to one Harbor server: GET requests only, each with a deadline."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harborlight.sources.failure import Trouble, Unreadable
from harborlight.sources.fetch import MAX_JSON_BYTES, fetch_json
from harborlight.sources.harbor_files import FileError
from harborlight.sources.harbor_server.answers import (
    AT_WORK,
    JobSummary,
    Rollout,
    read_job,
    read_job_config_of,
    read_one_rollout,
    read_page,
    read_rollout,
)
from harborlight.sources.harbor_server.targets import HarborServerTarget
from harborlight.sources.safe_read import MIB

API_VERSION: Final = "2026-10-30"
"""The one whose answers are read. A server of another refuses it, which is better than a guess."""

PAGE_SIZE: Final = 100
"""Harbor's own limit."""

MAX_PAGES: Final = 2000
MAX_JOB_BYTES: Final = 16 * MIB
MAX_ROLLOUT_BYTES: Final = 64 * MIB
"""A result may hold whole conversations, of which nothing is read."""

type Parameters = Sequence[tuple[str, str]]

_EXPECTED: Final = {
    "HTTP 400": f"expected Harbor's API of version {API_VERSION}",
    "HTTP 401": "expected to be let in with the configured API key",
    "HTTP 403": "expected to be let in: without an API key a server talks to its own host only",
    "HTTP 404": "expected a Harbor server at the configured URL",
}


class AskError(Exception):
    """A question without an answer that can be read; the text says what was expected.

    ``of_this``: it may be about what was asked for only. ``hung``: the server did not answer in
    time. ``for_good``: to ask again brings the same.
    """

    def __init__(
        self, reason: str, *, of_this: bool = False, hung: bool = False, for_good: bool = False
    ) -> None:
        super().__init__(reason)
        self.of_this = of_this
        self.hung = hung
        self.for_good = for_good


@dataclass(frozen=True, slots=True)
class Entries[T]:
    """A page's entries; ``bad`` says of each that could not be read what was expected."""

    good: tuple[T, ...]
    bad: tuple[str, ...]


class Client:
    """Asks one server. ``deadline``: of the request under way, on the monotonic clock."""

    def __init__(
        self, target: HarborServerTarget, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._target = target
        self._clock = clock
        self.deadline = float("-inf")

    def jobs(self) -> Iterator[Entries[JobSummary]]:
        """All jobs, page by page. Raises AskError."""
        return self._pages("/jobs", (), read_job)

    def at_work(self) -> Iterator[Entries[Rollout]]:
        """The rollouts that run. Raises AskError."""
        states = tuple(("states", state) for state in AT_WORK)
        return self._pages("/rollouts", states, read_rollout)

    def changed(self) -> Iterator[Entries[Rollout]]:
        """All rollouts, those first that changed last. Raises AskError."""
        return self._pages("/rollouts", (("sort", "-updated_at"),), read_rollout)

    def rollout(self, rollout_id: str) -> tuple[Rollout, bytes | None]:
        """One rollout and its result. Raises AskError."""
        path = f"/rollouts/{rollout_id}"
        data = self._get(path, (), "/rollouts/ID", MAX_ROLLOUT_BYTES)
        rollout, result = self._read(read_one_rollout, data, "/rollouts/ID")
        if rollout.id != rollout_id:
            reason = "GET /rollouts/ID: expected the one that was asked for"
            raise AskError(reason, of_this=True, for_good=True)
        return rollout, result

    def job_config(self, job_id: str) -> bytes:
        """One job's configuration. Raises AskError."""
        data = self._get(f"/jobs/{job_id}", (), "/jobs/ID", MAX_JOB_BYTES)
        return self._read(read_job_config_of, data, "/jobs/ID")

    def _pages[T](
        self, path: str, parameters: Parameters, read: Callable[[bytes], T]
    ) -> Iterator[Entries[T]]:
        parameters = (*parameters, ("page_size", str(PAGE_SIZE)))
        token, seen = "", set[str]()
        for _ in range(MAX_PAGES):
            turn = (("page_token", token),) if token else ()
            data = self._get(path, (*parameters, *turn), path, MAX_JSON_BYTES)
            try:
                page = read_page(data)
            except FileError as error:
                raise AskError(f"GET {path}: {error}") from None
            if len(page.items) > PAGE_SIZE:
                raise AskError(f"GET {path}: expected at most {PAGE_SIZE} entries a page")
            good, bad = [], []
            for item in page.items:
                try:
                    good.append(read(item))
                except FileError as error:
                    bad.append(str(error))
            yield Entries(tuple(good), tuple(bad))
            token = page.next_token
            if not token:
                return
            if token in seen:
                raise AskError(f"GET {path}: expected another page, got one for a second time")
            seen.add(token)
        raise AskError(f"GET {path}: expected at most {MAX_PAGES} pages")

    def _read[T](self, read: Callable[[bytes], T], data: bytes, shown: str) -> T:
        try:
            return read(data)
        except FileError as error:
            raise AskError(f"GET {shown}: {error}", of_this=True, for_good=True) from None

    def _get(self, path: str, parameters: Parameters, shown: str, most: int) -> bytes:
        """``shown``: the path as a failure names it."""
        url = self._target.url.rstrip("/") + path
        if parameters:
            url += "?" + urllib.parse.urlencode(parameters)
        self.deadline = self._clock() + self._target.timeout
        try:
            return fetch_json(self._target, url, self.deadline, most=most, headers=_HEADERS)
        except Unreadable as unreadable:
            failure = unreadable.failure
        about, missing = failure.reason, failure.trouble is Trouble.NOT_FOUND
        if failure.timed_out:
            about += f"; expected an answer within {self._target.timeout:g} s"
        elif missing and path != shown:
            about += "; expected what the server lists"
        elif about in _EXPECTED:
            about += f"; {_EXPECTED[about]}"
        else:
            about += "; expected the answer of a Harbor server"
        too_large = failure.reason == "the answer is too large"
        raise AskError(
            f"GET {shown}: {about}",
            of_this=missing
            or too_large
            or failure.timed_out
            or failure.reason.startswith("HTTP 5"),
            hung=failure.timed_out,
            for_good=too_large,
        )


_HEADERS: Final[Mapping[str, str]] = {"Harbor-API-Version": API_VERSION}
