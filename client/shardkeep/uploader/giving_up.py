"""Telling the service that a save has failed here, so that no other rank waits for it."""

from __future__ import annotations

import logging

from shardkeep.connection.service_client import ServiceClient
from shardkeep.errors import AttemptFenced, Conflict, ShardkeepError
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.uploader.failures import error_of_abort
from shardkeep.uploader.save_identity import SaveIdentity

_log = logging.getLogger("shardkeep")


def give_up(service: ServiceClient, checkpoint_id: str | None, identity: SaveIdentity, failure: Exception) -> Exception:
    """Abort the checkpoint; gives the service's own reason if it had been aborted before."""
    if checkpoint_id is None or isinstance(failure, AttemptFenced):
        return failure
    try:
        state = service.abort(checkpoint_id, rank=identity.rank, reason=str(failure) or repr(failure))
    except AttemptFenced as fenced:
        return fenced
    except ShardkeepError as error:
        _log.warning("the checkpoint of step %d could not be aborted: %s", identity.step, error)
        return failure
    was_aborted_before = isinstance(failure, Conflict) and failure.code in {
        ErrorCode.CHECKPOINT_ABORTED,
        ErrorCode.CHECKPOINT_NOT_OPEN,
    }
    return error_of_abort(state.abort, step=identity.step) if was_aborted_before else failure
