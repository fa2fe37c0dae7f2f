"""Tests that docs/cli.md and the command line's parser agree about every command, option and default."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

import pytest
from fakes import ROOT

from spark_events.cli.main import argument_parser

PAGE = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## spark-events (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def commands() -> dict[str, argparse.ArgumentParser]:
    [found] = [one for one in argument_parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(found.choices)


def declared(parser: argparse.ArgumentParser) -> Iterator[tuple[str, object]]:
    """Yield each spelling of each option with its default."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        name = action.metavar or action.dest.upper()
        if not action.option_strings:
            yield str(action.metavar or action.dest), None
        for option in action.option_strings:
            value = "SEVERITY" if action.choices and not action.metavar else name
            yield (option if action.nargs == 0 else f"{option} {value}"), action.default


def documented(section: str) -> dict[str, str]:
    """Return the default of each spelling of each option in the table of a section."""
    rows = [line.split(" | ") for line in re.findall(r"^\| (`.*) \|$", section, re.MULTILINE)]
    return {form: row[1] for row in rows for form in re.findall(r"`([^`]+)`", row[0])}


def test_every_command_is_documented() -> None:
    assert sorted(SECTIONS) == sorted(commands())
    assert re.findall(r"^\| \[`(\S+)`\]\(#spark-events-\1\)", PAGE, re.MULTILINE) == list(commands())


@pytest.mark.parametrize("command", commands())
def test_every_option_is_documented(command: str) -> None:
    """The table contains every option's spellings and placeholders, and every default that is a number or a string."""
    found, real = documented(SECTIONS[command]), dict(declared(commands()[command]))
    assert sorted(found) == sorted(real)
    for form, default in real.items():
        if isinstance(default, (str, float, int)) and not isinstance(default, bool):
            assert found[form] == f"`{default:g}`" if isinstance(default, float) else f"`{default}`", form


def test_forms_and_default_of_a_row_are_found() -> None:
    """Control: the comparison detects an option that is missing in the table."""
    assert documented("| `-n N`, `--lines N` | all | the last N |") == {"-n N": "all", "--lines N": "all"}
