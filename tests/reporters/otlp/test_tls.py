"""The ``otlp`` reporter and certificates: ours, the receiver's, and those that do not match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from fakes import event

from reporters.otlp.sending import BOTH, config, send, verdict
from reporters.peers.otlp import Collector
from spark_events.reporters.otlp.verdicts import UnavailableError


class Certificates:
    """A private authority, and files of what it has issued."""

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
    """A collector with TLS that also wants to see a certificate of its clients."""
    certificate, key = certificates.issued("127.0.0.1")
    tls = {"cert_file": certificate, "key_file": key, "client_ca_file": certificates.trusted}
    with Collector(tmp_path_factory.mktemp("guarded"), tls=tls) as started:
        yield started


@pytest.mark.parametrize("protocol", BOTH)
def test_both_sides_show_their_certificates(certificates: Certificates, guarded: Collector, protocol: str) -> None:
    """TLS with an authority of one's own, and a client that says who it is."""
    certificate, key = certificates.issued("driver")
    known = {"certificate": certificates.trusted, "client_certificate": certificate, "client_key": key}
    already = len(guarded.received())
    send(config(protocol, guarded.endpoint(protocol, "https"), **known), [event(1)])
    assert guarded.await_bodies(already + 1)[already:] == ["1"]


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize(
    ("host", "trusts", "said"),
    [
        ("127.0.0.1", False, "certificate verify failed|CERTIFICATE_VERIFY_FAILED"),
        ("localhost", True, "Hostname|hostname"),
        ("127.0.0.1", True, "CERTIFICATE_REQUIRED|client.certificate"),
    ],
    ids=["an authority that is not trusted", "another host's", "no certificate of the client"],
)
def test_a_certificate_that_does_not_match_is_said(
    certificates: Certificates, guarded: Collector, protocol: str, host: str, trusts: bool, said: str
) -> None:
    """Neither sent in spite of it, nor given up: the events are held, and the log says why."""
    endpoint = guarded.endpoint(protocol, "https").replace("127.0.0.1", host)
    refusal = verdict(config(protocol, endpoint, certificate=certificates.trusted if trusts else None))
    assert isinstance(refusal, UnavailableError)
    assert re.search(said, str(refusal)), refusal


@pytest.mark.parametrize("protocol", BOTH)
def test_what_is_no_certificate_is_named(certificates: Certificates, tmp_path: Path, protocol: str) -> None:
    """The path is in the message, for a missing file and for one with something else in it."""
    missing, garbage = tmp_path / "missing.pem", tmp_path / "garbage.pem"
    garbage.write_text("hello")
    own, _ = certificates.issued("driver")
    for path, reason in ((missing, "No such file"), (garbage, "not usable")):
        with pytest.raises(UnavailableError, match=rf"{path}: .*{reason}"):
            send(config(protocol, "https://127.0.0.1:9", certificate=str(path)))
    with pytest.raises(UnavailableError, match=f"{own} with {garbage}"):
        send(config(protocol, "https://127.0.0.1:9", client_certificate=own, client_key=str(garbage)))
