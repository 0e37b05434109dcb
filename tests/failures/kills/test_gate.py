from __future__ import annotations

import socket

from demo.gate import Gate

PATIENCE_SECONDS = 60


def test_a_client_that_goes_away_in_the_middle_of_a_request_ends_the_connection_to_the_service() -> None:
    with socket.create_server(("127.0.0.1", 0)) as service:
        gate = Gate(service.getsockname()[1])
        host, port = gate.url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        client.sendall(b"POST /v1/x HTTP/1.1\r\ncontent-length: 43\r\n\r\n")
        connection, _ = service.accept()
        with connection:
            connection.settimeout(PATIENCE_SECONDS)
            assert connection.recv(1000).endswith(b"\r\n\r\n")

            client.close()

            assert connection.recv(1000) == b"", "the service would wait for the body until its idle timeout"
        gate.close()
