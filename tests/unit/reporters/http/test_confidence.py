"""Tests that a request's secrets are masked in errors and logs, in every representation."""

from __future__ import annotations

import base64
import json
import logging

import pytest

from spark_events.config.confidence import Confidence, in_headers, parts_of, secret_address
from spark_events.reporters.http.addresses import without_request_log

URL = "https://ada:pa%2Fss@hooks.example:8443/services/T00/B4x9kQw2?token=t0p%20secret&page=2"


@pytest.mark.parametrize(
    "quoted",
    [
        URL,
        "/services/T00/B4x9kQw2",
        "/services/T00/B4x9kQw2?token=t0p%20secret&page=2",
        "%2Fservices%2FT00%2FB4x9kQw2",
        "token=t0p%20secret&page=2",
        "B4x9kQw2",
        "t0p secret",
        "t0p%20secret",
        "pa/ss",
        "pa%2Fss",
        "Basic YWRhOnBhL3Nz",
        "Bearer ABC.def",
        "ABC.def",
        "https:\\/\\/hooks.example:8443\\/services\\/T00\\/B4x9kQw2",
        "pa%2fss",
        "session k33p-me-here",
        "and\\nk33p-me-here",
        "sig abc+PAK/gh=",
        "sig=abc%2BPAK%2Fgh%3D",
        "sig=abc%2bPAK%2fgh%3d",
        "sig=abc PAK/gh=",
    ],
)
def test_secrets_are_masked(quoted: str) -> None:
    """Header values, the encoded login, and all parts of the URL except its host are masked."""
    headers = ["Bearer ABC.def", "id=7; session=k33p-me-here"]
    given = [*secret_address(f"{URL}&sig=abc+PAK/gh="), *in_headers(headers)]
    hidden = Confidence(given).hide(f"<p>no {quoted} at hooks.example</p>")
    assert "***" in hidden or "no https://… at" in hidden
    assert "hooks.example" in hidden
    for secret in ("B4x9kQw2", "t0p", "pa/", "pa%", "YWRh", "ABC", "k33p", "PAK"):
        assert secret not in hidden


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        (b"\x00ada\x00s3cr3t-pw".decode(), base64.b64encode(b"\x00ada\x00s3cr3t-pw").decode()),
        ("s3cr3t-pw", base64.b64encode(b"\x00ada\x00s3cr3t-pw").decode()),
        ("s3cr3t-pw", base64.b64encode(b"ada:s3cr3t-pw").decode()),
        ("s3cr3t-pw", base64.urlsafe_b64encode(b"?>s3cr3t-pw?>").decode()),
        ("pässwort-1", repr("pässwort-1".encode())),
        ('x required username="ada" password="pw 12";', "wrong password 'pw 12'"),
        ("sasl.jaas.config=x.y password='hunter2'; debug=all", "no hunter2"),
        ("https://hooks/T00/B4x9kQw2?sig=abc1234", "Max retries exceeded with url: /T00/B4x9kQw2?sig=abc1234 (x)"),
    ],
)
def test_parts_and_encodings_of_a_value_are_masked(value: str, quoted: str) -> None:
    """Also Base64 that contains the secret at any position, and the repr of its bytes."""
    hidden = Confidence([value, *parts_of(value)]).hide(quoted)
    assert "***" in hidden
    for secret in (
        "cr3tLXB3",
        "czNjcjN0",
        "ssword-1",
        "pw 12",
        "hunter2",
        "B4x9kQw2",
        "abc1234",
        "M2NyM3QtcH",
        "cjN0LX",
    ):
        assert secret not in hidden


def test_common_words_stay_readable() -> None:
    """Common words in a URL or header are not masked in other messages."""
    hide = Confidence([*secret_address("https://hooks.example/api/events/triggers?version=2016"), "prod"]).hide
    assert hide("events: field required in this product, since 20161") == (
        "events: field required in this product, since 20161"
    )
    assert hide("POST /api/events/triggers?version=2016 (prod)") == "POST *** (***)"


@pytest.mark.parametrize("empty", [[], [""], ["", "x", "ab"]])
def test_short_values_are_not_masked(empty: list[str]) -> None:
    """Short values are not masked, because they occur in unrelated words."""
    assert Confidence(empty).hide("abx") == "abx"
    assert Confidence(secret_address("http://localhost/")).hide("GET / 1/2") == "GET / 1/2"


@pytest.mark.parametrize(
    "secret", ["line1-s3cr3t\nline2-s3cr3t", "caf\N{LATIN SMALL LETTER E WITH ACUTE}-s3cr3t", "s3cr3t-1 "]
)
def test_secrets_are_masked_in_any_representation(secret: str) -> None:
    """A secret is masked as JSON, as Python's repr, and without surrounding white space."""
    hide = Confidence({secret: "${file:/run/key}"}).hide
    for quoted in (json.dumps(secret), repr(secret), secret.strip()):
        assert "s3cr3t" not in hide(f"wrong key {quoted}!")
        assert "${file:/run/key}" in hide(f"wrong key {quoted}!")


def test_request_logs_of_httpx_are_suppressed(caplog: pytest.LogCaptureFixture) -> None:
    """While a reporter sends a request, the logs of httpx and httpcore are suppressed. Other requests are logged."""
    with caplog.at_level(logging.DEBUG):
        with without_request_log():
            for name in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
                logging.getLogger(name).info("POST https://s3cret")
        logging.getLogger("httpx").info("GET https://of.the.program")
    assert caplog.messages == ["GET https://of.the.program"]
