"""Requests to save now: made by anyone who may write to the run, heard by the job that trains it."""

from __future__ import annotations

from shardkeep.connection.retries import RetryPolicy
from shardkeep.connection.service_client import ServiceClient
from shardkeep.connection.transport import Transport
from shardkeep.errors import AttemptFenced
from shardkeep.protocol import routes
from shardkeep.protocol.messages import SaveRequestInfo

_ONE_TRY = RetryPolicy(window_seconds=0.0)


class RequestClient(ServiceClient):
    """What is asked about such requests, over the same connections."""

    @classmethod
    def apart(cls, transport: Transport) -> RequestClient:
        """One with a connection of its own, which repeats nothing; `transport.cut` ends what it waits for."""
        return cls(transport.apart(policy=_ONE_TRY))

    def request_save(self, project: str, run: str) -> SaveRequestInfo:
        """Ask training to save at its next step; the request that waits, if there is one.

        It asks by number, so that one whose answer was lost and that is sent again is no second save.
        """
        try:
            return self._ask_for_next(project, run)
        except AttemptFenced:  # a newer attempt began between looking and asking: its requests are counted anew
            return self._ask_for_next(project, run)

    def save_request(self, project: str, run: str) -> SaveRequestInfo:
        """The last request, and what became of it."""
        return self._ask("GET", _request(project, run), SaveRequestInfo)

    def wait_save_request(self, attempt_id: str, *, known: int, wait_seconds: float) -> SaveRequestInfo:
        """The attempt's last request: once its number is above `known`, or after `wait_seconds`."""
        url = routes.path(routes.ATTEMPT_SAVE_REQUEST, attempt=attempt_id)
        query = {"known": known, "wait_seconds": wait_seconds}
        return self._ask("GET", url, SaveRequestInfo, query=query, wait_seconds=wait_seconds)

    def _ask_for_next(self, project: str, run: str) -> SaveRequestInfo:
        present = self.save_request(project, run)
        number = present.number if present.state == "waiting" else present.number + 1
        return self._ask("POST", _request(project, run), SaveRequestInfo, query={"number": number})


def _request(project: str, run: str) -> str:
    return routes.path(routes.RUN_SAVE_REQUEST, project=project, run=run)
