"""Exit codes of executors, containers and Python workers, and the reasons that cluster managers give for their loss.

Sources: Spark's ``ExecutorExitCode`` and ``SparkExitCode``; YARN's ``ContainerExitStatus``; the reasons of Kubernetes'
containers and pods.
"""

from __future__ import annotations

import re
import signal

from spark_events.failures.kinds import OUT_OF_MEMORY

__all__ = ["class_of_exit", "killed_by"]

#: An exit code above this one stands for a signal.
_SIGNALS = 128
_LOST = "EXECUTOR_LOST"
#: The failure is the end of a process or of its container, and not an exception that mentions an exit code.
_PROCESS = re.compile(
    r"^\W*(?:ExecutorLostFailure|[\w.]*ExecutorDeadException|Executor|Container|Command exited|Application application_"
    r"|[\w.]*SparkException: (?:Job aborted|Python worker|Application application_|Max number of executor failures"
    r"|Executor|External scheduler)|Lost executor|The executor|Python worker|Max number of executor failures"
    r"|Application .{0,80} failed \d+ times)"
)
_PYTHON_KILLED = re.compile(r"Python worker .{0,300}(?:exit(?:ed)?(?: with)? code:? (?:137|-9)\b|SIGKILL)")
_CODE = re.compile(
    r"exit(?:ed)?[ _]?(?:with )?(?:code|status)?(?: from container \S+)?(?: is)?\s{0,3}:?\s{0,3}(-?\d{1,3})\b"
    r"|[Ee]xit ?(?:[Cc]ode|[Ss]tatus):? (-?\d{1,3})\b|\bcode:? (-?\d{1,3})\b",
    re.IGNORECASE,
)
_CODES = {
    **dict.fromkeys((52, 137, -103, -104), OUT_OF_MEMORY),
    -101: "DISK_FULL",
    # SIGTERM, SIGSEGV, SIGABRT, lost heartbeats, and nodes that YARN released, preempted or lost
    **dict.fromkeys((143, 139, 134, 56, -100, -102, -105, -106, -107), _LOST),
}
#: Reasons, the most specific first.
_REASONS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"(?i)ephemeral[- ]storage|low on resource: \S*storage|disk ?pressure|No space left", "DISK_FULL"),
        (r"OOMKilled|(?i:memory limits|beyond the .{0,20}memory limit|low on resource: memory)", OUT_OF_MEMORY),
        (r"ErrImagePull|ImagePullBackOff|InvalidImageName|CreateContainerConfigError|unknown queue", "CONFIGURATION"),
        (
            r"(?i)heartbeat timed out|decommission|preempt|evict|\bspot\b|NodeShutdown|node is shutting down"
            r"|(?:worker|slave|node|container) (?:is )?lost|lost (?:worker|node)|released on a \*lost\* node"
            r"|max number of executor failures|disassociated|killed by external signal|worker removed",
            _LOST,
        ),
    )
)


def class_of_exit(failure: str) -> str | None:
    """Return the class of the end of a process; None if the failure is not the end of a process.

    Args:
        failure: type and message of the root cause.

    >>> class_of_exit("ExecutorLostFailure (executor 3 exited) Reason: Command exited with code 143")
    'EXECUTOR_LOST'
    """
    if _PROCESS.match(failure) is None:
        return None
    if _PYTHON_KILLED.search(failure):
        return "PYTHON_OUT_OF_MEMORY"
    reason = next((name for pattern, name in _REASONS if pattern.search(failure)), None)
    if reason is not None and reason != _LOST:
        return reason
    codes = (next(group for group in match.groups() if group) for match in _CODE.finditer(failure))
    code = next((_CODES[int(code)] for code in codes if int(code) in _CODES), None)
    return code or reason or (_LOST if failure.startswith("ExecutorLostFailure") else None)


def killed_by(code: int) -> str | None:
    """Describe the signal that ended a process; return None if the exit code stands for no signal.

    >>> killed_by(137)
    "killed by SIGKILL (exit code 137), by the kernel's out-of-memory killer or by a command"
    >>> killed_by(143)
    'killed by SIGTERM (exit code 143)'
    """
    try:
        name = signal.Signals(code - _SIGNALS).name
    except ValueError:
        return None
    who = ", by the kernel's out-of-memory killer or by a command" if name == "SIGKILL" else ""
    return f"killed by {name} (exit code {code}){who}"
