"""What the object store is, and what it was seen to do. Never a credential."""

from __future__ import annotations

from typing import Final

from shardkeep.protocol.messages import ProbeFinding, StoreInfo
from shardkeep_service.blob_store.errors import BlobStoreError
from shardkeep_service.blob_store.presigner import StoreAbilities
from shardkeep_service.blob_store.s3.settings import S3Settings
from shardkeep_service.blob_store.stores import objects_directory
from shardkeep_service.chunks.direct import upload_presigner
from shardkeep_service.observability.redaction import redact
from shardkeep_service.service_context import ServiceContext

_AWS: Final = "AWS"


def store_info(context: ServiceContext) -> StoreInfo:
    """The first call may ask the store; where it does not answer, that is the only finding. No transaction."""
    settings = context.settings
    if settings.s3.bucket is None:
        return StoreInfo(
            kind="file_system", place=str(objects_directory(settings).absolute()), direct=False, abilities=[]
        )
    return StoreInfo(
        kind="s3",
        place=redact(_place(settings.s3), settings.secrets),
        direct=upload_presigner(context) is not None,
        abilities=_abilities(context),
    )


def _place(s3: S3Settings) -> str:
    endpoint = s3.endpoint_url or f"{_AWS} {s3.region}"
    return f"{endpoint} {s3.bucket}/{s3.prefix}"


def _abilities(context: ServiceContext) -> list[ProbeFinding]:
    try:
        return ability_findings(context.abilities)
    except BlobStoreError as error:
        detail = redact(str(error), context.settings.secrets)
        return [ProbeFinding(name="answers", passed=False, detail=detail)]


def ability_findings(abilities: StoreAbilities) -> list[ProbeFinding]:
    """The abilities of a bucket, each with what it means."""
    return [
        ProbeFinding(
            name="checksum",
            passed=abilities.checksum is not None,
            detail=f"it refuses a PUT with a wrong {abilities.checksum}"
            if abilities.checksum
            else "it does not compare checksums: objects are read again before they count",
        ),
        ProbeFinding(
            name="presigned_checksum",
            passed=abilities.presigned_checksum_enforced,
            detail=_refusal("a presigned PUT of other bytes, or length", refuses=abilities.presigned_checksum_enforced),
        ),
        ProbeFinding(
            name="create_only",
            passed=abilities.create_only,
            detail=_refusal("a PUT over an object that is there", refuses=abilities.create_only),
        ),
        ProbeFinding(
            name="presigned_create_only",
            passed=abilities.presigned_create_only,
            detail=_refusal("a presigned PUT over an object that is there", refuses=abilities.presigned_create_only),
        ),
        ProbeFinding(
            name="deletes",
            passed=not abilities.versioned,
            detail="it keeps old versions: deletes free nothing until its own rules remove them"
            if abilities.versioned
            else "a deleted object is gone",
        ),
    ]


def _refusal(what: str, *, refuses: bool) -> str:
    return f"it {'refuses' if refuses else 'takes'} {what}"
