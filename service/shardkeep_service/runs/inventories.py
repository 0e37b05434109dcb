"""Inventories: what each rank holds as plain tensors, and, once all have said it, who stores what."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import zstandard
from blake3 import blake3
from sqlalchemy import select
from sqlalchemy.orm import Session

from shardkeep.errors import FormatError
from shardkeep.format.dtypes import dtype_named
from shardkeep.format.names import check_name
from shardkeep.format.segments import SliceKind
from shardkeep.protocol.error_codes import ErrorCode
from shardkeep.protocol.messages import InventoryAnswer, InventoryTensor
from shardkeep_service.access.principal import Principal
from shardkeep_service.database.database import Database
from shardkeep_service.errors import Refusal
from shardkeep_service.inserts import insert_if_absent
from shardkeep_service.runs.attempts import check_current, find_attempt
from shardkeep_service.runs.models import Inventory
from shardkeep_service.runs.owners import Disagreement, Group, HeldTensor, OwnerPlan, plan_owners
from shardkeep_service.service_context import ServiceContext

WAITING_FOR_LIMIT: Final = 100
PLANS_LIMIT: Final = 16
_COMPRESSION_LEVEL: Final = 3
_KINDS: Final = frozenset(int(kind) for kind in SliceKind)
_ROWS: Final = msgspec.json.Decoder(list[tuple[str, str, tuple[int, ...], int]])


@dataclass(frozen=True, slots=True)
class Layout:
    """One numbered layout of an attempt."""

    attempt_id: str
    number: int
    world_size: int

    @property
    def board_key(self) -> str:
        """What is notified when an inventory of it arrives."""
        return f"{self.attempt_id}/{self.number}/{self.world_size}"

    @classmethod
    def of_board_key(cls, key: str) -> Layout:
        """The inverse of `board_key`."""
        attempt_id, number, world_size = key.split("/")
        return cls(attempt_id, int(number), int(world_size))


@dataclass(frozen=True, slots=True)
class Posting:
    """One rank's inventory on its way into the database."""

    layout: Layout
    rank: int
    digest: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Posted:
    """Which ranks have posted."""

    layout: Layout
    ranks: frozenset[int]

    @property
    def complete(self) -> bool:
        """Whether all have."""
        return len(self.ranks) == self.layout.world_size

    def waiting_for(self) -> list[int]:
        """The first ranks that have not."""
        missing = (rank for rank in range(self.layout.world_size) if rank not in self.ranks)
        return [rank for rank, _ in zip(missing, range(WAITING_FOR_LIMIT), strict=False)]


def check_posting(
    context: ServiceContext,
    principal: Principal,
    attempt_id: str,
    layout: int,
    rank: int,
    tensors: Sequence[InventoryTensor],
) -> Posting:
    """A valid inventory of a rank of the current attempt, ready to be written."""
    _check_tensors(tensors)
    with context.database.read() as session:
        place = find_attempt(session, principal, attempt_id)
        check_current(place.run, place.attempt)
        world_size = place.attempt.world_size
    _check_rank(rank, world_size)
    encoded = msgspec.json.encode([(tensor.name, tensor.dtype, tensor.shape, tensor.kind) for tensor in tensors])
    return Posting(
        layout=Layout(attempt_id, layout, world_size),
        rank=rank,
        digest=blake3(encoded).hexdigest(),
        content=zstandard.compress(encoded, _COMPRESSION_LEVEL),
    )


def find_layout(context: ServiceContext, principal: Principal, attempt_id: str, layout: int, rank: int) -> Layout:
    """The layout a rank asks about."""
    with context.database.read() as session:
        world_size = find_attempt(session, principal, attempt_id).attempt.world_size
    _check_rank(rank, world_size)
    return Layout(attempt_id, layout, world_size)


def write_postings(session: Session, postings: Sequence[Posting]) -> list[Posting | Refusal]:
    """Writes a batch of inventories; the same one again is fine, another one is `inventory_disagrees`."""
    query = select(Inventory.attempt_id, Inventory.layout, Inventory.rank, Inventory.digest).where(
        Inventory.attempt_id.in_({posting.layout.attempt_id for posting in postings}),
        Inventory.rank.in_({posting.rank for posting in postings}),
    )
    known = {(attempt, layout, rank): digest for attempt, layout, rank, digest in session.execute(query)}
    for posting in sorted(postings, key=_key):  # the same order in every transaction: they wait for each other's rows
        if _key(posting) not in known:
            known[_key(posting)] = _kept_digest(session, posting)
    return [
        posting if known[_key(posting)] == posting.digest else _inventory_disagrees(posting) for posting in postings
    ]


def load_posted(database: Database, key: str) -> Posted:
    """Which ranks of the layout of a board key have posted."""
    layout = Layout.of_board_key(key)
    query = select(Inventory.rank).where(Inventory.attempt_id == layout.attempt_id, Inventory.layout == layout.number)
    with database.read() as session:
        return Posted(layout, frozenset(session.scalars(query)))


class OwnerPlans:
    """The owners of complete layouts, computed once. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._plans: OrderedDict[Layout, OwnerPlan | Disagreement] = OrderedDict()

    def answer(self, posted: Posted, rank: int) -> InventoryAnswer:
        """What one rank is told; refuses `dtype_disagrees` and `shape_disagrees`, naming both ranks."""
        if rank not in posted.ranks or not posted.complete:
            return InventoryAnswer(complete=False, waiting_for=posted.waiting_for())
        plan = self._plan(posted.layout)
        if isinstance(plan, Disagreement):
            raise _tensors_disagree(plan)
        owners = plan.answer(rank)
        return InventoryAnswer.model_construct(
            complete=True, waiting_for=[], holders=owners.holders, position=owners.position, owner=owners.owner
        )

    def _plan(self, layout: Layout) -> OwnerPlan | Disagreement:
        with self._lock:
            plan = self._plans.get(layout)
            if plan is None:
                plan = plan_owners(self._groups(layout))
                self._plans[layout] = plan
            self._plans.move_to_end(layout)
            while len(self._plans) > PLANS_LIMIT:
                self._plans.popitem(last=False)
            return plan

    def _groups(self, layout: Layout) -> list[Group]:
        """The inventories of a layout; each distinct one is read and decoded once."""
        mine = (Inventory.attempt_id == layout.attempt_id, Inventory.layout == layout.number)
        with self._database.read() as session:
            ranks: dict[str, list[int]] = defaultdict(list)
            rows = session.execute(select(Inventory.digest, Inventory.rank).where(*mine).order_by(Inventory.rank))
            for digest, rank in rows:
                ranks[digest].append(rank)
            first = [found[0] for found in ranks.values()]
            query = select(Inventory.digest, Inventory.content).where(*mine, Inventory.rank.in_(first))
            contents = dict(session.execute(query).all())
        return [Group(tuple(found), _decode(contents[digest])) for digest, found in ranks.items()]


def _decode(content: bytes) -> tuple[HeldTensor, ...]:
    return tuple(HeldTensor(*row) for row in _ROWS.decode(zstandard.decompress(content)))


def _key(posting: Posting) -> tuple[str, int, int]:
    return posting.layout.attempt_id, posting.layout.number, posting.rank


def _kept_digest(session: Session, posting: Posting) -> str:
    """The digest of the inventory that is kept for this rank: this one, or what another replica was first to write."""
    attempt_id, layout, rank = _key(posting)
    values = {
        "attempt_id": attempt_id,
        "layout": layout,
        "rank": rank,
        "digest": posting.digest,
        "content": posting.content,
    }
    if insert_if_absent(session, Inventory, values):
        return posting.digest
    mine = (Inventory.attempt_id == attempt_id, Inventory.layout == layout, Inventory.rank == rank)
    return session.scalars(select(Inventory.digest).where(*mine)).one()


def _check_tensors(tensors: Sequence[InventoryTensor]) -> None:
    """Refusal unless names are sorted and unique, and dtypes and kinds are known."""
    before = ""
    for tensor in tensors:
        if before >= tensor.name:
            raise Refusal(
                ErrorCode.MALFORMED_REQUEST,
                f"{tensor.name!r} follows {before!r}; an inventory is sorted and names each once",
            )
        before = tensor.name
        try:
            check_name(tensor.name)
            dtype_named(tensor.dtype)
        except FormatError as exc:
            raise Refusal(ErrorCode.MALFORMED_REQUEST, f"tensor {tensor.name!r} cannot be stored: {exc}") from exc
        if tensor.kind not in _KINDS:
            raise Refusal(ErrorCode.MALFORMED_REQUEST, f"tensor {tensor.name!r} has the unknown kind {tensor.kind}")


def _check_rank(rank: int, world_size: int) -> None:
    if not 0 <= rank < world_size:
        raise Refusal(ErrorCode.RANK_OUT_OF_RANGE, f"rank {rank} is outside the attempt's world of {world_size} ranks")


def _inventory_disagrees(posting: Posting) -> Refusal:
    return Refusal(
        ErrorCode.INVENTORY_DISAGREES,
        f"rank {posting.rank} posted another inventory for layout {posting.layout.number} before; a changed layout"
        " needs the"
        " next number, counted alike on all ranks",
    )


def _tensors_disagree(found: Disagreement) -> Refusal:
    code = ErrorCode.DTYPE_DISAGREES if found.what == "dtype" else ErrorCode.SHAPE_DISAGREES
    return Refusal(
        code,
        f"tensor {found.name!r} has {found.what} {found.values[0]} on rank {found.ranks[0]} and {found.values[1]} on"
        " rank"
        f" {found.ranks[1]}; give different tensors different names, or mark shards as such",
        ranks=list(found.ranks),
        tensors=[found.name],
    )
