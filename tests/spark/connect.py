"""Spark Connect server for tests.

PySpark 3.5 does not include the Spark Connect jar; ``make connect`` downloads the jar.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fakes import ROOT
from missing import missing, need
from spark.harness import DEADLINE_SECONDS, Lab, Run, spark_version

_SERVER = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
_FOR_3_5 = ROOT / ".tools" / "connect-3.5" / "jars"


def connect_server(
    lab: Lab, defaults: Mapping[str, str] | None = None, env: Mapping[str, str] | None = None
) -> tuple[Run, str]:
    """Start a Spark Connect server and yield its port."""
    need("grpc")
    program = ["spark-submit", *_SERVER]
    if spark_version() < (4,):
        jars = sorted(_FOR_3_5.glob("*.jar"))
        if not jars:
            missing("there is no Spark 3.5 Connect server in .tools/connect-3.5; make connect fetches it")
        program += ["--jars", ",".join(map(str, jars))]
    defaults = {**(defaults or {}), "spark.connect.grpc.binding.port": "0"}
    server = lab.start("", "spark-internal", program=program, defaults=defaults, env=env)
    started = server.wait_for(
        "the server", lambda: re.search(r"server started at: \S*:(\d+)\s", server.log), DEADLINE_SECONDS
    )
    return server, started[1]
