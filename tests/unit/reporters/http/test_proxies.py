"""Tests of the selection of a proxy from environment variables."""

from __future__ import annotations

import pytest

from spark_events.errors import TransientError
from spark_events.reporters.http.addresses import proxy_for

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_each_scheme_has_its_own_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in curl, each scheme has its own proxy variable. A proxy without a scheme uses HTTP."""
    monkeypatch.setenv("HTTPS_PROXY", "https://user:pw@proxy:3128")
    monkeypatch.setenv("http_proxy", "proxy:8080")
    assert proxy_for("https://hooks.example/x") == "https://user:pw@proxy:3128"
    assert proxy_for("http://hooks.example/x") == "http://proxy:8080"


def test_without_variables_there_is_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without variables, no proxy is used. ALL_PROXY is not supported."""
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    assert proxy_for("http://hooks.example/x") is None


@pytest.mark.parametrize(
    ("excepted", "url", "is_direct"),
    [
        ("localhost,127.0.0.1,fd00::/8", "http://localhost:80/", True),
        ("localhost,127.0.0.1,fd00::/8", "http://hooks.example/", False),
        ("::1", "http://[::1]:8080/", True),
        ("[::1]", "http://[::1]/", True),
        ("10.1.2.3", "http://10.1.2.3/", True),
        ("10.0.0.0/8", "http://10.1.2.3/", False),
        (".example", "http://hooks.example/", True),
        ("example", "http://hooks.example/", True),
        ("hooks.example:8443", "http://hooks.example:8443/", True),
        ("hooks.example:8443", "http://hooks.example:80/", False),
        ("*", "http://hooks.example/", True),
        ("", "http://hooks.example/", False),
    ],
)
def test_no_proxy_lists_exceptions(excepted: str, url: str, is_direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_PROXY lists hosts, domains and ports that need no proxy. Networks are ignored."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    assert proxy_for(url) == (None if is_direct else "http://proxy:3128")


@pytest.mark.parametrize("value", ["socks5://s3cret@proxy:1080", "http://proxy:s3cret", "http://", "http://[s3cret"])
def test_an_invalid_proxy_is_reported_with_its_variable(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message about an invalid proxy contains the name of the variable. The value may contain a password."""
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(TransientError, match=r"^HTTPS_PROXY in the environment is not a valid proxy") as caught:
        proxy_for("https://hooks.example/x")
    assert "s3cret" not in str(caught.value)
