"""Tests of the ``otlp`` reporter with client and server certificates, valid and invalid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from fakes import event

from reporters.otlp.sending import BOTH, HTTP, config, send, verdict
from reporters.peers.otlp import Collector
from spark_events.errors import TransientError
from spark_events.reporters.otlp.target import target


class Certificates:
    """Private certificate authority (CA) and the files that it issued."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = trustme.CA()
        self.trusted = self._write("ca.pem", self.authority.cert_pem)

    def issued(self, name: str) -> tuple[str, str]:
        made = self.authority.issue_cert(name)
        return self._write(f"{name}.pem", made.cert_chain_pems[0]), self._write(f"{name}.key", made.private_key_pem)

    def _write(self, name: str, blob: trustme.Blob) -> str:
        blob.write_to_path(self._folder / name)
        return str(self._folder / name)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """Yield a Collector with TLS that requires client certificates."""
    certificate, key = certificates.issued("127.0.0.1")
    tls = {"cert_file": certificate, "key_file": key, "client_ca_file": certificates.trusted}
    with Collector(tmp_path_factory.mktemp("guarded"), tls=tls) as started:
        yield started


@pytest.mark.parametrize("protocol", BOTH)
def test_mutual_tls(certificates: Certificates, guarded: Collector, protocol: str) -> None:
    """Events are delivered over TLS with a private CA and a client certificate."""
    certificate, key = certificates.issued("driver")
    known = {"certificate": certificates.trusted, "client_certificate": certificate, "client_key": key}
    already = len(guarded.received())
    send(config(protocol, guarded.endpoint(protocol, "https"), **known), [event(1)])
    assert guarded.await_bodies(already + 1)[already:] == ["1"]


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize(
    ("host", "trusts", "message"),
    [
        ("127.0.0.1", False, "certificate verify failed|CERTIFICATE_VERIFY_FAILED"),
        ("localhost", True, "Hostname|hostname"),
        ("127.0.0.1", True, "CERTIFICATE_REQUIRED|client.certificate"),
    ],
    ids=["an authority that is not trusted", "another host's", "no certificate of the client"],
)
def test_a_certificate_that_does_not_match_is_logged(
    certificates: Certificates, guarded: Collector, protocol: str, host: str, trusts: bool, message: str
) -> None:
    """If a certificate does not match, the error is transient and contains the reason, so the events are held."""
    endpoint = guarded.endpoint(protocol, "https").replace("127.0.0.1", host)
    refusal = verdict(config(protocol, endpoint, certificate=certificates.trusted if trusts else None))
    assert isinstance(refusal, TransientError)
    assert re.search(message, str(refusal)), refusal


def test_a_client_certificate_does_not_change_the_trusted_authorities(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without own authorities, HTTP trusts those of httpx, with and without a client certificate."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    certificate, key = certificates.issued("driver")
    made = target(config(HTTP, "https://127.0.0.1:9", client_certificate=certificate, client_key=key), {})
    assert made.context().get_ca_certs() == httpx.create_ssl_context().get_ca_certs()


@pytest.mark.parametrize("protocol", BOTH)
def test_an_invalid_certificate_file_is_named(certificates: Certificates, tmp_path: Path, protocol: str) -> None:
    """The error about a missing or invalid certificate file contains the path of the file."""
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("hello")
    own, _ = certificates.issued("driver")
    for path, reason in ((missing, "No such file"), (garbage, "no certificate")):
        with pytest.raises(ValueError, match=rf"^certificate: {path}: .*{reason}"):
            send(config(protocol, "https://127.0.0.1:9", certificate=str(path)))
    with pytest.raises(ValueError, match=f"^client.certificate: {own} and {garbage}: "):
        send(config(protocol, "https://127.0.0.1:9", client_certificate=own, client_key=str(garbage)))
