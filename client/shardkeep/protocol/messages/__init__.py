"""Messages: the JSON bodies of requests and answers.

Requests refuse unknown members, so that a typo is an error and not a silently ignored option; answers ignore members
they do not know, so that a newer service may add some. Binary bodies (chunks, manifests, load requests and load
plans) are described in `shardkeep.format`.

Times are UTC ISO 8601. Sizes are bytes. Metrics keep nan and infinities as the strings "NaN", "Infinity" and
"-Infinity", so every body is strict JSON and nothing is lost.
"""

from __future__ import annotations

from shardkeep.protocol.messages.access import (
    AuditEntryInfo,
    CreateJobToken,
    CreateToken,
    NewToken,
    QuotaInfo,
    SetQuota,
    TokenInfo,
    TokenScope,
)
from shardkeep.protocol.messages.attempts import (
    AttemptInfo,
    BeginAttempt,
    DecideResume,
    LatestAnswer,
    PassedOver,
    ResumeDecision,
)
from shardkeep.protocol.messages.bodies import Answer, Item, Page, Problem, Request
from shardkeep.protocol.messages.checkpoints import (
    AbortInfo,
    CheckpointInfo,
    CheckpointReport,
    CheckpointState,
    CheckpointSummary,
    PinCheckpoint,
    TensorInfo,
)
from shardkeep.protocol.messages.chunks import (
    AskReadTargets,
    ChunkAnswer,
    ChunkOffer,
    DamageAnswer,
    NegotiateAnswer,
    NegotiateChunks,
    ReadTargets,
    ReportDamage,
    Target,
)
from shardkeep.protocol.messages.contents import (
    DeletionImpact,
    DifferenceAnswer,
    SliceInfo,
    TensorChange,
    TensorDifference,
    ValueInfo,
    ValueKind,
)
from shardkeep.protocol.messages.integrity import FindingInfo, IntegrityInfo
from shardkeep.protocol.messages.inventories import InventoryAnswer, InventoryTensor, PostInventory
from shardkeep.protocol.messages.overview import CollectionInfo, OverviewInfo, SavesInTime, WorkerInfo
from shardkeep.protocol.messages.ranks import RankPart, RankState, SaveInProgress, SaveTimes
from shardkeep.protocol.messages.retention import (
    BestRule,
    RetentionAnswer,
    RetentionPlanAnswer,
    RetentionPolicyInfo,
    RetentionReason,
    RetentionRules,
    RetentionVerdict,
)
from shardkeep.protocol.messages.runs import CreateProject, ProjectInfo, Restore, RunInfo, RunState, RunSummary
from shardkeep.protocol.messages.save_requests import SaveRequestInfo, SaveRequestState
from shardkeep.protocol.messages.saving import AbortCheckpoint, OpenAnswer, OpenCheckpoint, StateAnswer
from shardkeep.protocol.messages.scalars import Label, Metric, MetricName, Rank, Reason, Size, Step, WorldSize
from shardkeep.protocol.messages.service import Capabilities
from shardkeep.protocol.messages.sign_ins import SignedIn, SignIn
from shardkeep.protocol.messages.system import DatabaseInfo, ProbeFinding, SettingInfo, StoreInfo, SystemInfo

__all__ = [
    "AbortCheckpoint",
    "AbortInfo",
    "Answer",
    "AskReadTargets",
    "AttemptInfo",
    "AuditEntryInfo",
    "BeginAttempt",
    "BestRule",
    "Capabilities",
    "CheckpointInfo",
    "CheckpointReport",
    "CheckpointState",
    "CheckpointSummary",
    "ChunkAnswer",
    "ChunkOffer",
    "CollectionInfo",
    "CreateJobToken",
    "CreateProject",
    "CreateToken",
    "DamageAnswer",
    "DatabaseInfo",
    "DecideResume",
    "DeletionImpact",
    "DifferenceAnswer",
    "FindingInfo",
    "IntegrityInfo",
    "InventoryAnswer",
    "InventoryTensor",
    "Item",
    "Label",
    "LatestAnswer",
    "Metric",
    "MetricName",
    "NegotiateAnswer",
    "NegotiateChunks",
    "NewToken",
    "OpenAnswer",
    "OpenCheckpoint",
    "OverviewInfo",
    "Page",
    "PassedOver",
    "PinCheckpoint",
    "PostInventory",
    "ProbeFinding",
    "Problem",
    "ProjectInfo",
    "QuotaInfo",
    "Rank",
    "RankPart",
    "RankState",
    "ReadTargets",
    "Reason",
    "ReportDamage",
    "Request",
    "Restore",
    "ResumeDecision",
    "RetentionAnswer",
    "RetentionPlanAnswer",
    "RetentionPolicyInfo",
    "RetentionReason",
    "RetentionRules",
    "RetentionVerdict",
    "RunInfo",
    "RunState",
    "RunSummary",
    "SaveInProgress",
    "SaveRequestInfo",
    "SaveRequestState",
    "SaveTimes",
    "SavesInTime",
    "SetQuota",
    "SettingInfo",
    "SignIn",
    "SignedIn",
    "Size",
    "SliceInfo",
    "StateAnswer",
    "Step",
    "StoreInfo",
    "SystemInfo",
    "Target",
    "TensorChange",
    "TensorDifference",
    "TensorInfo",
    "TokenInfo",
    "TokenScope",
    "ValueInfo",
    "ValueKind",
    "WorkerInfo",
    "WorldSize",
]
