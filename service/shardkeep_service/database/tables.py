"""Every table: importing this module fills `Base.metadata`, for migrations and tests."""

from __future__ import annotations

import shardkeep_service.access.models
import shardkeep_service.catalogue.models
import shardkeep_service.checkpoints.models
import shardkeep_service.chunks.models
import shardkeep_service.database.schema_support
import shardkeep_service.garbage_collection.models
import shardkeep_service.integrity.models
import shardkeep_service.projects.models
import shardkeep_service.retention.models
import shardkeep_service.runs.models
import shardkeep_service.worker.models
from shardkeep_service.database.base import Base

METADATA = Base.metadata

__all__ = ["METADATA", "shardkeep_service"]
