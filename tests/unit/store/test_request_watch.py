"""The thread that hears of requests to save, against a server that says what a test wants."""

from __future__ import annotations

import http.server
import json
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from shardkeep.connection.addresses import ServiceAddress
from shardkeep.connection.request_client import RequestClient
from shardkeep.connection.transport import Transport
from shardkeep.protocol.error_codes import PROBLEM_CONTENT_TYPE
from shardkeep.store.request_watch import RequestWatch
from tests.waiting import wait_until

ATTEMPT = f"att_{1:032x}"
PATIENCE_SECONDS = 60.0
Answer = tuple[int, dict[str, Any]]


def waiting(number: int) -> Answer:
    return 200, {
        "attempt_id": ATTEMPT, "number": number, "state": "waiting" if number else "none", "requested_at": None,
        "requested_by": "somebody" if number else None, "checkpoint_id": None,
    }  # fmt: skip


def refusal(status: int, code: str) -> Answer:
    return status, {"title": "no", "status": status, "detail": "no", "code": code, "request_id": "r"}


class Service(http.server.ThreadingHTTPServer):
    """Answers each poll with the next of `answers`; without one it keeps the poll waiting."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: queue.Queue[Answer | None] = queue.Queue()
        self.polls: queue.Queue[dict[str, list[str]]] = queue.Queue()

    def next_known(self) -> int:
        """What the next poll says it knows."""
        return int(self.polls.get(timeout=PATIENCE_SECONDS)["known"][0])


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_GET(self) -> None:
        self.server.polls.put(parse_qs(urlsplit(self.path).query))
        answer = self.server.answers.get()
        if answer is None:
            self.close_connection = True
            return
        status, document = answer
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", PROBLEM_CONTENT_TYPE if status >= 400 else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    for _ in range(20):
        made.answers.put(None)
    made.shutdown()
    thread.join()
    made.server_close()


Watching = Callable[[Callable[[], object]], RequestWatch]


@pytest.fixture
def watching(service: Service) -> Iterator[Watching]:
    transport = Transport(ServiceAddress.parse(f"http://127.0.0.1:{service.server_address[1]}"), "shardkeep_secret")
    made: list[RequestWatch] = []

    def watch(ask: Callable[[], object]) -> RequestWatch:
        client = RequestClient.apart(transport)
        made.append(RequestWatch(client, ATTEMPT, ask, wait_seconds=30, first_pause_seconds=0.001))
        return made[-1]

    yield watch
    for one in made:
        one.stop()
    transport.close()


def test_each_request_is_asked_for_once_and_the_poll_tells_what_is_known(service: Service, watching: Watching) -> None:
    asked: queue.Queue[str] = queue.Queue()
    watching(lambda: asked.put("save"))
    assert service.next_known() == 0
    service.answers.put(waiting(3))
    assert asked.get(timeout=PATIENCE_SECONDS) == "save"
    assert service.next_known() == 3
    service.answers.put(waiting(4))
    assert asked.get(timeout=PATIENCE_SECONDS) == "save"
    assert service.next_known() == 4
    assert asked.empty()


def test_stopping_ends_a_poll_that_waits_at_the_service(service: Service, watching: Watching) -> None:
    watch = watching(lambda: None)
    service.next_known()

    watch.stop()

    wait_until(lambda: not watch.is_alive, seconds=20)  # the service has not answered, and would not for longer


def test_a_service_too_old_for_requests_is_asked_no_more_and_that_is_one_line_of_the_log(
    service: Service, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardkeep")
    service.answers.put(refusal(404, "no_such_route"))

    watch = watching(lambda: None)
    wait_until(lambda: not watch.is_alive)

    assert [(record.levelname, record.name) for record in caplog.records] == [("INFO", "shardkeep")]
    assert "too old" in caplog.text


@pytest.mark.parametrize("code", ["attempt_fenced", "run_deleted"])
def test_a_fenced_attempt_is_asked_about_no_more(
    service: Service, watching: Watching, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardkeep")
    service.answers.put(refusal(409, code))

    watch = watching(lambda: None)
    wait_until(lambda: not watch.is_alive)

    assert caplog.records == []


def test_whatever_else_fails_is_tried_again_and_logged_once_until_it_works(
    service: Service, watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="shardkeep")
    asked: queue.Queue[str] = queue.Queue()
    failures: list[Answer | None] = [
        None,  # the connection breaks
        refusal(503, "shutting_down"),
        refusal(500, "internal"),
        refusal(401, "token_expired"),
        refusal(404, "unknown_attempt"),
        (200, {"something": "else"}),
        (404, {}),
    ]
    for failure in failures:
        service.answers.put(failure)
    service.answers.put(waiting(1))

    watching(lambda: asked.put("save"))

    assert asked.get(timeout=PATIENCE_SECONDS) == "save"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "requests to save cannot be heard of now, trying on",
        "requests to save are heard of again",
        "somebody asked for a save",
    ]


def test_stopping_ends_the_pause_after_a_failure(service: Service) -> None:
    transport = Transport(ServiceAddress.parse(f"http://127.0.0.1:{service.server_address[1]}"), "shardkeep_secret")
    watch = RequestWatch(RequestClient.apart(transport), ATTEMPT, lambda: None, first_pause_seconds=3600)
    service.answers.put(refusal(503, "busy"))
    service.next_known()

    watch.stop()

    wait_until(lambda: not watch.is_alive)
