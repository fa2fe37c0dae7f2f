"""Tests that run the commands of the tutorial, the code of the guides on enrichment, and its docstrings' examples."""

from __future__ import annotations

import contextlib
import http.server
import inspect
import json
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest
from fakes import ROOT
from pyspark.sql import SparkSession
from reporters.peers.postgresql import PASSWORD, PostgreSQL
from spark.harness import environment

import spark_events

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(900)]


class Services(http.server.BaseHTTPRequestHandler):
    """User service and language model that the guides call. User 3 is unknown, and one answer is not JSON."""

    protocol_version = "HTTP/1.1"
    prompts: list[str] = []  # noqa: RUF012 (the server makes a handler for each request)

    def do_GET(self) -> None:
        assert self.headers["Idempotency-Key"]
        number = int(self.path.removeprefix("/users/"))
        self._answer(404 if number == 3 else 200, {"country": ("DE", "FR")[number % 2]})

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = question["messages"][-1]["content"]
        self.prompts.append(text)
        content = "no idea" if text == "?" else json.dumps({"topic": "bill", "angry": "!" in text})
        self._answer(200, {"choices": [{"message": {"content": content}}], "usage": {"total_tokens": 25}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def services() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def process_of(guide: str, folder: Path) -> Any:
    """Run a guide's code and return the function ``process`` that it defines, which writes below the folder."""
    page = (ROOT / "docs/guides" / f"{guide}.md").read_text(encoding="utf-8")
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = re.sub(r'(parquet\(|store=)"(\w+)"', rf'\1"{folder}/\2"', code)
    found: dict[str, Any] = {"__name__": f"guide_{guide.replace('-', '_')}"}
    exec(code, found)
    return found["process"]


def test_http(spark: SparkSession, services: str, tmp_path: Path) -> None:
    """A row that the service rejects becomes a dead letter, and all other rows are enriched."""
    spark.sparkContext.environment["USERS_URL"] = services
    process_of("enrich-with-http", tmp_path)(spark.range(40).withColumnRenamed("id", "user_id"), 0)
    found = {row.user_id: row.country for row in spark.read.parquet(f"{tmp_path}/enriched").collect()}
    assert found == {number: ("DE", "FR")[number % 2] for number in range(40) if number != 3}
    [dead] = spark.read.parquet(f"{tmp_path}/dead").collect()
    assert (dead.user_id, dead.failure.retryable) == (3, False)


def test_database(spark: SparkSession, tmp_path: Path) -> None:
    """If the table contains no entry for a row's key, the answer is null."""
    server = PostgreSQL()
    try:
        server.start()
        server.psql("CREATE TABLE users (id bigint, country text)", "INSERT INTO users VALUES (1, 'DE'), (2, 'FR')")
        spark.sparkContext.environment["USERS_DB"] = f"{server.url()}?password={quote(PASSWORD, safe='')}"
        rows = spark.createDataFrame([(1,), (2,), (3,), (1,)], "user_id bigint")
        process_of("enrich-with-a-database", tmp_path)(rows, 0)
    finally:
        server.remove()
    found = spark.read.parquet(f"{tmp_path}/enriched").collect()
    assert sorted((row.user_id, row.country) for row in found) == [(1, "DE"), (1, "DE"), (2, "FR"), (3, None)]


def test_language_model(spark: SparkSession, services: str, tmp_path: Path) -> None:
    """Equal texts cause one call, and an answer that is not JSON fails its row."""
    spark.sparkContext.environment.update(LLM_URL=services, LLM_KEY="key", LLM_MODEL="small")
    texts = ["My bill is wrong!", "My bill is right", "My bill is wrong!", "?"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "texts.json").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    stream = spark.readStream.schema("text string").json(f"{tmp_path}/in").writeStream
    query = stream.foreachBatch(process_of("enrich-with-an-llm", tmp_path)).trigger(availableNow=True)
    query.option("checkpointLocation", f"{tmp_path}/checkpoint").start().awaitTermination()
    found = {row.text: row for row in spark.read.parquet(f"{tmp_path}/classified").collect()}
    assert found["My bill is wrong!"].asDict() == {
        "text": "My bill is wrong!", "topic": "bill", "angry": True, "tokens": 25, "failure": None,
    }  # fmt: skip
    assert found["?"].topic is None
    assert "JSONDecodeError" in found["?"].failure.type
    assert Services.prompts.count("My bill is wrong!") == 1


def test_examples_in_docstrings(spark: SparkSession, services: str, tmp_path: Path) -> None:
    """The example of `enrich_batch` writes dead letters apart; that of `enrich` names the reason in a column."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "orders.json").write_text("".join(f'{{"user_id": {number}}}\n' for number in range(40)))
    orders = spark.readStream.schema("user_id long").json(f"{tmp_path}/in")
    found = {name: getattr(spark_events, name) for name in spark_events.__all__}
    found |= {"__name__": "docstring", "contextlib": contextlib, "aiohttp": aiohttp, "orders": orders}
    for number, function in enumerate((spark_events.enrich_batch, spark_events.enrich)):
        [code] = re.findall(r"```python\n(.*?)```", inspect.cleandoc(function.__doc__ or ""), re.DOTALL)
        code = textwrap.dedent(code).replace("http://users.internal", services)
        code = re.sub(r'"(enriched|dead|checkpoint)"', rf'"{tmp_path}/\1-{number}"', code)
        exec(code, found)
        found["query"].processAllAvailable()
        found["query"].stop()
    countries = {number: ("DE", "FR")[number % 2] for number in range(40) if number != 3}
    good = spark.read.parquet(f"{tmp_path}/enriched-0").collect()
    assert {row.user_id: row.country for row in good} == countries
    assert [row.user_id for row in spark.read.parquet(f"{tmp_path}/dead-0").collect()] == [3]
    rows = spark.read.parquet(f"{tmp_path}/enriched-1").collect()
    assert {row.user_id: row.country for row in rows if row.failure is None} == countries
    assert [row.user_id for row in rows if row.failure is not None] == [3]


def test_tutorial(tmp_path: Path) -> None:
    """All commands except the installation run in one shell; those that clean up leave nothing."""
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    install, *blocks, clean_up = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    assert "pip install" in install
    tutorial = tmp_path / "tutorial"
    tutorial.mkdir()
    script = "".join(blocks).replace("spark-submit orders.py", "spark-submit orders.py && exit 9")
    folder = Path(sys.executable).parent
    variables = environment()
    variables["PATH"] = f"{folder}:{variables['PATH']}"
    done = subprocess.run(
        ["bash", "-uc", script], cwd=tutorial, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No mistakes found" in done.stdout
    shown = done.stdout.partition("No mistakes found")[2]
    [alarm] = [line for line in shown.splitlines() if " ERROR " in line]
    assert "orders: application failed" in alarm
    assert "invalid literal for int()" in alarm
    assert "orders.py:4" in alarm
    assert "events by reporter: audit" in shown
    assert (tutorial / "report.html").exists()
    without_environment = f"deactivate() {{ :; }}\n{clean_up}"
    subprocess.run(["bash", "-uec", without_environment], cwd=tutorial, check=True)
    assert list(tmp_path.iterdir()) == []
