"""A blob store in an S3 bucket: one PUT an object, no copies, no renames, no multipart uploads.

An object appears whole or not at all, because a PUT does. Nothing here is the commit of anything: conditions of the
store are used where it honours them, and the database decides without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from shardkeep_service.blob_store.blob_store import BlobInfo
from shardkeep_service.blob_store.errors import BlobExists, BlobMissing, BlobStoreUnavailable
from shardkeep_service.blob_store.keys import check_key, check_keys, check_prefix
from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.s3.bodies import MemoryBody
from shardkeep_service.blob_store.s3.checksums import checksum_parameters, crc64_of, crc64_text
from shardkeep_service.blob_store.s3.connection import S3Connection
from shardkeep_service.blob_store.s3.error_mapping import error_of_item, translated_errors
from shardkeep_service.blob_store.s3.settings import OBJECT_BYTES_LIMIT, S3Settings

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3.type_defs import ListObjectsV2OutputTypeDef

DELETE_LIMIT: Final = 1_000
_PIECE_BYTES: Final = 256 << 10
"""botocore's readinto goes through a piece of its own: one that stays in the processor's cache costs least."""
_COMPARE_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 64 << 10
"""Shorter bodies are sent at once; before longer ones botocore waits for the store's leave (Expect: 100-continue)."""


class S3BlobStore:
    """Implements `BlobStore`. `find_abilities` is asked at the first put: making a store connects to nothing."""

    def __init__(self, connection: S3Connection, find_abilities: Callable[[], StoreAbilities]) -> None:
        self._connection = connection
        self._client = connection.client
        self._prefix = connection.settings.prefix
        self._find_abilities = find_abilities
        self._put_parameters = put_parameters(connection.settings)

    def put(self, key: str, body: memoryview, *, crc64: int | None = None) -> None:
        """See BlobStore. The store verifies the body where the probe saw that it does; else its size is looked up."""
        check_key(key)
        if len(body) > OBJECT_BYTES_LIMIT:
            raise ValueError(f"{key} has {len(body)} bytes; one PUT takes {OBJECT_BYTES_LIMIT}")
        abilities = self._find_abilities()
        if not abilities.create_only and self.size(key) is not None:
            self._check_same(key, body, crc64, abilities)
            return
        try:
            self._put(key, body, crc64, abilities)
        except BlobExists:
            self._check_same(key, body, crc64, abilities)
        else:
            self._check_stored(key, body, abilities)

    def read_into(self, key: str, offset: int, out: memoryview) -> None:
        """See BlobStore."""
        if not len(out):
            self._check_reaches(key, offset)
            return
        with self._translated("GetObject", key):
            body = self._open(key, offset, len(out))
            try:
                _fill(body, out, key)
            finally:
                body.close()

    def stream(self, key: str, offset: int, length: int, *, piece_bytes: int) -> Iterator[memoryview]:
        """See BlobStore. One request, made at the first piece; its connection is held until the last."""
        check_key(key)
        if not length:
            self._check_reaches(key, offset)
            return
        with self._translated("GetObject", key):
            body = self._open(key, offset, length)
            try:
                left = length
                while left:
                    piece = body.read(min(piece_bytes, left))
                    if not piece:
                        raise _cut(key, left)
                    left -= len(piece)
                    yield memoryview(piece)
            finally:
                body.close()

    def size(self, key: str) -> int | None:
        """See BlobStore."""
        try:
            return self._size_of(key, self._head(key))
        except BlobMissing:
            return None

    def delete(self, keys: Sequence[str]) -> None:
        """See BlobStore. A thousand keys are one request."""
        check_keys(keys)
        remaining = iter(keys)
        while batch := list(islice(remaining, DELETE_LIMIT)):
            self._delete_batch(batch)

    def list(self, prefix: str, *, after: str = "") -> Iterator[BlobInfo]:
        """See BlobStore. Follows the store's pages to the end, whatever they hold; a thousand objects each."""
        check_prefix(prefix)
        token: str | None = None
        start = {"StartAfter": self._prefix + after} if after else {}
        while True:
            page = self._page(prefix, start if token is None else {"ContinuationToken": token})
            yield from self._infos(page, prefix)
            if not page.get("IsTruncated"):
                return
            following = page.get("NextContinuationToken")
            if not following or following == token:
                raise BlobStoreUnavailable(f"the store cut its list of {prefix}* and does not say how it goes on")
            token = following

    def _put(self, key: str, body: memoryview, crc64: int | None, abilities: StoreAbilities) -> None:
        parameters: dict[str, Any] = {**self._put_parameters, **checksum_parameters(abilities.checksum, body, crc64)}
        if abilities.create_only:
            parameters["IfNoneMatch"] = "*"
        self._connection.call(
            "PutObject",
            self._client.put_object,
            what=key,
            Key=self._prefix + key,
            Body=MemoryBody(body) if len(body) > _SMALL_BYTES else bytes(body),
            **parameters,
        )

    def _head(self, key: str, **parameters: Any) -> dict[str, Any]:
        check_key(key)
        answer = self._connection.call(
            "GetObject", self._client.head_object, what=key, Key=self._prefix + key, **parameters
        )
        return dict(answer)

    def _size_of(self, key: str, head: Mapping[str, Any]) -> int:
        size = head.get("ContentLength")
        if size is None:
            raise BlobStoreUnavailable(f"{key}: the store answered without a size")
        return int(size)

    def _open(self, key: str, offset: int, length: int) -> StreamingBody:
        """The body of a GET of exactly this range."""
        check_key(key)
        wanted = f"bytes={offset}-{offset + length - 1}"
        try:
            answer = self._connection.call(
                "GetObject", self._client.get_object, what=key, Key=self._prefix + key, Range=wanted
            )
        except BlobMissing:
            self._check_reaches(key, offset + length)
            raise
        body, content_range = answer["Body"], answer.get("ContentRange", "")
        if content_range.startswith(f"{wanted.replace('=', ' ')}/") and answer.get("ContentLength", length) == length:
            return body
        body.close()
        self._check_reaches(key, offset + length)
        raise BlobStoreUnavailable(f"{key}: asked for {wanted}, the store answered {content_range or 'all of it'!r}")

    def _check_reaches(self, key: str, end: int) -> None:
        size = self.size(key)
        if size is None:
            raise BlobMissing(f"there is no {key}")
        if end > size:
            raise BlobMissing(f"{key} has {size} bytes, needed {end}")

    def _check_stored(self, key: str, body: memoryview, abilities: StoreAbilities) -> None:
        """A store that verifies no checksum may have stored a part of what was sent and called it done."""
        size = len(body) if abilities.checksum is not None else self.size(key)
        if size != len(body):
            raise BlobStoreUnavailable(f"{key} was stored with {size} bytes in place of {len(body)}")

    def _check_same(self, key: str, body: memoryview, crc64: int | None, abilities: StoreAbilities) -> None:
        """BlobExists unless the object under `key` holds `body`: by its checksum where the store verified that, for
        another store may only repeat what it was sent; else byte by byte.
        """
        try:
            found = self._head(key, ChecksumMode="ENABLED")
        except BlobMissing as exc:
            raise BlobStoreUnavailable(f"another put or delete of {key} is under way") from exc
        size = self._size_of(key, found)
        if size != len(body):
            raise BlobExists(f"{key} holds {size} other bytes")
        kept = found.get("ChecksumCRC64NVME")
        if kept is not None and abilities.checksum == "crc64nvme":
            same = kept == crc64_text(crc64_of(body) if crc64 is None else crc64)
        else:
            pieces = self.stream(key, 0, len(body), piece_bytes=_COMPARE_BYTES)
            same = _equal(body, pieces)
        if not same:
            raise BlobExists(f"{key} holds other bytes")

    def _delete_batch(self, keys: Sequence[str]) -> None:
        objects = [{"Key": self._prefix + key} for key in keys]
        what = keys[0] if len(keys) == 1 else f"{keys[0]} and {len(keys) - 1} more"
        answer = self._connection.call(
            "DeleteObject", self._client.delete_objects, what=what, Delete={"Objects": objects, "Quiet": True}
        )
        errors = [item for item in answer.get("Errors", ()) if item.get("Code") not in ("NoSuchKey", "NotFound")]
        if errors:
            first = str(errors[0].get("Key", "")).removeprefix(self._prefix)
            raise error_of_item(errors[0], action="DeleteObject", bucket=self._connection.bucket, what=first)

    def _page(self, prefix: str, place: Mapping[str, str]) -> ListObjectsV2OutputTypeDef:
        whole = self._prefix + prefix
        listing = self._client.list_objects_v2
        return self._connection.call("ListBucket", listing, what=f"{whole}*", Prefix=whole, **place)

    def _infos(self, page: ListObjectsV2OutputTypeDef, prefix: str) -> Iterator[BlobInfo]:
        for item in page.get("Contents", ()):
            key = item["Key"].removeprefix(self._prefix)
            if key.startswith(prefix):
                yield BlobInfo(key, item["Size"])

    def _translated(self, action: str, key: str) -> Any:
        return translated_errors(action, bucket=self._connection.bucket, what=key)


def put_parameters(settings: S3Settings) -> dict[str, str]:
    """What every PUT says beside its key and body."""
    parameters = {"ContentType": "application/octet-stream"}
    if settings.sse is not None:
        parameters["ServerSideEncryption"] = settings.sse
    if settings.sse_kms_key_id is not None:
        parameters["SSEKMSKeyId"] = settings.sse_kms_key_id
    return parameters


def _fill(body: StreamingBody, out: memoryview, key: str) -> None:
    done = 0
    while done < len(out):
        count = body.readinto(out[done : done + _PIECE_BYTES])  # type: ignore[arg-type]  # any buffer will do
        if not count:
            raise _cut(key, len(out) - done)
        done += count


def _equal(body: memoryview, pieces: Iterator[memoryview]) -> bool:
    done = 0
    for piece in pieces:
        if body[done : done + len(piece)] != piece:
            return False
        done += len(piece)
    return done == len(body)


def _cut(key: str, left: int) -> BlobStoreUnavailable:
    return BlobStoreUnavailable(f"{key}: the store's answer ended {left} bytes early")
