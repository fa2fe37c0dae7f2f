"""Reporter that forwards its calls to another process.

To the dispatcher, this reporter looks like a reporter in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence

from spark_events.config import Setting
from spark_events.dispatch.process.child import Child
from spark_events.dispatch.process.messages import Close, Done, Make, Open, Report, Request
from spark_events.errors import ReporterProcessError
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter

#: Time limit for starting Python and importing the reporter, in seconds; it applies even if the timeout of an attempt
#: is shorter.
_START_SECONDS = 30.0


class ProcessReporter(Reporter):
    """Start the reporter's process, forward calls to it, and replace a dead process.

    A cancelled call, for example after its timeout, leaves the process in an unknown state, so the process is killed.
    The next call starts a new process, and creates and opens the reporter there.

    Args:
        name: the reporter's name in the configuration.
        type_name: the value of its ``type`` setting.
        settings: the user's settings; the process parses them again.
    """

    def __init__(self, name: str, type_name: str, settings: Sequence[Setting]) -> None:
        super().__init__()
        self._make = Make(name, type_name, list(settings))
        self._child: Child | None = None
        self._making: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self._opened = False

    async def open(self) -> None:
        child = await self._ready()
        if not self._opened:
            await self._ask(child, Open())
            self._opened = True

    async def report(self, events: Sequence[Event]) -> None:
        await self.open()
        await self._ask(await self._ready(), Report(list(events)))

    async def close(self) -> None:
        child, opened = self._child, self._opened
        try:
            if child is not None and opened and not child.is_gone:
                await self._ask(child, Close())
        finally:
            # End the process, even if ``close`` failed.
            await self._discard()

    async def release(self) -> None:
        await self._discard()

    async def _ready(self) -> Child:
        """Return the process; start it and create the reporter in it if necessary."""
        if self._child is None:
            self._opened = False
            self._child = Child(self._make.name)
            self._started_at = time.monotonic()
            self._making = asyncio.ensure_future(self._ask_to_make(self._child))
        child = self._child
        if self._making is not None:
            try:
                # A timeout cancels only this wait. The start continues, and the next attempt waits for the same start.
                await asyncio.shield(self._making)
            except asyncio.CancelledError:
                if time.monotonic() - self._started_at > _START_SECONDS:
                    child.kill(f", because it was not ready within {_START_SECONDS:g} s")
                raise
            except Exception:
                # The caller counts and logs the error; the next attempt starts another process.
                await self._discard()
                raise
            self._making = None
        return child

    async def _ask_to_make(self, child: Child) -> None:
        self._note(await child.ask(self._make))

    def _note(self, answer: Done) -> None:
        self.max_batch_size, self.rest = answer.most, answer.rest
        self.linger, self.lingers_through = answer.linger, answer.lingers_through

    async def _ask(self, child: Child, request: Request) -> None:
        try:
            self._note(await child.ask(request))
        except asyncio.CancelledError:
            self._child = None
            child.close()
            raise
        except ReporterProcessError:
            if child.is_gone:
                await self._discard()
            raise

    async def _discard(self) -> None:
        child, self._child, self._opened = self._child, None, False
        making, self._making = self._making, None
        if child is not None:
            child.kill()
            await child.exited()
        if making is not None:
            # Ignore the error: it was raised in the caller, which counts it, or it says that this process was killed.
            with contextlib.suppress(Exception):
                await making
        if child is not None:
            child.close()
