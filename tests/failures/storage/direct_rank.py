"""One rank that saves through the object store, for tests that kill its process."""

from __future__ import annotations

import sys

from shardkeep.planning.packing import ChunkPacker
from tests.integration.client.direct_service import CHUNK_BYTES, many


def main(url: str, token: str, run: str, step: str, seed: str, chunks: str) -> None:
    """Saves one step of a made-up state and waits for the commit."""
    import shardkeep as sk

    defaults = ChunkPacker.__init__.__kwdefaults__
    assert defaults is not None
    defaults["target_bytes"] = CHUNK_BYTES
    with sk.connect(url, token, codec="raw", retry_seconds=30) as client:
        kept = client.run(run)
        kept.resume()
        kept.save(int(step), many(int(seed), int(chunks))).wait(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
