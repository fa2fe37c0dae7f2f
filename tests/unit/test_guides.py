"""Tests that the settings in docs/guides are valid. tests/spark/test_guides.py runs the code of the guides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import ROOT

from spark_events.cli import main
from spark_events.cli.conf import lines

GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))


def settings_of(page: Path) -> list[str]:
    return re.findall(r"^spark\.events\.\S+ +\S+$", page.read_text(encoding="utf-8"), re.MULTILINE)


CONFIGURING = [page for page in GUIDES if settings_of(page)]


@pytest.mark.parametrize("page", CONFIGURING, ids=lambda page: page.stem)
def test_the_settings_of_a_guide_are_valid(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all secrets set, `spark-events check` accepts the lines of `spark-events conf` and the guide's settings."""
    (tmp_path / "password").write_text("secret")
    own = [setting.replace("/run/secrets/events-db", f"{tmp_path}/password") for setting in settings_of(page)]
    for name in re.findall(r"\$\{env:(\w+)\}", "\n".join(own)):
        monkeypatch.setenv(name, "https://hooks.example.com/x")
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text("\n".join([*lines(), *own]))
    code = main(["check", "--conf", str(conf)])
    output = capsys.readouterr().out
    assert code == 0, output
    assert "advice" not in output


def test_there_are_guides_with_settings() -> None:
    assert len(CONFIGURING) >= 3
