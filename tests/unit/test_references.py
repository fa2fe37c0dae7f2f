"""Tests of secrets, which spark-events resolves from references and never displays."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from spark_events.config import Kind, Secret, Setting, Settings, integer, option, secret, text, with_short_urls
from spark_events.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Target:
    url: str = option("url", text(), "http://127.0.0.1", doc="Where.")
    password: Secret | None = option("password", secret, None, doc="What opens it.")
    port: int = option("port", integer(1, 65535), 80, doc="Which port.")


def read(**values: str) -> Target:
    settings = Settings(Setting(f"t.{key}", value, "a test") for key, value in values.items())
    found = settings.read(Target, "t")
    settings.check()
    assert found is not None
    return found


def problems(**values: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(**values)
    return str(raised.value)


def test_a_reference_is_replaced_by_a_variable_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """References at any position in a value are replaced. The last line break of a referenced file is removed."""
    monkeypatch.setenv("SHOP_HOST", "db.example")
    (tmp_path / "password").write_text("s3cret\n\n")
    found = read(url="http://${env:SHOP_HOST}:80/${env:SHOP_HOST}", password=f"${{file:{tmp_path}/password}}")
    assert found.url == "http://db.example:80/db.example"
    assert found.password == Secret("s3cret\n")


def test_an_unresolvable_reference_is_rejected(tmp_path: Path) -> None:
    """The message about an unresolvable reference contains the key, the reference and the reason."""
    message = problems(url="${env:NO_SUCH_VARIABLE}", password=f"${{file:{tmp_path}/none}}")
    assert "t.url: given '${env:NO_SUCH_VARIABLE}' (the sidecar's environment has no variable" in message
    assert f"(the file {tmp_path}/none cannot be read: No such file or directory)" in message


def test_a_secret_is_never_formatted(caplog: pytest.LogCaptureFixture) -> None:
    """A formatted secret, the repr of its config, and a log line about the secret do not contain its value."""
    found = read(password="s3cret")
    assert found.password is not None
    logging.getLogger(__name__).error("%s %r", found.password, found)
    assert "s3cret" not in f"{found} {found!r} {found.password} {caplog.text}"
    assert found.password.reveal() == "s3cret"


def test_a_problem_does_not_quote_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages contain neither resolved values nor values of keys whose names, even misspelled, suggest secrets."""
    monkeypatch.setenv("PORT", "s3cret")
    message = problems(port="${env:PORT}", pasword="s3cret", password="", api_token="s3cret")
    assert "s3cret" not in message
    assert "t.port: given '${env:PORT}', expected a whole number" in message
    assert "t.api_token: unknown key; set in a test" in message


def test_a_confidential_value_is_not_displayed() -> None:
    """The message about a confidential value contains the reason and the allowed values, but not the value."""

    def parse(value: str) -> str:
        raise ValueError("too short")

    @dataclasses.dataclass(frozen=True)
    class Thing:
        address: str = option("address", Kind("an address", parse, confidential=True), doc="Where.")

    settings = Settings([Setting("t.address", "s3cret", "a test")])
    settings.read(Thing, "t")
    with pytest.raises(ConfigError) as caught:
        settings.check()
    assert caught.value.problems == (
        "t.address: given a value that is not shown (too short), expected an address; set in a test",
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ada:s3cret@db/x failed", "postgresql://db/… failed"),
        ("http://:s3cret@proxy", "http://proxy"),
        ("x://ada:s3@cr/et@db", "x://…"),
        ("x://ada:s3'cr@db: refused", "x://db: refused"),
        ("https://s3cret-user@db:443?token=s3cret", "https://db:443/…"),
        ("see (https://hooks/T0/s3cret?x=1#s3cret).", "see (https://hooks/…)."),
        ("nothing to hide at http://db:80/", "nothing to hide at http://db:80/"),
        ("ada@db", "ada@db"),
    ],
)
def test_a_url_is_displayed_as_scheme_and_host(text: str, shown: str) -> None:
    """Also within a text, and also if a password contains unescaped characters."""
    assert with_short_urls(text) == shown
