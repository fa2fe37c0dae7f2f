"""Scriptable HTTP service in its own process, as a destination for enrichment tests.

The service can delay, reject or limit calls, hang, answer garbage, and close or reset connections; tests can kill it.
Tests read the calls from its log: the service writes one line when a call arrives and one when the call ends, without
buffering, so that the log survives a kill. ``python tests/enrich_service.py --log FILE [--port N]`` runs it by hand.

    with EnrichService(tmp_path / "calls.jsonl") as service:
        service.script(delay=0.01, rules=[rule("user-7", {"status": 503}, {"hang": True}), limit(50, retry_after=1)])
        ... GET {service.url}/users/user-7 with an Idempotency-Key ...
        assert [call.key for call in service.calls()] == [...]

Keys of a rule's step: ``status``, ``retry_after`` (seconds), ``delay`` (seconds), ``hang`` (never answers), ``held``
(answers only after :meth:`EnrichService.release`), ``close`` (closes without an answer), ``reset`` (closes with RST),
``cut`` (sends half the body, then closes), ``garbage`` (not JSON), ``nonsense`` (not HTTP), ``body`` (the JSON answer).
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import dataclasses
import functools
import json
import math
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from ports import free_port

__all__ = ["Called", "EnrichService", "limit", "quota", "rule", "tokens_of"]

_PATIENCE = 120.0
_PR_SET_PDEATHSIG = 1


def rule(keys: str, *steps: dict[str, Any], forever: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a rule for keys that match a regular expression: one step per call, and then ``forever``."""
    return {"keys": keys, "steps": list(steps), "forever": forever or {}}


def limit(per_second: int, retry_after: float | str | None = 1) -> dict[str, Any]:
    """Return a limit of calls per second. The service answers further calls with 429."""
    return {"per_second": per_second, "retry_after": retry_after}


def quota(per_minute: float, retry_after: float | str | None = 1) -> dict[str, Any]:
    """Return a token quota that refills evenly, up to two seconds' worth. Calls above the quota get 429."""
    return {"per_minute": per_minute, "retry_after": retry_after}


def tokens_of(key: str) -> int:
    """Return the number of tokens that a call with this key consumes from the quota."""
    return 50 + int(key) * 37 % 101


@dataclasses.dataclass(frozen=True)
class Called:
    """Call in the service's log.

    Attributes:
        number: position in the order of arrival.
        key: last part of the path; for a bulk call, the keys joined by commas.
        idempotency_key: value of the header ``Idempotency-Key``; empty if the header is missing.
        began: time of arrival (``time.monotonic``, the same clock in all processes of a machine).
        ended: end of the call; None if it had not ended when the log was read, or if the service was killed.
        outcome: status or action; ``gone`` if the client closed the connection before the answer.
        in_flight: calls in flight on arrival, including this one.
        connection: number of the connection, in the order in which connections were opened.
    """

    number: int
    key: str
    idempotency_key: str
    began: float
    in_flight: int
    connection: int
    ended: float | None = None
    outcome: str = ""

    @property
    def over_at(self) -> float:
        """Return the end time of a finished call."""
        assert self.ended is not None, self
        return self.ended


class EnrichService:
    """Context manager that starts and controls the service, and reads the service's log.

    Args:
        log: path of the service's log.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> EnrichService:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the service without a script. After a kill, the service reuses its port and log."""
        command = [sys.executable, __file__, "--log", str(self._log), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """Kill the service (SIGKILL). The kill resets connections and closes the port."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def freeze(self) -> None:
        """Stop the service (SIGSTOP). The kernel still accepts connections, but no call is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the service continue after :meth:`freeze` (SIGCONT)."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def script(self, **script: Any) -> None:
        """Replace the script and clear the log.

        Keyword Args:
            delay: seconds before every answer.
            tail: ``[share, seconds]``: delay this share of the calls by ``seconds`` instead of ``delay``.
            seed: seed for the random choice of the calls in ``tail``.
            rules: results of :func:`rule`; the first match applies.
            limit: result of :func:`limit`.
            quota: result of :func:`quota`; the keys are numbers, and answers have ``tokens``.
        """
        body = json.dumps(script).encode()
        request = urllib.request.Request(f"{self.url}/_script", body, method="POST")
        urllib.request.urlopen(request, timeout=_PATIENCE).close()

    def release(self, keys: str = ".*") -> None:
        """Answer current and future held calls with keys that match the regular expression."""
        request = urllib.request.Request(f"{self.url}/_release", json.dumps(keys).encode(), method="POST")
        urllib.request.urlopen(request, timeout=_PATIENCE).close()

    def move(self) -> None:
        """Move to another port with an empty log and no script. The move resets existing connections.

        The move separates tests, because for a moment, workers of a failed or stopped job may still make calls.
        """
        with urllib.request.urlopen(f"{self.url}/_move", b"", timeout=_PATIENCE) as answer:
            self.port = json.load(answer)["port"]

    def calls(self) -> list[Called]:
        """Return the calls since the last :meth:`script` in order of arrival.

        An incomplete last line is skipped.
        """
        found: dict[int, Called] = {}
        for line in self._log.read_bytes().split(b"\n")[:-1]:
            record = json.loads(line)
            if "script" in record:
                found = {}
            elif "key" in record:
                found[record["number"]] = Called(**record)
            elif record["number"] in found:
                found[record["number"]] = dataclasses.replace(found[record["number"]], **record)
        return list(found.values())


# --- the service itself -------------------------------------------------------------------------


class _Log:
    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, **record: Any) -> None:
        os.write(self._file, json.dumps(record).encode() + b"\n")


#: Rule as the service stores it: compiled pattern, steps, final step, and number of calls per key.
_Rule: TypeAlias = tuple[re.Pattern[str], list[dict[str, Any]], dict[str, Any], dict[str, int]]


class _Service:
    """Script and state of the service."""

    def __init__(self, log: _Log) -> None:
        self.log = log
        # After a kill, start above the call numbers that are already in the log.
        self.number = time.monotonic_ns()
        self.in_flight = 0
        self.set({})

    def set(self, script: dict[str, Any]) -> None:
        self.delay = script.get("delay", 0.0)
        self.tail = script.get("tail")
        self.random = random.Random(script.get("seed", 0))
        self.rules: list[_Rule] = [
            (re.compile(one["keys"]), one["steps"], one["forever"], {}) for one in script.get("rules", ())
        ]
        self.limit = script.get("limit")
        self.recent: deque[float] = deque()
        self.quota = script.get("quota")
        self.saved, self.saved_at = math.inf, time.monotonic()
        self.free: list[re.Pattern[str]] = []
        self.freed = asyncio.Event()
        self.log.write(script=True)

    def release(self, keys: str) -> None:
        self.free.append(re.compile(keys))
        self.freed.set()
        self.freed = asyncio.Event()

    async def held(self, key: str) -> None:
        """Wait until the test releases the key."""
        while not any(pattern.fullmatch(key) for pattern in self.free):
            await self.freed.wait()

    def step(self, key: str) -> dict[str, Any]:
        """Return the script's step for a call with the given key."""
        if self.limit is not None:
            now = time.monotonic()
            while self.recent and self.recent[0] <= now - 1:
                self.recent.popleft()
            if len(self.recent) >= self.limit["per_second"]:
                return {"status": 429, "retry_after": self.limit["retry_after"]}
            self.recent.append(now)
        if self.quota is not None:
            now, rate = time.monotonic(), self.quota["per_minute"] / 60
            self.saved, self.saved_at = min(2 * rate, self.saved + (now - self.saved_at) * rate), now
            if self.saved < tokens_of(key):
                return {"status": 429, "retry_after": self.quota["retry_after"]}
            self.saved -= tokens_of(key)
            return {"body": {"name": f"n{key}", "tokens": tokens_of(key)}}
        for pattern, steps, forever, made in self.rules:
            if pattern.fullmatch(key):
                count = made.get(key, 0)
                made[key] = count + 1
                return dict(steps[count] if count < len(steps) else forever)
        return {}

    def seconds(self, step: dict[str, Any]) -> float:
        if "delay" in step:
            return float(step["delay"])
        if self.tail and self.random.random() < self.tail[0]:
            return float(self.tail[1])
        return float(self.delay)


class _Server:
    """Listening socket and open connections."""

    def __init__(self, service: _Service) -> None:
        self._service = service
        self._listening: asyncio.Server | None = None
        self.port = 0
        self.connections: set[_Connection] = set()

    async def listen(self, port: int) -> int:
        """Start listening and return the port."""
        self._listening = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self._service, self), "127.0.0.1", port, backlog=4096, reuse_address=True
        )
        self.port = self._listening.sockets[0].getsockname()[1]
        return self.port

    async def move(self, asked_by: _Connection) -> int:
        """Listen on another port, reset all connections except the caller's connection, and return the new port."""
        assert self._listening is not None
        self._listening.close()
        for connection in self.connections - {asked_by}:
            connection.reset()
        self._service.set({})
        return await self.listen(0)


class _Connection(asyncio.Protocol):
    """HTTP/1.1 connection with keep-alive and one request at a time, as in clients' pools."""

    opened = 0

    def __init__(self, service: _Service, server: _Server) -> None:
        _Connection.opened += 1
        self.number = _Connection.opened
        self._service = service
        self._server = server
        self._buffer = b""
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._server.connections.add(self)
        # Close this connection, because the kernel accepted it on the former port.
        if transport.get_extra_info("sockname")[1] != self._server.port:
            self.reset()

    def connection_lost(self, _: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) >= length:
            self._buffer = rest[length:]
            path = first.split(" ")[1]
            self._answering = asyncio.ensure_future(self._answer(path, headers, rest[:length]))

    async def _answer(self, path: str, headers: dict[str, str], body: bytes) -> None:
        if path == "/_script":
            self._service.set(json.loads(body))
            self._send(200, {})
            return
        if path == "/_release":
            self._service.release(json.loads(body))
            self._send(200, {})
            return
        if path == "/_move":
            self._send(200, {"port": await self._server.move(self)})
            return
        service = self._service
        keys = json.loads(body) if path == "/bulk" else [path.partition("?")[0].rpartition("/")[2]]
        service.number = number = service.number + 1
        service.in_flight += 1
        service.log.write(
            number=number,
            key=",".join(keys),
            idempotency_key=headers.get("idempotency-key", ""),
            began=time.monotonic(),
            in_flight=service.in_flight,
            connection=self.number,
        )
        outcome = "gone"
        try:
            outcome, respond = await self._prepared(service, keys, path == "/bulk")
        finally:
            service.in_flight -= 1
            service.log.write(number=number, ended=time.monotonic(), outcome=outcome)
        # Respond after the log line, because a test may read the log as soon as it has the last response.
        respond()

    async def _prepared(self, service: _Service, keys: list[str], bulk: bool) -> tuple[str, Callable[[], None]]:
        """Wait as scripted; return the outcome, and the function that responds."""
        step = service.step(keys[0])
        if step.get("hang"):
            await asyncio.Event().wait()
        if step.get("held"):
            await service.held(keys[0])
        if (seconds := service.seconds(step)) > 0:
            await asyncio.sleep(seconds)
        for name in ("close", "reset", "nonsense"):
            if step.get(name):
                return name, functools.partial(self._break, name)
        status = step.get("status", 200)
        answers = [{"key": key, "country": f"country of {key}", "risk": len(key) / 8} for key in keys]
        body = step.get("body", answers if bulk else answers[0])
        return "cut" if step.get("cut") else str(status), functools.partial(self._send, status, body, step)

    def reset(self) -> None:
        """Close the connection with RST."""
        handle = self._transport.get_extra_info("socket")
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _break(self, how: str) -> None:
        if how == "nonsense":
            self._transport.write(b"\x00\x01 this is not HTTP\r\n\r\n")
        if how == "reset":
            self.reset()
        self._transport.close()

    def _send(self, status: int, answer: Any, step: dict[str, Any] | None = None) -> None:
        step = step or {}
        body = b"{not json" if step.get("garbage") else json.dumps(answer).encode()
        lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        if step.get("retry_after") is not None:
            lines.append(f"Retry-After: {step['retry_after']}")
        head = "\r\n".join(lines).encode() + b"\r\n\r\n"
        if step.get("cut"):
            self._transport.write(head + body[: len(body) // 2])
            self._transport.close()
        else:
            self._transport.write(head + body)


async def _serve(port: int, log: str) -> None:
    print(await _Server(_Service(_Log(log))).listen(port), flush=True)
    await asyncio.Event().wait()


def _end_with_parent() -> None:
    """End this process when its parent exits, even if the parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--log", required=True)
    arguments.add_argument("--port", type=int, default=0)
    given = arguments.parse_args()
    _end_with_parent()
    asyncio.run(_serve(given.port, given.log))
