"""Tests of the ``otlp`` reporter with a receiver that stops, restarts or never answers."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeDriver, application_start, event, eventually, goodbye
from lateness import Witness

from reporters.otlp.sending import BOTH, GRPC, HTTP, config, delivery, put
from reporters.peers.otlp import Collector, Response, grpc_receiver, http_receiver
from spark_events.dispatch.delivery import Delivery

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("protocol", BOTH)
def test_a_restarted_collector_gets_every_event_in_order(tmp_path: Path, protocol: str) -> None:
    with Collector(tmp_path) as collector, delivery(config(protocol, collector.endpoint(protocol))) as to:
        put(to, [event(number) for number in range(50)])
        assert to.wait_until_settled(20)
        collector.stop()
        put(to, [event(number) for number in range(50, 200)])
        eventually(lambda: to.counters().failures >= 3, what="several attempts")
        collector.start()
        # Waiting for gRPC's own reconnect back-off (1 s, 2 s, ...) would take longer.
        assert to.wait_until_settled(10)
        put(to, [event(number) for number in range(200, 250)])
        assert to.wait_until_settled(20)
        assert collector.await_bodies(250) == [str(number) for number in range(250)]
        counters = to.counters()
    assert (counters.delivered, counters.lost) == (250, 0)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_collector_that_starts_late_gets_every_event(tmp_path: Path, protocol: str) -> None:
    collector = Collector(tmp_path)
    with delivery(config(protocol, collector.endpoint(protocol))) as to:
        put(to, [event(number) for number in range(30)])
        eventually(lambda: to.counters().failures >= 2, what="failed attempts")
        with collector:
            assert to.wait_until_settled(20)
            assert collector.await_bodies(30) == [str(number) for number in range(30)]


@pytest.mark.parametrize("protocol", BOTH)
def test_an_unreachable_collector_does_not_delay_shutdown(protocol: str, witness: Witness) -> None:
    """With an unreachable Collector, the reporter stops by its deadline. No retry loop of the library continues."""
    settings = config(protocol, "http://127.0.0.1:9")
    with delivery(settings, patience=0.0) as to:
        put(to, [event(number) for number in range(30)])
        eventually(lambda: to.counters().failures >= 1)
        deadline = time.monotonic() + 0.5
        to.request_stop(deadline)
        to.join()
        assert witness.late(deadline) < 0.2
        assert to.counters().dropped == {"shutdown": 30}


@pytest.mark.parametrize("protocol", BOTH)
def test_a_receiver_that_never_answers_does_not_delay_shutdown(protocol: str, witness: Witness) -> None:
    """If a receiver accepts connections but never answers, the deadline cancels the attempt."""
    with (
        socket.create_server(("127.0.0.1", 0)) as hole,
        delivery(config(protocol, f"http://127.0.0.1:{hole.getsockname()[1]}"), timeout=30.0, patience=0.0) as to,
    ):
        put(to, [event(1)])
        connection, _ = hole.accept()
        with connection:
            deadline = time.monotonic() + 0.5
            to.request_stop(deadline)
            to.join()
            assert witness.late(deadline) < 0.2
        assert to.counters().dropped == {"shutdown": 1}


@pytest.mark.parametrize("protocol", BOTH)
def test_a_cancelled_attempt_ends_its_call(protocol: str) -> None:
    """Cancelling an attempt ends the call: the receiver detects the cancellation, and no thread remains."""
    slow = threading.Event()

    def first_is_slow(bodies: list[str]) -> object:
        if not slow.is_set():
            slow.set()
            released.wait(20)
        return None

    released = threading.Event()
    make = grpc_receiver if protocol == GRPC else http_receiver
    with make(first_is_slow) as (receiver, endpoint):
        with delivery(config(protocol, endpoint), timeout=3.0) as to:
            put(to, [event(1)])
            try:
                assert to.wait_until_settled(20)
                assert to.counters().failures == 1
                assert to.tally.hung == 0
            finally:
                released.set()
        assert receiver.requests == [["1"], ["1"]]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_connection_that_lost_its_receiver_is_replaced(protocol: str) -> None:
    """If packets of the open connection are lost, as after a failover, the next attempt uses a new connection."""
    make = grpc_receiver if protocol == GRPC else http_receiver
    with make(lambda _: None) as (receiver, endpoint), Relay(endpoint) as relay:
        with delivery(config(protocol, relay.endpoint), timeout=1.0) as to:
            put(to, [event(1)])
            assert to.wait_until_settled(20)
            relay.lose_packets()
            put(to, [event(2)])
            assert to.wait_until_settled(20)
            counters = to.counters()
        assert receiver.accepted == ["1", "2"]
        # One attempt fails; the second tolerates a slow machine.
        assert (counters.delivered, counters.failures) in [(2, 1), (2, 2)]


@pytest.mark.parametrize("protocol", BOTH)
def test_events_delivered_before_a_failure_are_not_sent_again(protocol: str) -> None:
    """If one request for a batch fails temporarily, the events in the other requests are not sent again."""
    import grpc

    from reporters.peers.otlp import Status

    failing = {"left": 2}

    def answer(bodies: list[str]) -> object:
        if "30" in bodies and failing["left"]:
            failing["left"] -= 1
            return Status(grpc.StatusCode.UNAVAILABLE) if protocol == GRPC else Response(503)
        return None

    make = grpc_receiver if protocol == GRPC else http_receiver
    with make(answer) as (receiver, endpoint):
        settings = config(protocol, endpoint, request_max_size=16_384)
        with delivery(settings, batch_size=64) as to:
            put(to, [event(number, text="x" * 1_000) for number in range(64)])
            assert to.wait_until_settled(20)
            assert to.counters().delivered == 64
        assert receiver.accepted == [str(number) for number in range(64)]


def test_a_renewed_certificate_is_read_again(tmp_path: Path) -> None:
    import trustme

    old, new = trustme.CA(), trustme.CA()
    server = new.issue_cert("127.0.0.1")
    key, chain, trusted = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "ca.pem"
    server.private_key_pem.write_to_path(key)
    server.cert_chain_pems[0].write_to_path(chain)
    old.cert_pem.write_to_path(trusted)
    with Collector(tmp_path, tls={"cert_file": str(chain), "key_file": str(key)}) as collector:
        for protocol in BOTH:
            old.cert_pem.write_to_path(trusted)
            settings = config(protocol, collector.endpoint(protocol, "https"), certificate=str(trusted))
            already = len(collector.received())
            with delivery(settings) as to:
                put(to, [event(1)])
                eventually(partial(has_failed, to), what="a handshake that fails")
                new.cert_pem.write_to_path(trusted)
                assert to.wait_until_settled(20)
            assert len(collector.await_bodies(already + 1)) == already + 1


def test_two_reporters_are_independent(tmp_path: Path) -> None:
    """Reporters that share the gRPC library have separate threads, event loops and connections."""
    with Collector(tmp_path) as collector:
        dead = config(GRPC, "http://127.0.0.1:9")
        with (
            delivery(dead),
            delivery(config(GRPC, collector.endpoint(GRPC))) as one,
            delivery(config(HTTP, collector.endpoint(HTTP))) as two,
        ):
            for to in (one, two):
                put(to, [event(number) for number in range(500)])
            assert one.wait_until_settled(20)
            assert two.wait_until_settled(20)
        assert sorted(collector.await_bodies(1000)) == sorted([str(number) for number in range(500)] * 2)


@pytest.mark.parametrize("protocol", BOTH)
def test_a_sidecar_ends_in_time_and_writes_nothing_to_standard_error(
    tmp_path: Path, protocol: str, witness: Witness
) -> None:
    """If the server does not support TLS, the sidecar exits in time. Libraries write nothing to standard error."""
    with socket.create_server(("127.0.0.1", 0)) as hole:
        keys = {"type": "otlp", "protocol": protocol, "endpoint": f"https://127.0.0.1:{hole.getsockname()[1]}"}
        threading.Thread(target=hang_up, args=(hole,), daemon=True).start()
        settings = {f"events.reporter.telemetry.{key}": value for key, value in keys.items()}
        settings["events.dispatcher.type"] = "async-queued"
        with FakeDriver(tmp_path / "errors", settings) as driver:
            witness.watch(driver.process.pid)
            driver.send_records(application_start())
            failure = eventually(lambda: next((one for one in driver.answers if is_failure(one)), None))
            deadline = time.monotonic() + 1
            driver.send(goodbye(1_000))
            assert driver.await_exit() == 0
            assert witness.late(deadline) <= 0.1
    assert "holding its events and retrying: TransientError: " in failure["message"]
    assert (tmp_path / "errors").read_text() == ""


def has_failed(to: Delivery) -> bool:
    return to.counters().failures >= 1


def is_failure(answer: dict[str, Any]) -> bool:
    return answer["kind"] == "log" and "holding its events and retrying" in answer["message"]


def hang_up(server: socket.socket) -> None:
    """Close every connection after the first received byte."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)


class Relay(socketserver.ThreadingTCPServer):
    """TCP relay to a receiver, which can lose all further packets of its open connections.

    Args:
        endpoint: URL of the receiver.
    """

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Relayed)
        self.receiver = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.working: list[threading.Event] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def lose_packets(self) -> None:
        for one in self.working:
            one.clear()


class _Relayed(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        works = threading.Event()
        works.set()
        self.server.working.append(works)
        with contextlib.suppress(OSError), socket.create_connection(self.server.receiver) as receiver:
            peers = {self.request: receiver, receiver: self.request}
            while True:
                for source in select.select(list(peers), [], [])[0]:
                    if not (data := source.recv(65_536)):
                        return
                    if works.is_set():
                        peers[source].sendall(data)
