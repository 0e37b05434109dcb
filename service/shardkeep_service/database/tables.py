"""Every table: importing this module fills `Base.metadata`, for migrations and tests."""

from __future__ import annotations

import shardkeep_service.access.models
import shardkeep_service.checkpoints.models
import shardkeep_service.chunks.models
import shardkeep_service.projects.models
import shardkeep_service.runs.models
from shardkeep_service.database.base import Base

METADATA = Base.metadata

__all__ = ["METADATA", "shardkeep_service"]
