"""The configuration file: strict, and every error at once, with its file, line and key."""

from __future__ import annotations

import contextlib
import difflib
import glob
import math
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, Self, get_args, override

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ModelWrapValidatorHandler,
    PlainValidator,
    PrivateAttr,
    SecretStr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from harborlight.reference import (
    Headline,
    InvalidReferenceError,
    Reference,
    ReferenceTask,
    check_headline,
)
from harborlight.sources import reference_files
from harborlight.views.feed.public_text import names_a_place, public_line, public_paragraph
from harborlight.views.feed.publication import TaskNames
from harborlight.words import Language, Words, same

MAX_FILE_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 16
"""How deep lists and mappings of a file may nest; the configuration itself needs five levels."""

MAX_ATTEMPTS: Final = 1_000_000

type Place = tuple[int | str, ...]
"""Where a value is: keys of mappings and positions in lists, from the top."""


class ConfigError(Exception):
    """What is wrong with a configuration, one line an error."""

    def __init__(self, errors: Iterable[str]) -> None:
        self.errors: tuple[str, ...] = tuple(errors)
        super().__init__(self.errors)

    @override
    def __str__(self) -> str:
        return "\n".join(self.errors)


# Errors in our own words. Pydantic's are about Python's types; nobody who writes YAML knows those.

_SAID: Final = "said"


def _said(text: str) -> PydanticCustomError:
    return PydanticCustomError(_SAID, "{said}", {"said": text})


def _several(errors: Iterable[tuple[Place, str]]) -> ValidationError:
    return ValidationError.from_exception_data(
        "configuration",
        [InitErrorDetails(type=_said(text), loc=place, input=None) for place, text in errors],
    )


def _expects(what: str, *, text: bool = False) -> WrapValidator:
    """Turn whatever is wrong with one value into ``expected WHAT, got VALUE``.

    ``text``: it is to be text, and a number or truth value only lacks its quotes.
    """

    def validate(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            hint = " (put it in quotes)" if text and isinstance(value, int | float) else ""
            raise _said(f"expected {what}, got {_shown(value)}{hint}") from None

    return WrapValidator(validate)


_SHOWN_LENGTH: Final = 60


def _shown(value: object) -> str:
    """A value of the file as an error quotes it: short, printable, in YAML's words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str() if "://" in value:
            return "a URL"  # wherever one is put by mistake: a key may be in it
        case str():
            shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in value)
            return f"'{shown if len(shown) <= _SHOWN_LENGTH else shown[:_SHOWN_LENGTH] + '...'}'"
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case _:
            return str(value)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {_shown(close[0])}?" if close else ""


class _Strict(BaseModel):
    """A mapping of known keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _in_own_words(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            raise _several(cls.reworded(error.errors())) from None

    @classmethod
    def reworded(cls, errors: Iterable[ErrorDetails]) -> Iterator[tuple[Place, str]]:
        """Where each error is, and what it is."""
        for error in errors:
            place, value = error["loc"], error["input"]
            match error["type"]:
                case "said":
                    yield place, error["ctx"]["said"]
                case "missing":
                    yield place[:-1], f"the key '{place[-1]}' is missing"
                case "extra_forbidden":
                    known = sorted(cls.model_fields)
                    hint = _did_you_mean(str(place[-1]), known)
                    yield place, f"unknown key{hint or f', expected one of {", ".join(known)}'}"
                case "default_factory_not_called":
                    pass  # it follows from another error
                case "list_type" | "tuple_type":
                    yield place, f"expected a list, got {_shown(value)}"
                case "dict_type" | "mapping_type" | "model_type":
                    yield place, f"expected a mapping, got {_shown(value)}"
                case "tasks_kind":
                    kinds = "a list of tasks, {file: PATH} or {job: NAME}"
                    yield place, f"expected {kinds}, got {_shown(value)}"
                case _:
                    yield place, f"{error['msg']}, got {_shown(value)}"


# Values.


def _matching(pattern: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text) or not text.isprintable():
            raise ValueError(text)
        return text

    return AfterValidator(check)


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")


def parse_duration(value: str | float) -> float:
    """Seconds of ``5s``, ``2m``, ``1h30m``, or of a number of seconds; else a ConfigError."""
    expected = ConfigError([f"expected a duration such as 5s, 2m or 1h, got {_shown(value)}"])
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise expected
    if not isinstance(value, str) or re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        seconds = float(value)
    elif re.fullmatch(rf"({_DURATION.pattern})+", value):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(value))
    else:
        raise expected
    if not math.isfinite(seconds) or seconds < 0:
        raise expected
    return seconds


def _duration(least: str, most: str | None = None) -> PlainValidator:
    def validate(value: Any) -> float:
        try:
            seconds = parse_duration(value)
        except ConfigError as error:
            raise _said(str(error)) from None
        if seconds < parse_duration(least):
            raise _said(f"expected at least {least}, got {_shown(value)}")
        if most is not None and seconds > parse_duration(most):
            raise _said(f"expected at most {most}, got {_shown(value)}")
        return seconds

    return PlainValidator(validate)


def _at_most_attempts(value: int) -> int:
    if value > MAX_ATTEMPTS:
        raise _said(f"expected at most {MAX_ATTEMPTS}, got {value}")
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(value)
    return value


Flag = Annotated[StrictBool, _expects("true or false")]
_LINE: Final = r"\S(.{0,498}\S)?"
Text = Annotated[StrictStr, _matching(_LINE), _expects("a line of text", text=True)]
PathText = Annotated[StrictStr, _matching(r".{1,4096}"), _expects("a path", text=True)]
Glob = Annotated[StrictStr, _matching(r".{1,1000}"), _expects("a name or a glob", text=True)]
_TASK_NAME: Final = r"\S(.{0,298}\S)?"
TaskName = Annotated[StrictStr, _matching(_TASK_NAME), _expects("a task's name", text=True)]
RunName = Annotated[
    StrictStr,
    _matching(r"[A-Za-z0-9][A-Za-z0-9 ._:/+-]{0,99}"),
    _expects(
        "a letter or digit, then at most 99 letters, digits, spaces or characters of ._:/+-",
        text=True,
    ),
]
ReferenceRef = Annotated[
    StrictStr, _matching(r".{1,100}"), _expects("the name of a reference", text=True)
]
RunRef = Annotated[StrictStr, _matching(r".{1,100}"), _expects("the name of a run", text=True)]


def _ratio(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise _said(f"expected a ratio from 0 to 1, got {_shown(value)}")


Ratio = Annotated[float, PlainValidator(_ratio)]

_LANGUAGES: Final = tuple(Language)


def _words(value: Any, shown: Callable[[str], str | None], what: str) -> Words:
    """A text for both languages, or a mapping with one for each."""
    if isinstance(value, Words):
        return value
    expected = f"expected {what}, or {{en: TEXT, zh: TEXT}}"
    given = value
    if isinstance(value, str):
        given = dict.fromkeys(_LANGUAGES, value)
    if not isinstance(given, Mapping) or set(given) != set(_LANGUAGES):
        raise _said(f"{expected}, got {_kind(value)}")
    texts = {}
    for language in _LANGUAGES:
        text = given[language]
        public = shown(text) if isinstance(text, str) else None
        if public is None:
            rest = ", without a path or an address" if _has_place(text) else ""
            raise _said(f"{expected}{rest}")
        texts[language] = public
    return Words(texts[Language.EN], texts[Language.ZH])


def _has_place(value: object) -> bool:
    return isinstance(value, str) and names_a_place(value)


PublicLine = Annotated[
    Words, PlainValidator(lambda value: _words(value, public_line, "a line of text"))
]
PublicParagraph = Annotated[
    Words, PlainValidator(lambda value: _words(value, public_paragraph, "text"))
]


def _line_in_both(value: Any) -> Words:
    """A line in one language for both, or in each. It may be one that is not for the public."""
    if isinstance(value, Mapping):
        return _words(value, lambda text: text if _is_line(text) else None, "a line of text")
    if isinstance(value, Words):
        return value
    if not isinstance(value, str) or not _is_line(value):
        hint = " (put it in quotes)" if isinstance(value, int | float) else ""
        raise _said(f"expected a line of text, got {_shown(value)}{hint}")
    return same(value)


def _is_line(text: str) -> bool:
    return re.fullmatch(_LINE, text) is not None and text.isprintable()


LineInBoth = Annotated[Words, PlainValidator(_line_in_both)]


def _link(value: Any) -> str:
    # Without a user or password, and nothing that ends a link's text or begins another.
    if isinstance(value, str) and re.fullmatch(
        r"https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~!$&'()*+,;=:@%/?#-]*)?", value
    ):
        return value
    raise _said("expected https://HOST/PATH")


def _link_in_both(value: Any) -> tuple[str | None, str]:
    """What a link shows in Chinese (None: the key's text), and where it leads."""
    match value:
        case {"zh": str(zh), "url": url} if len(value) == 2 and _is_line(zh):  # noqa: PLR2004 - both
            return zh, _link(url)
        case Mapping():
            raise _said("expected {zh: TEXT, url: https://HOST/PATH}")
        case _:
            return None, _link(value)


ExceptionType = Annotated[
    StrictStr,
    _matching(r"[A-Za-z_][A-Za-z0-9_.]{0,79}"),
    _expects("the name of an exception type", text=True),
]
Digest = Annotated[
    StrictStr, _matching(r"sha256:[0-9a-f]{64}"), _expects("sha256: and 64 hexadecimal digits")
]
Attempts = Annotated[
    StrictInt,
    Field(ge=1),
    _expects("a whole number >= 1"),
    AfterValidator(_at_most_attempts),
]
Ranks = Annotated[StrictInt, Field(ge=1, le=100_000), _expects("a whole number from 1 to 100000")]
Threshold = Annotated[StrictFloat, AfterValidator(_finite), _expects("a finite number")]
CauseName = Literal["container", "serving", "agent", "verifier"]
_OneCause = Annotated[CauseName, _expects(f"one of {', '.join(get_args(CauseName))}")]


def _handled[T](value: Any, handler: Callable[[Any], T], others: Sequence[tuple[Place, str]]) -> T:
    """What the handler makes of it; its errors and the others all at once."""
    try:
        handled = handler(value)
    except ValidationError as error:
        raise _several([*_Strict.reworded(error.errors()), *others]) from None
    if others:
        raise _several(others)
    return handled


def _all_different(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    first: dict[str, int] = {}
    errors: list[tuple[Place, str]] = []
    for position, name in enumerate(value if isinstance(value, list | tuple) else ()):
        if isinstance(name, str):
            if name in first:
                errors.append(((position,), f"{_shown(name)} is listed twice"))
            first.setdefault(name, position)
    return _handled(value, handler, errors)


def _not_empty[T](entries: tuple[T, ...]) -> tuple[T, ...]:
    # Pydantic's own limit of length would also complain where entries are wrong.
    if not entries:
        raise _said("expected at least one entry, got none")
    return entries


def _a_list(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise _said(f"expected a list, got {_kind(value)}")
    return value


def _a_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping | BaseModel):
        raise _said(f"expected a mapping, got {_kind(value)}")
    return value


def _kind(value: object) -> str:
    # Text in a server's or key's place may be an address or the key.
    return "text" if isinstance(value, str) else _shown(value)


ListedTasks = Annotated[
    tuple[TaskName, ...], AfterValidator(_not_empty), WrapValidator(_all_different)
]


# The models.


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file of task names, and the names in it."""

    path: Path
    names: tuple[str, ...]


def _path_in(value: Any, info: ValidationInfo) -> Path:
    """A path of the file, a relative one seen from the file's folder."""
    if not isinstance(value, str) or not value or not value.isprintable() or "://" in value:
        raise _said(f"expected a path, got {_shown(value)}")
    return _folder_of(info.context) / Path(value).expanduser()


def _read_task_file(value: Any, info: ValidationInfo) -> TaskFile:
    """Read it: one task a line, empty lines and comments (``#``) skipped."""
    if isinstance(value, TaskFile):
        return value
    path = _path_in(value, info)
    try:
        text = _read(path)
    except _UnreadableError as error:
        raise _said(f"'{_path_shown(path)}' {error}") from None
    names: dict[str, int] = {}
    errors: list[tuple[Place, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        # A name may contain a #, but not behind a space.
        name = re.sub(r"(^|\s)#.*", "", line).strip()
        if not name:
            continue
        where = f"'{_path_shown(path)}', line {number}"
        if not re.fullmatch(_TASK_NAME, name) or not name.isprintable():
            errors.append(((), f"{where}: expected a task's name, got {_shown(name)}"))
        elif name in names:
            errors.append(((), f"{where}: {_shown(name)} is listed twice (line {names[name]})"))
        else:
            names[name] = number
    if errors:
        raise _several(errors)
    if not names:
        raise _said(f"'{_path_shown(path)}' lists no task")
    return TaskFile(path, tuple(names))


def _folder_of(context: object) -> Path:
    folder = context.get("folder") if isinstance(context, Mapping) else None
    return folder if isinstance(folder, Path) else Path()


class TasksFromFile(_Strict):
    """A run's tasks, from a file that is read with the configuration."""

    file: Annotated[TaskFile, PlainValidator(_read_task_file)]


class TasksFromJob(_Strict):
    """A run's tasks are those of this job (a glob)."""

    job: Glob


class RunJob(_Strict):
    """Jobs of a run: a glob over directory names and full paths.

    ``supersedes``: their regrades replace verdicts that are valid.
    """

    job: Glob
    supersedes: Flag = False


class Reward(_Strict):
    """Which reward counts (None: ``reward``, else the only one), and from where on it passes."""

    key: Text | None = None
    success_at: Threshold = 1.0


# Which kind of value it is becomes part of an error's place, from where it is taken out again:
# the kinds are called as no key is.
_NAMES: Final = "(names)"
_FILE: Final = "(file)"
_JOB: Final = "(job)"
_DIGESTS: Final = "(digests)"
_WORD: Final = "(word)"


def _kind_of_tasks(value: Any) -> str | None:
    match value:
        case list() | tuple():
            return _NAMES
        case {"file": _, "job": _}:
            return None
        case TasksFromFile() | {"file": _}:
            return _FILE
        case TasksFromJob() | {"job": _}:
            return _JOB
        case _:
            return None


_Tasks = Annotated[
    Annotated[ListedTasks, Tag(_NAMES)]
    | Annotated[TasksFromFile, Tag(_FILE)]
    | Annotated[TasksFromJob, Tag(_JOB)],
    Discriminator(_kind_of_tasks, custom_error_type="tasks_kind", custom_error_message="tasks"),
]

_Content = Annotated[
    Annotated[Literal["newest"], _expects("newest or digests by task"), Tag(_WORD)]
    | Annotated[dict[TaskName, Digest], Tag(_DIGESTS)],
    Discriminator(lambda value: _DIGESTS if isinstance(value, Mapping) else _WORD),
]


def _as_run_job(value: Any) -> Any:
    if isinstance(value, Mapping | RunJob):
        return value
    if isinstance(value, str):
        return {"job": value}
    raise _said(f"expected a job's name or {{job: NAME, supersedes: true}}, got {_shown(value)}")


class RunPageConfig(_Strict):
    """What the live page says of a run, in both languages.

    ``side``: what the run is called beside its reference. ``denominator``: why its target is what
    it is. ``comparison``: what the comparison is and is not.
    """

    title: PublicLine | None = None
    side: PublicLine | None = None
    denominator: PublicParagraph | None = None
    comparison: PublicParagraph | None = None


class RunConfig(_Strict):
    """One evaluation with a fixed target."""

    name: RunName
    title: Text = Field(default_factory=lambda data: str(data["name"]))
    jobs: Annotated[
        tuple[Annotated[RunJob, BeforeValidator(_as_run_job)], ...], AfterValidator(_not_empty)
    ]
    tasks: _Tasks | None = None
    exclude: dict[TaskName, LineInBoth] = {}
    given_up: dict[TaskName, LineInBoth] = {}
    attempts: Attempts | None = None
    reward: Reward = Reward()
    agent: Glob | None = None
    model: Glob | None = None
    dataset: Glob | None = None
    invalid_exceptions: tuple[ExceptionType, ...] = ()
    content: _Content = "newest"
    reference: ReferenceRef | None = None
    page: Annotated[RunPageConfig, BeforeValidator(_a_mapping)] = RunPageConfig()

    @field_validator("exclude", "given_up")
    @classmethod
    def _are_listed(cls, chosen: dict[str, Words], info: ValidationInfo) -> dict[str, Words]:
        names = _names_of(info.data.get("tasks"))
        if names is not None:
            unlisted = [task for task in chosen if task not in names]
            if unlisted:
                raise _several(
                    ((task,), f"not one of the run's tasks{_did_you_mean(task, names)}")
                    for task in unlisted
                )
        return chosen

    @model_validator(mode="after")
    def _excluded_or_given_up(self) -> Self:
        both = [task for task in self.given_up if task in self.exclude]
        if both:
            raise _several((("given_up", task), "it is excluded already") for task in both)
        return self

    @property
    def task_names(self) -> tuple[str, ...] | None:
        """The tasks that are listed here or in the file, excluded ones too; None: no list."""
        return _names_of(self.tasks)

    @property
    def tasks_of_job(self) -> str | None:
        """The job (a glob) whose tasks these are, if that is how they are given."""
        return self.tasks.job if isinstance(self.tasks, TasksFromJob) else None


def _names_of(tasks: object) -> tuple[str, ...] | None:
    match tasks:
        case tuple():
            return tasks
        case TasksFromFile():
            return tasks.file.names
        case _:
            return None


_HOST: Final = re.compile(
    r"([A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]*)?"
)
_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_PORTS: Final = {"http": 80, "https": 443}


def server_url(value: object, *, key: str = "api_key") -> str:
    """A server's base URL, every one in one spelling; a ConfigError that does not repeat it.

    ``key``: where what lets one in is given instead.
    """
    expected = ConfigError(["expected http://HOST:PORT or https://HOST:PORT"])
    # urlsplit() would take out spaces and line breaks.
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]{1,2000}", value):
        raise expected
    try:
        parts = urllib.parse.urlsplit(value)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise expected from None
    if "@" in parts.netloc:
        raise ConfigError([f"a user or password does not belong into a URL, use {key}"])
    if parts.scheme not in _PORTS or not host or port == 0:
        raise expected
    if "?" in value or "#" in value:
        raise ConfigError([f"{expected} without anything from ? or # on"])
    if not _HOST.fullmatch(parts.netloc) or not _PATH.fullmatch(parts.path):
        raise expected
    if re.search(r"/(metrics|v1|v1/.*|health|(get_)?server_info)/?$", parts.path):
        raise ConfigError([f"{expected}, the server's own address without what is asked of it"])
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[parts.scheme]:
        shown += f":{port}"
    return f"{parts.scheme}://{shown}{parts.path.rstrip('/')}"


def _server_url(value: Any) -> str:
    try:
        return server_url(value)
    except ConfigError as error:
        raise _said(str(error)) from None


_MAX_KEY_BYTES: Final = 4096


def _key(data: bytes, where: str) -> SecretStr:
    """The key in a file or variable; what is wrong with it is said without showing it."""
    if len(data) > _MAX_KEY_BYTES:
        raise _said(f"{where} is larger than {_MAX_KEY_BYTES // 1024} KiB")
    key = data.decode("latin-1").strip()
    if not key:
        raise _said(f"{where} is empty")
    if not key.isascii() or not key.isprintable():
        raise _said(f"{where} is not one line of printable ASCII")
    return SecretStr(key)


def _read_api_key(value: Any, info: ValidationInfo) -> SecretStr:
    """The key itself: read with the configuration, so that a reload takes a new one over."""
    if isinstance(value, SecretStr):
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        match value:
            case {"env": str(name)} if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name):
                return _key_in_variable(name)
            case {"file": str(name)} if name and name.isprintable() and "://" not in name:
                return _key_in_file(_folder_of(info.context) / Path(name).expanduser())
    raise _said("expected {env: NAME} or {file: PATH}")


def _key_in_variable(name: str) -> SecretStr:
    data = os.environb.get(os.fsencode(name))
    if data is None:
        raise _said(f"the environment has no variable {name}")
    return _key(data, f"the environment's variable {name}")


def _key_in_file(path: Path) -> SecretStr:
    with _opened(path) as file:
        return _key(file.read(_MAX_KEY_BYTES + 1), f"'{_path_shown(path)}'")


def read_secret(place: Path | str) -> SecretStr:
    """The key in a file, or in the environment's variable of this name. Raises ConfigError."""
    try:
        return _key_in_variable(place) if isinstance(place, str) else _key_in_file(place)
    except PydanticCustomError as error:
        raise ConfigError([error.message()]) from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise _said(f"'{_path_shown(path)}' cannot be read: {error.strerror}") from None


def _readable_file(value: str, info: ValidationInfo) -> str:
    if "://" in value:  # as a path it would be shown
        raise _said(f"expected a path, got {_shown(value)}")
    path = _folder_of(info.context) / Path(value).expanduser()
    with _opened(path):
        return str(path)


_ServerUrl = Annotated[str, PlainValidator(_server_url)]
_ServerUrls = Annotated[
    tuple[_ServerUrl, ...], AfterValidator(_not_empty), BeforeValidator(_a_list)
]
_ReadableFile = Annotated[PathText, AfterValidator(_readable_file)]


class TlsConfig(_Strict):
    """How to speak TLS with a pool's servers, or with a Harbor server."""

    ca_file: _ReadableFile | None = None
    cert_file: _ReadableFile | None = None
    key_file: _ReadableFile | None = None
    insecure_skip_verify: Flag = False

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        errors: list[tuple[Place, str]] = []
        if self.key_file is not None and self.cert_file is None:
            errors.append((("key_file",), "it needs cert_file, too"))
        if self.ca_file is not None and self.insecure_skip_verify:
            errors.append((("ca_file",), "it has no effect with insecure_skip_verify: true"))
        if errors:
            raise _several(errors)
        return self


class ReplicaConfig(_Strict):
    """One replica: one server, or the nodes of one model server, of which the first is asked.

    ``data_parallel``: its number of data-parallel ranks, for SGLang before 0.5.0.
    """

    name: RunName
    url: _ServerUrl | None = Field(default=None, repr=False)
    urls: _ServerUrls | None = Field(default=None, repr=False)
    data_parallel: Ranks | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.url is None and self.urls is None:
            raise _said("the key 'url' (or 'urls') is missing")
        if self.url is not None and self.urls is not None:
            raise _said("expected url or urls, got both")
        return self

    @property
    def servers(self) -> tuple[str, ...]:
        """The base URLs of its servers."""
        return self.urls or ((self.url,) if self.url is not None else ())


class PoolConfig(_Strict):
    """Replicas that serve one model. Durations in seconds."""

    name: RunName
    title: Text = Field(default_factory=lambda data: str(data["name"]))
    runs: Annotated[tuple[RunRef, ...], WrapValidator(_all_different)] = ()
    jobs: tuple[Glob, ...] = ()
    api_key: Annotated[SecretStr, PlainValidator(_read_api_key)] | None = None
    timeout: Annotated[float, _duration("100ms", "1m")] = 5.0
    scrape_interval: Annotated[float, _duration("100ms", "1h")] = 5.0
    frozen_after: Annotated[float, _duration("1s", "1h")] = 30.0
    tls: Annotated[TlsConfig, BeforeValidator(_a_mapping)] = TlsConfig()
    replicas: Annotated[
        tuple[Annotated[ReplicaConfig, BeforeValidator(_a_mapping)], ...],
        AfterValidator(_not_empty),
        BeforeValidator(_a_list),
    ]

    @field_validator("replicas", mode="wrap")
    @classmethod
    def _names_differ(
        cls, value: Any, handler: ValidatorFunctionWrapHandler
    ) -> tuple[ReplicaConfig, ...]:
        replicas: tuple[ReplicaConfig, ...] = _handled(
            value, handler, _repeated_names(value, "replicas")
        )
        return replicas

    @model_validator(mode="after")
    def _tls_is_spoken(self) -> Self:
        plain = any(url.startswith("http:") for replica in self.replicas for url in replica.servers)
        if plain and self.tls != TlsConfig():
            raise _several([(("tls",), "it has no effect on a replica whose URL is http")])
        return self


class HarborServerConfig(_Strict):
    """One server that ``harbor serve`` runs. ``timeout``: seconds that one request may take."""

    name: RunName
    url: _ServerUrl = Field(repr=False)
    api_key: Annotated[SecretStr, PlainValidator(_read_api_key)] | None = None
    timeout: Annotated[float, _duration("100ms", "1m")] = 5.0
    tls: Annotated[TlsConfig, BeforeValidator(_a_mapping)] = TlsConfig()

    @model_validator(mode="after")
    def _tls_is_spoken(self) -> Self:
        if self.url.startswith("http:") and self.tls != TlsConfig():
            raise _several([(("tls",), "it has no effect on a server whose URL is http")])
        return self


def _read_reference_table(value: Any, info: ValidationInfo) -> dict[str, ReferenceTask]:
    """The table itself: read with the configuration."""
    path = _path_in(value, info)
    try:
        return reference_files.read_table_file(path)
    except InvalidReferenceError as error:
        raise _said(f"'{_path_shown(path)}': {error}") from None


class HeadlineConfig(_Strict):
    """What was published of a reference; it has to follow from the table."""

    ratio: Ratio | None = None
    half_width: Ratio | None = None
    passed: Annotated[StrictInt, Field(ge=0), _expects("a whole number >= 0")] | None = None
    attempts: Attempts | None = None


class ReferenceConfig(_Strict):
    """Results by task to compare runs with: from a table, or from a Harbor job."""

    name: RunName
    table: Annotated[dict[str, ReferenceTask], PlainValidator(_read_reference_table)] | None = None
    job: PathText | None = None
    title: LineInBoth = Field(default_factory=lambda data: same(str(data["name"])))
    agent: Text | None = None
    model: Text | None = None
    headline: HeadlineConfig = HeadlineConfig()
    links: dict[Text, Annotated[tuple[str | None, str], PlainValidator(_link_in_both)]] = {}
    note: LineInBoth | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.table is None and self.job is None:
            raise _said("the key 'table' (or 'job') is missing")
        if self.table is not None and self.job is not None:
            raise _said("expected table or job, got both")
        if self.table is not None:
            try:
                check_headline(self.reference(self.table))
            except InvalidReferenceError as error:
                raise _several([(("headline",), str(error))]) from None
        return self

    def reference(self, tasks: Mapping[str, ReferenceTask]) -> Reference:
        """The reference with these tasks: those of the table, or of the job."""
        return Reference(
            name=self.name,
            title=self.title.en,
            tasks=tasks,
            agent=self.agent or "",
            model=self.model or "",
            headline=Headline(**self.headline.model_dump()),
            links={Words(en, zh or en): url for en, (zh, url) in self.links.items()},
            note=self.note,
            title_zh=self.title.zh,
        )


def _task_names(value: Any) -> TaskNames:
    if value in set(TaskNames):
        return TaskNames(value)
    raise _said(f"expected one of {', '.join(TaskNames)}, got {_shown(value)}")


class LivePageConfig(_Strict):
    """The live page: its title, which runs it shows (None: see the README), what of their tasks.

    ``hash_key``: what task names are hashed with.
    """

    title: PublicLine | None = None
    runs: tuple[Glob, ...] | None = None
    task_names: Annotated[TaskNames, PlainValidator(_task_names)] = TaskNames.SHOWN
    hash_key: Annotated[SecretStr, PlainValidator(_read_api_key)] | None = None

    @model_validator(mode="after")
    def _key_fits(self) -> Self:
        hashed = self.task_names is TaskNames.HASHED
        if hashed and self.hash_key is None:
            raise _several([(("task_names",), "hashed needs a hash_key")])
        if not hashed and self.hash_key is not None:
            raise _several([(("hash_key",), "it has no effect without task_names: hashed")])
        return self


class Config(_Strict):
    """The whole configuration. Durations are in seconds; the defaults are those of an empty file.

    ``local_jobs``: Harbor's processes run on this host, in this PID namespace, so that a job whose
    log nobody holds open was interrupted. ``causes``: the cause of exception types of one's own.
    """

    jobs: tuple[PathText, ...] = ()
    local_jobs: Flag = False
    refresh_interval: Annotated[float, _duration("50ms", "1h")] = 5.0
    runs: tuple[RunConfig, ...] = ()
    harbor_servers: Annotated[
        tuple[Annotated[HarborServerConfig, BeforeValidator(_a_mapping)], ...],
        BeforeValidator(_a_list),
    ] = ()
    pools: Annotated[
        tuple[Annotated[PoolConfig, BeforeValidator(_a_mapping)], ...], BeforeValidator(_a_list)
    ] = ()
    references: Annotated[
        tuple[Annotated[ReferenceConfig, BeforeValidator(_a_mapping)], ...],
        BeforeValidator(_a_list),
    ] = ()
    causes: dict[ExceptionType, _OneCause] = {}
    live_page: Annotated[LivePageConfig, BeforeValidator(_a_mapping)] = LivePageConfig()

    _folder: Path = PrivateAttr(default_factory=Path)

    @override
    def model_post_init(self, context: Any, /) -> None:
        """Remember what relative paths are relative to."""
        self._folder = _folder_of(context)

    @property
    def job_places(self) -> tuple[str, ...]:
        """``jobs``, relative ones seen from the configuration file's folder."""
        return tuple(_seen_from(self._folder, place) for place in self.jobs)

    def reference_job(self, reference: ReferenceConfig) -> str:
        """The job directory of a reference, a relative one seen from the file's folder."""
        return _seen_from(self._folder, reference.job or "")

    @field_validator("runs", mode="wrap")
    @classmethod
    def _names_differ(
        cls, value: Any, handler: ValidatorFunctionWrapHandler
    ) -> tuple[RunConfig, ...]:
        runs: tuple[RunConfig, ...] = _handled(value, handler, _repeated_names(value, "runs"))
        return runs

    @field_validator("harbor_servers", mode="wrap")
    @classmethod
    def _harbor_servers_differ(
        cls, value: Any, handler: ValidatorFunctionWrapHandler
    ) -> tuple[HarborServerConfig, ...]:
        errors = [*_repeated_names(value, "harbor_servers"), *_repeated_urls(value)]
        servers: tuple[HarborServerConfig, ...] = _handled(value, handler, errors)
        return servers

    @field_validator("pools", mode="wrap")
    @classmethod
    def _pools_differ(
        cls, value: Any, handler: ValidatorFunctionWrapHandler
    ) -> tuple[PoolConfig, ...]:
        pools: tuple[PoolConfig, ...] = _handled(value, handler, _repeated_names(value, "pools"))
        return pools

    @field_validator("references", mode="wrap")
    @classmethod
    def _references_differ(
        cls, value: Any, handler: ValidatorFunctionWrapHandler
    ) -> tuple[ReferenceConfig, ...]:
        shipped = reference_files.shipped_names()
        errors = _repeated_names(value, "references")
        errors += [
            ((position, "name"), f"a reference called {_shown(name)} ships with Harborlight")
            for position, entry in enumerate(value if isinstance(value, list | tuple) else ())
            if (name := _part(entry, "name")) in shipped
        ]
        references: tuple[ReferenceConfig, ...] = _handled(value, handler, errors)
        return references

    @model_validator(mode="wrap")
    @classmethod
    def _pools_fit(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        pools = _entries(value, "pools")
        runs = _entries(value, "runs")
        errors = [*_unknown_runs(pools, runs), *_repeated_servers(pools)]
        errors += _unknown_references(runs, _entries(value, "references"))
        if len(pools) > 1:
            errors += [
                (("pools", position), "one of several pools needs the runs or jobs that use it")
                for position, pool in enumerate(pools)
                if not _part(pool, "runs") and not _part(pool, "jobs")
            ]
        return _handled(value, handler, errors)


# What is found in what was written, so that an entry with another error is minded, too.


def _part(entry: object, key: str) -> object:
    return entry.get(key) if isinstance(entry, Mapping) else getattr(entry, key, None)


def _entries(entry: object, key: str) -> Sequence[object]:
    entries = _part(entry, key)
    return entries if isinstance(entries, list | tuple) else ()


def _unknown_runs(pools: Sequence[object], runs: Sequence[object]) -> Iterator[tuple[Place, str]]:
    names = [name for run in runs if isinstance(name := _part(run, "name"), str)]
    for position, pool in enumerate(pools):
        for place, name in enumerate(_entries(pool, "runs")):
            if isinstance(name, str) and name and name not in names:
                hint = _did_you_mean(name, names)
                yield ("pools", position, "runs", place), f"no run is called {_shown(name)}{hint}"


def _unknown_references(
    runs: Sequence[object], references: Sequence[object]
) -> Iterator[tuple[Place, str]]:
    names = [name for entry in references if isinstance(name := _part(entry, "name"), str)]
    names = list(dict.fromkeys([*names, *reference_files.shipped_names()]))
    for position, run in enumerate(runs):
        name = _part(run, "reference")
        if isinstance(name, str) and name and name not in names:
            hint = _did_you_mean(name, names) or f", expected one of {', '.join(names)}"
            yield ("runs", position, "reference"), f"no reference is called {_shown(name)}{hint}"


def _repeated_servers(pools: Sequence[object]) -> Iterator[tuple[Place, str]]:
    """Asked twice, a server's numbers would count twice."""
    first: dict[str, Place] = {}
    for position, pool in enumerate(pools):
        for number, replica in enumerate(_entries(pool, "replicas")):
            at: Place = ("pools", position, "replicas", number)
            written = [((*at, "url"), _part(replica, "url"))]
            written += [
                ((*at, "urls", place), url) for place, url in enumerate(_entries(replica, "urls"))
            ]
            for place, url in written:
                with contextlib.suppress(ConfigError):
                    same = first.setdefault(server_url(url), place)
                    if same != place:
                        yield place, f"the same URL as {_path_to(same)}"


def _repeated_urls(entries: object) -> Iterator[tuple[Place, str]]:
    first: dict[str, int] = {}
    for position, entry in enumerate(entries if isinstance(entries, list | tuple) else ()):
        with contextlib.suppress(ConfigError):
            same = first.setdefault(server_url(_part(entry, "url")), position)
            if same != position:
                yield (position, "url"), f"the same URL as harbor_servers[{same}].url"


def _repeated_names(entries: object, key: str) -> list[tuple[Place, str]]:
    if not isinstance(entries, list | tuple):
        return []
    first: dict[str, int] = {}
    errors: list[tuple[Place, str]] = []
    for position, entry in enumerate(entries):
        name = _part(entry, "name")
        if not isinstance(name, str):
            continue
        if name in first:
            text = f"{_shown(name)} is the name of {key}[{first[name]}] already"
            errors.append(((position, "name"), text))
        first.setdefault(name, position)
    return errors


def _seen_from(folder: Path, place: str) -> str:
    # Only what the file says is a glob, not the folder that it happens to lie in.
    start = glob.escape(str(folder)) if glob.has_magic(place) else str(folder)
    return str(Path(start, Path(place).expanduser()))


# The file.


def load_config(path: Path) -> Config:
    """Read a configuration file, and the files it names; a ConfigError with all that is wrong."""
    try:
        text = _read(path)
    except _UnreadableError as error:
        where = f":{error.line}" if error.line else ""
        raise ConfigError([f"{_path_shown(path)}{where}: {error}"]) from None
    problems: list[tuple[int, str]] = []
    document = _parse(text, problems)
    if document is None:
        raise ConfigError(_lines(path, problems))
    problems.extend((line, _about(at, what)) for line, at, what in document.problems)
    try:
        config = Config.model_validate(document.value, context={"folder": path.parent})
    except ValidationError as error:
        for detail in error.errors():
            place = document.real(detail["loc"])
            said = detail.get("ctx", {}).get("said", detail["msg"])
            problems.append((document.line(place), _about(place, said)))
    else:
        if not problems:
            return config
    raise ConfigError(_lines(path, problems))


class _UnreadableError(Exception):
    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def _read(path: Path) -> str:
    """The text of a file; an _UnreadableError says what is wrong with it, as in "PATH ...".."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _UnreadableError(f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise _UnreadableError("cannot be read: not a file name") from None
    if len(data) > MAX_FILE_BYTES:
        raise _UnreadableError(f"is larger than {MAX_FILE_BYTES // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _UnreadableError(
            f"is not UTF-8 text (byte {error.start + 1} is 0x{data[error.start]:02x})", line
        ) from None


def _lines(path: Path, problems: Iterable[tuple[int, str]]) -> list[str]:
    shown = _path_shown(path)
    return [f"{shown}:{line}: {what}" for line, what in sorted(problems, key=lambda p: p[0])]


def _path_shown(path: Path) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(path))


def _about(place: Place, what: str) -> str:
    shown = _path_to(place)
    return f"{shown}: {what}" if shown else what


def _path_to(place: Place) -> str:
    shown = ""
    for part in place:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,59}", part):
            shown += f".{part}" if shown else part
        else:
            shown += f"[{_shown(part)}]"
    return shown


@dataclass(frozen=True, slots=True)
class _Document:
    """A file's values, the lines they are on, and what is wrong with its structure."""

    value: Any
    lines: Mapping[Place, int]
    problems: Sequence[tuple[int, Place, str]]

    def line(self, place: Place) -> int:
        """The line of the nearest place that is written there."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]

    def real(self, location: Place) -> Place:
        """A location without the parts that only validation knows (which kind of value it took)."""
        value: Any = self.value
        place: list[int | str] = []
        for part in location:
            is_key = isinstance(value, dict) and part in value
            if is_key or (isinstance(value, list) and isinstance(part, int)):
                value = value[part]
                place.append(part)
        return tuple(place)


def _parse(text: str, problems: list[tuple[int, str]]) -> _Document | None:
    """The document; None and problems (line, what) where there is none."""
    try:
        _look_through(text, problems)
        node = None if problems else yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        # Its position is one in the text, as text is what it was given.
        line = text.count("\n", 0, error.position) + 1
        problems.append((line, f"the character U+{ord(text[error.position]):04X} is not allowed"))
        return None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problems.append((mark.line + 1 if mark else 1, _yaml_problem(text, error)))
        return None
    if problems:
        return None
    if node is None or (isinstance(node, yaml.ScalarNode) and _scalar(node) is None):
        problems.append((1, "the file is empty; expected keys such as jobs: and runs:"))
        return None
    if not isinstance(node, yaml.MappingNode):
        shown = _shown(_scalar(node)) if isinstance(node, yaml.ScalarNode) else "a list"
        line = node.start_mark.line + 1
        problems.append((line, f"expected keys such as jobs: and runs: at the top, got {shown}"))
        return None
    lines: dict[Place, int] = {}
    found: list[tuple[int, Place, str]] = []
    return _Document(_value(node, (), lines, found), lines, found)


def _look_through(text: str, problems: list[tuple[int, str]]) -> None:
    """What YAML can say and a configuration must not; before anything is built from it."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    problems.append((line, "expected one document, found another (---)"))
                    return
            case yaml.AliasEvent():
                # Its name is not shown: a key that begins with * looks like one.
                problems.append((line, "aliases (*NAME) are not supported"))
            case yaml.CollectionEndEvent():
                depth -= 1
            case yaml.CollectionStartEvent():
                depth += 1
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag:
            problems.append((line, "tags (!NAME) are not supported"))
        if depth > MAX_DEPTH:
            problems.append((line, f"nested more than {MAX_DEPTH} levels deep"))
            return


def _yaml_problem(text: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    if mark and text[mark.index : mark.index + 1] == "\t":
        return "a tab where YAML wants spaces"
    said = ", ".join(part for part in (error.context, error.problem) if part)
    said = re.sub(r"(tag handle|anchor) '.*", r"\1", said, flags=re.DOTALL)  # may be a key's text
    return f"not valid YAML: {''.join(c if c.isprintable() else '?' for c in said)}"


def _value(
    node: Any, place: Place, lines: dict[Place, int], problems: list[tuple[int, Place, str]]
) -> Any:
    """The plain value of a node; notes the lines, and keys that are there twice or are no text."""
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(child, (*place, position), lines, problems)
            for position, child in enumerate(node.value)
        ]
    values: dict[str, Any] = {}
    for key, child in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            problems.append((line, place, "expected text as a key, got a list or a mapping"))
            continue
        # A task may be called 1 or null: a key is what is written.
        name = str(key.value)
        at = (*place, name)
        if name in values:
            problems.append((line, at, f"the key is there twice (first on line {lines[at]})"))
            continue
        # A list or a mapping is found by its key, often on the line before.
        lines[at] = child.start_mark.line + 1 if isinstance(child, yaml.ScalarNode) else line
        values[name] = _value(child, at, lines, problems)
    return values


_NUMBERS: Final[Sequence[tuple[re.Pattern[str], Callable[[str], int | float]]]] = (
    (re.compile(r"[-+]?(0|[1-9][0-9]{0,17})"), int),
    (re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda _: math.nan),
)
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def _scalar(node: yaml.ScalarNode) -> str | int | float | bool | None:
    """By YAML 1.2's rules: a date, ``no``, ``12:30`` and ``007`` are text."""
    text = str(node.value)
    if node.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    for pattern, convert in _NUMBERS:
        if pattern.fullmatch(text):
            return convert(text)
    return text
