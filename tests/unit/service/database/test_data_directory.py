"""The data directory: one owner, and no network file system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardkeep_service.database import data_directory
from shardkeep_service.database.data_directory import (
    DataDirectoryRefused,
    check_local,
    file_system_type,
    owned_directory,
)

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:30 / /mnt/share rw - nfs4 server:/x rw
31 22 0:31 / /mnt/share/local\\040disk rw - xfs /dev/b rw
32 22 0:32 / /mnt/lustre rw shared:1 - lustre x rw
"""


def test_a_directory_has_one_owner_at_a_time_and_is_free_afterwards(tmp_path: Path) -> None:
    with (
        owned_directory(tmp_path / "data"),
        pytest.raises(DataDirectoryRefused, match=f"pid {os.getpid()}"),
        owned_directory(tmp_path / "data"),
    ):
        pass
    with owned_directory(tmp_path / "data"):
        pass


@pytest.mark.parametrize(
    ("directory", "kind"),
    [
        ("/somewhere", "ext4"),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/data", "nfs4"),
        ("/mnt/shared", "ext4"),
        ("/mnt/share/local disk/data", "xfs"),
        ("/mnt/lustre/a/b", "lustre"),
    ],
)
def test_the_file_system_is_that_of_the_innermost_mount(tmp_path: Path, directory: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert file_system_type(Path(directory), mounts=mounts) == kind


def test_a_network_file_system_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_directory, "file_system_type", lambda _directory: "nfs4")
    with pytest.raises(DataDirectoryRefused, match="PostgreSQL"):
        check_local(tmp_path)


def test_a_local_directory_is_fine(tmp_path: Path) -> None:
    check_local(tmp_path)
