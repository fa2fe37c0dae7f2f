"""What was said in confidence is not quoted, in whatever form it comes back."""

from __future__ import annotations

import logging

import pytest

from spark_events.reporters.http.confidence import Confidence, credentials, secret_address, unseen

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
    ],
)
def test_it_is_hidden(quoted: str) -> None:
    """The address but for its host, the values of headers, the login as it is sent."""
    said = Confidence([*secret_address(URL), "Bearer ABC.def"]).hide(f"<p>no {quoted!r} at hooks.example</p>")
    assert "***" in said
    assert "hooks.example" in said
    for secret in ("B4x9kQw2", "t0p", "pa", "YWRh", "ABC"):
        assert secret not in said.replace("<p>", "").replace("</p>", "")


def test_an_address_that_is_no_secret_stays_readable() -> None:
    """Only who asks, and the query, are nobody's business."""
    hide = Confidence(credentials("http://ada:s3cret@collector:4318/v1/logs?tenant=abc")).hide
    assert hide("404: no /v1/logs?tenant=abc for ada:s3cret") == "404: no /v1/logs?*** for ***:***"


@pytest.mark.parametrize("empty", [[], [""], ["", "x", "ab"]])
def test_what_is_too_short_to_be_hidden_spoils_no_text(empty: list[str]) -> None:
    """Else there would be a mark in every word."""
    assert Confidence(empty).hide("abx") == "abx"
    assert Confidence(secret_address("http://localhost/")).hide("GET / 1/2") == "GET / 1/2"


def test_what_httpx_logs_of_a_request_is_not_seen(caplog: pytest.LogCaptureFixture) -> None:
    """Its logger and those of httpcore; of other requests everything is."""
    with caplog.at_level(logging.DEBUG):
        with unseen():
            for name in ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.proxy"):
                logging.getLogger(name).info("POST https://s3cret")
        logging.getLogger("httpx").info("GET https://of.the.program")
    assert caplog.messages == ["GET https://of.the.program"]
