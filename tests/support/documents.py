"""What documents show: blocks of code, the expressions and command lines in them."""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Iterator

from harborlight.cli import _parser


def blocks(text: str, language: str) -> list[str]:
    """The contents of a document's blocks in a language, those in lists included."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, flags=re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for _, block in found]


def expressions(block: str) -> list[str]:
    """PromQL: one a line, a line that is indented (or closes) belongs to the one before."""
    found: list[str] = []
    for line in block.splitlines():
        if line.startswith(" "):
            found[-1] += f"\n{line}"
        elif line and not line.startswith("#"):
            found.append(line)
    return found


def command_lines(text: str) -> list[list[str]]:
    """Programs with their arguments, as the shell would split the lines of the blocks.

    Of a pipe it is the first program; where output goes is left out.
    """
    lines = (line for block in blocks(text, "sh") for line in block.splitlines() if line)
    return [_arguments(line) for line in lines]


def _arguments(line: str) -> list[str]:
    words = shlex.shlex(line, posix=True, punctuation_chars="|>")
    words.whitespace_split = True
    found: list[str] = []
    for word in words:
        if set(word) <= set("|>"):
            break
        found.append(word)
    return found


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of its commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from parsers(command)


def known_flags() -> set[str]:
    """Every flag that some command's help shows."""
    shown = " ".join(parser.format_help() for parser in parsers(_parser()))
    return set(re.findall(r"--[a-z][a-z.-]*[a-z]", shown))


def mentioned_flags(text: str) -> set[str]:
    """Every long flag in a text, whoever's it is."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z.-]*[a-z]", text))
