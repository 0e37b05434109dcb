"""The stored objects of a local service, to be damaged by tests."""

from __future__ import annotations

from shardkeep.protocol import routes
from shardkeep_service.catalogue.commit_records import write_commit_records
from tests.unit.service.training import Training


class StoredObjects:
    """What one run's service has in its bucket."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._root = training.service.settings.data_dir / "blobs" / "objects"

    @property
    def project_id(self) -> str:
        return str(self._training.service.ask("GET", self._training.path(routes.PROJECT))["id"])

    def of(self, folder: str, checkpoint: str) -> list[str]:
        """Keys of a checkpoint's own chunks, manifests, indexes or commits."""
        listed = self._training.service.blob_store.list(f"{self.project_id}/{folder}/")
        return [blob.key for blob in listed if checkpoint in blob.key]

    def body(self, key: str) -> bytes:
        return (self._root / key).read_bytes()

    def flip_a_bit(self, key: str, *, place: int = -9, bit: int = 0) -> None:
        path = self._root / key
        body = bytearray(path.read_bytes())
        body[place] ^= 1 << bit
        path.chmod(0o600)
        path.write_bytes(body)

    def cut(self, key: str, count: int) -> None:
        path = self._root / key
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-count])

    def write_records(self) -> None:
        write_commit_records(self._training.service.context)
